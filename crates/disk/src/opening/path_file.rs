//! [`PathFile`]: an O_PATH descriptor, through which a unix socket is connected to.
//!
//! Invariant: as in [`crate::opening::open`], the path is walked in memory, else in a pool.

use std::os::fd::{AsFd, AsRawFd};

use crate::access::{Access, AioMode};
use crate::files::error::Error;
use crate::files::open_file::Handle;
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::opening::open::OpenPurpose;

/// An O_PATH descriptor of [`Local::open_path`]. Closed in a pool where the close may wait.
#[derive(Debug)]
pub struct PathFile(Handle);

impl PathFile {
    /// Its number, as in `/proc/self/fd/`.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }
}

impl Local {
    /// Gets an O_PATH descriptor of an absolute path, whatever type of file is there.
    ///
    /// # Errors
    /// As [`Local::open`]; the call is `stat()`.
    pub async fn open_path(&self, path: &[u8], access: &Access<'_>) -> Result<PathFile, Error> {
        let found = match self.try_find(path, OpenPurpose::Stat, access) {
            Ok(answer) if access.mode != AioMode::Inline => answer?,
            _ => {
                let open = self.find(
                    path,
                    OpenPurpose::Stat,
                    access,
                    Operation::Open,
                    std::convert::identity,
                );
                let found = Box::pin(open).await?;
                self.guard_detour(path, found.mount.as_deref(), access);
                found
            }
        };
        Ok(PathFile(Handle::new(found.fd, found.mount, access.pool)))
    }
}
