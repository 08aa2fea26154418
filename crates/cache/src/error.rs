//! What can go wrong in this crate.

/// Why bytes are no entry, or an answer cannot become one. What is damaged is dropped and fetched again, never served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first bytes are not ours: a file of somebody else (of nginx, perhaps).
    #[error("not an entry of this cache")]
    Foreign,
    /// Written by a version of this program whose format this one does not read.
    #[error("format version {0}")]
    Version(u16),
    /// The fill that wrote it did not come to its end.
    #[error("not complete")]
    Incomplete,
    /// So many bytes from the start of the entry are needed to read its head; there were fewer.
    #[error("the first {0} bytes are needed")]
    Needs(usize),
    /// A checksum, a length or a field says that bytes changed since they were written.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// The answer cannot be written down: a limit, or bytes that no header line may have.
    #[error("cannot be stored: {0}")]
    Unstorable(&'static str),
}

/// Why something could not be done. None of it is an answer to a client: what the cache cannot do, the origin can.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk, or the pool in front of it.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// Stored bytes, or an answer that cannot be stored.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// No room, and nothing that could make some.
    #[error(transparent)]
    NoRoom(#[from] crate::space::NoRoom),
    /// So many purges wait for a sweep that one more cannot be noted.
    #[error(transparent)]
    TooManyPurges(#[from] crate::purge::TooManyPurges),
    /// What was being stored is not to be: too much was purged since it was asked for.
    #[error("not stored: purges were made while it was fetched")]
    Purged,
    /// What was being stored is not to be: what is stored was asked for later.
    #[error("not stored: a newer answer is")]
    Superseded,
    /// Somebody else owns the cache directory (its lock is taken).
    #[error("the cache directory is in use by another process")]
    InUse,
}
