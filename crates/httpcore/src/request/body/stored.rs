//! A complete body, in memory or in a file.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use disk::memory::{Charge, Holder, charge};
use disk::{Local, OpenFile, Pool, Temporary};
use message::{Chunk, FileRange, Framing};

use crate::transport::DiskLimit;

/// A complete body.
#[derive(Debug)]
pub struct Stored {
    framing: Framing,
    memory: Bytes,
    file: Option<InFile>,
    _charge: Charge,
}

/// A body in a file.
pub(crate) struct InFile {
    pub(crate) temporary: Temporary,
    pub(crate) open: Rc<OpenFile>,
    pub(crate) len: u64,
    pub(crate) disk: Local,
    pub(crate) pool: Pool,
    /// Of each wait for its disk.
    pub(crate) limit: Option<DiskLimit>,
}

impl fmt::Debug for InFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("InFile");
        shown.field("len", &self.len).finish_non_exhaustive()
    }
}

impl Stored {
    /// A body in memory.
    #[must_use]
    pub fn in_memory(framing: Framing, memory: Bytes) -> Self {
        Self {
            framing,
            _charge: charge(Holder::RequestBodies, memory.len()),
            memory,
            file: None,
        }
    }

    /// A body in a file.
    #[must_use]
    pub(crate) fn in_file(framing: Framing, file: InFile) -> Self {
        Self {
            framing,
            _charge: charge(Holder::RequestBodies, 0),
            memory: Bytes::new(),
            file: Some(file),
        }
    }

    /// The framing that it arrived with.
    #[must_use]
    pub fn came_as(&self) -> Framing {
        self.framing
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.file {
            Some(file) => file.len,
            None => self.memory.len() as u64,
        }
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of its bytes, where it is in memory (`$request_body`).
    #[must_use]
    pub fn memory(&self) -> Option<&Bytes> {
        self.file.is_none().then_some(&self.memory)
    }

    /// The path of its file (`$request_body_file`).
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        self.file.as_ref().map(|file| file.temporary.path())
    }

    /// All of it as one chunk, to be sent.
    #[must_use]
    pub fn chunk(&self) -> Chunk<Rc<OpenFile>> {
        match &self.file {
            Some(file) => Chunk::File(FileRange {
                file: Rc::clone(&file.open),
                offset: 0,
                len: file.len,
            }),
            None => Chunk::Bytes(self.memory.clone()),
        }
    }

    pub(crate) fn file(&self) -> Option<&InFile> {
        self.file.as_ref()
    }
}
