//! Reading the beginning of a file for maintenance (a sweep, a walk), not for a request: one job, and nothing is kept,
//! so that it displaces nothing that requests use.

use crate::files::error::Error;
use crate::files::open_file::Meta;
use crate::files::pread::read_fully;
use crate::keeping::walk::Symlinks;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::opening::open::{OpenOptions, OpenPurpose};
use crate::opening::open_waiting::open_path;
use crate::pool::{Lane, Pool};
use bytes::Bytes;
use std::os::fd::AsFd;
use std::time::Instant;

impl Local {
    /// The first `len` bytes (fewer only if the file is shorter) of the file at an absolute path, and its metadata.
    /// Always in the pool; the file's access time is not changed, where the kernel permits that.
    ///
    /// # Errors
    /// [`Error::System`] with `open()`, `fstat()` or `read()`, [`Error::Overflow`].
    pub async fn read_front(
        &self,
        path: &[u8],
        len: usize,
        pool: &Pool,
    ) -> Result<(Bytes, Meta), Error> {
        let path: Box<[u8]> = path.into();
        let begun = Instant::now();
        let job = pool.run(Lane::Read, move || read_front(&path, len));
        match job.await {
            Ok(result) => {
                self.0.counters.offloaded(Operation::Read, begun.elapsed());
                result
            }
            Err(overflow) => {
                self.0.counters.overflowed(Operation::Read);
                Err(overflow.into())
            }
        }
    }
}

/// **Waits.**
fn read_front(path: &[u8], len: usize) -> Result<(Bytes, Meta), Error> {
    let options = OpenOptions {
        symlinks: Symlinks::Follow,
        directio: None,
        noatime: true,
    };
    let fd = open_path(path, OpenPurpose::Read, &options);
    let fd = fd.map_err(|errno| Error::system("open()", errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::system("fstat()", errno))?;
    let bytes = |bytes: &Bytes| bytes.len() as u64;
    let front = call_times::timed_on(Operation::Read, fd.as_fd(), bytes, || {
        read_fully(fd.as_fd(), 0, len)
    })?;
    Ok((front, Meta::from_stat(&stat)))
}
