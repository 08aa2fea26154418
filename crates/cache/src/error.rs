//! The errors of this crate.

/// Why bytes are no entry, or a response cannot become one. A damaged entry is dropped and fetched again, never served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// The first bytes are not ours: a foreign file (of nginx, perhaps).
    #[error("not an entry of this cache")]
    Foreign,
    /// The format of another version of this program, which this one does not read.
    #[error("format version {0}")]
    Version(u16),
    /// The fill that wrote it did not finish.
    #[error("not complete")]
    Incomplete,
    /// The head extends over this many bytes from the start of the entry; fewer were given.
    #[error("the first {0} bytes are needed")]
    Needs(usize),
    /// A checksum, a length or a field shows that bytes have changed since they were written.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// The response cannot be encoded: a limit, or bytes that no header line may have.
    #[error("cannot be stored: {0}")]
    Unstorable(&'static str),
}

/// Why an operation failed. None of these is a response to a client: the origin can answer what the cache cannot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk failed, or the pool in front of it is full.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// Stored bytes are damaged, or a response cannot be stored.
    #[error(transparent)]
    Fault(#[from] EntryFault),
    /// No space is left, and none can be made.
    #[error(transparent)]
    NoRoom(#[from] crate::space::NoRoom),
    /// The list of purges that wait for a sweep is full.
    #[error(transparent)]
    TooManyPurges(#[from] TooManyPurges),
    /// The response is not stored: too many purges were made since it was requested.
    #[error("not stored: purges were made while it was fetched")]
    Purged,
    /// The response is not stored: a stored one was requested later.
    #[error("not stored: a newer answer is")]
    Superseded,
    /// The journal was written by another version of this program.
    #[error("the journal is of another version ({0}, this program has {1})")]
    JournalVersion(u32, u32),
    /// The device beside the directory is not one for it.
    #[error("its device is not used: {0}")]
    Device(String),
    /// Another process owns the cache directory (its lock is taken).
    #[error("the cache directory is in use by another process")]
    InUse,
}

impl Error {
    /// The number of the error, where it is a system call's.
    pub(crate) fn errno(&self) -> Option<disk::Errno> {
        match self {
            Self::Disk(error) => error.errno(),
            _ => None,
        }
    }
}

/// As many rules as may be (`purge::RULES_MAX`) are pending: nothing was purged, and the purge should be tried
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} purges are pending already")]
pub struct TooManyPurges(pub usize);
