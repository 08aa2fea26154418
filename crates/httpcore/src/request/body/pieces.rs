//! Reading a body piece by piece, from memory, a file or the socket.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use disk::{Access, READ_MAX};

use super::RequestBody;
use super::stored::InFile;
use crate::transport::DiskLimit;

/// The reason why a stored body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PieceError {
    /// An error of the disk or its pool.
    #[error("{0} while reading a request body from a temporary file")]
    Disk(#[from] disk::Error),
    /// The file is shorter than it was.
    #[error("a temporary file with a request body was truncated")]
    Truncated,
}

impl PieceError {
    /// The status of a request that it ends: 503 where the disk cannot be waited for.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Disk(disk::Error::Late(_) | disk::Error::Overflow(_)) => 503,
            Self::Disk(_) | Self::Truncated => 500,
        }
    }
}

/// One reading of a body. Owns what it needs.
#[derive(Debug)]
pub struct Pieces {
    body: RequestBody,
    at: u64,
}

impl Pieces {
    pub(super) fn new(body: RequestBody) -> Self {
        Self { body, at: 0 }
    }

    /// The next piece; `None` at the end. One from a file has at most [`READ_MAX`] bytes. One of a streamed body comes
    /// only while [`alongside`](crate::request_body::alongside) runs.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PieceError> {
        let stored = match &self.body {
            RequestBody::None => return Ok(None),
            RequestBody::Passing(pipe) => return Ok(poll_fn(|cx| pipe.poll_take(cx)).await),
            RequestBody::Stored(stored) => Rc::clone(stored),
        };
        let piece = match stored.file() {
            Some(file) if self.at < file.len => read(file, self.at).await?,
            Some(_) => return Ok(None),
            None if self.at < stored.len() => stored.memory().cloned().unwrap_or_default(),
            None => return Ok(None),
        };
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }

    /// Whether the next piece can be had without waiting, except for a disk.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.body {
            RequestBody::Passing(pipe) => pipe.is_ready(),
            RequestBody::None | RequestBody::Stored(_) => true,
        }
    }

    /// Whether the end is known, with no piece before it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.body {
            RequestBody::Passing(pipe) => pipe.is_over(),
            RequestBody::None => true,
            RequestBody::Stored(stored) => self.at == stored.len(),
        }
    }

    /// The rest of a body in memory, without waiting: it goes with the head. `None`: the body must be read piece by
    /// piece.
    pub fn take_memory(&mut self) -> Option<Bytes> {
        let stored = match &self.body {
            RequestBody::None => return Some(Bytes::new()),
            RequestBody::Passing(_) => return None,
            RequestBody::Stored(stored) => stored,
        };
        let bytes = stored.memory()?.slice(self.at as usize..);
        self.at += bytes.len() as u64;
        Some(bytes)
    }
}

async fn read(file: &InFile, at: u64) -> Result<Bytes, PieceError> {
    let len = (file.len - at).min(READ_MAX as u64) as usize;
    let access = Access::new(&file.pool);
    let read = file.disk.read(&file.open, at, len, &access);
    let piece = DiskLimit::within(file.limit.as_ref(), read).await?;
    if piece.is_empty() {
        return Err(PieceError::Truncated);
    }
    Ok(piece)
}
