//! Files of certificates and keys that were read for one connection, for a thread that opens none.
//!
//! Not here: reading them. Invariant: a file is there whole, or with the error of reading it.

use super::Stamp;
use hashbrown::HashMap;
use std::io;

/// What was read of a file; the number of the system's error (`ENOENT` and its kin).
pub type Contents = Result<(Vec<u8>, Stamp), i32>;

/// Files by their paths; at most those of one certificate and one key.
#[derive(Debug, Default)]
pub struct FilesRead {
    by_path: HashMap<String, Contents>,
}

impl FilesRead {
    /// Adds a file.
    pub fn insert(&mut self, path: &str, contents: Contents) {
        self.by_path.insert(path.to_owned(), contents);
    }

    /// The state that a file was read in; `None`: it could not be read.
    #[must_use]
    pub fn stamp(&self, path: &str) -> Option<Stamp> {
        let (_, stamp) = self.by_path.get(path)?.as_ref().ok()?;
        Some(*stamp)
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// That of reading it; `NotFound` for a path that was not read.
    pub fn contents(&self, path: &str) -> io::Result<Vec<u8>> {
        match self.by_path.get(path) {
            Some(Ok((contents, _))) => Ok(contents.clone()),
            Some(Err(number)) => Err(io::Error::from_raw_os_error(*number)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
