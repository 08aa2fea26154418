//! Single changes of the disk, always in a pool's write lane, and opening a file for reading while it is being written.

use crate::access::Access;
use crate::changing::steps;
use crate::disk::Disk;
use crate::files::error::Error;
use crate::files::open_file::{Handle, Meta, OpenFile, SharedFd};
use crate::local::Local;
use crate::memory::unwritten;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::{Lane, Pool};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// How [`Local::create`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// O_EXCL: the file must not exist yet. It can be read, too ([`Local::open_output`]).
    New,
    /// Emptied if it exists.
    Truncate,
    /// Writes go to its end (O_APPEND); made if it does not exist.
    Append,
}

/// A file being written. Its last `close` happens in the pool.
#[derive(Clone, Debug)]
pub struct Output {
    file: Arc<SharedFd>,
}

impl Output {
    pub(crate) fn new(fd: OwnedFd, pool: &Pool) -> Output {
        Output {
            file: Arc::new(SharedFd::new(fd, pool)),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        self.file.fd()
    }

    /// The file for a reader, which shares the descriptor. **Waits.**
    pub(crate) fn reader(&self, disk: &Disk) -> Result<(Handle, Meta), Error> {
        let stat = rustix::fs::fstat(self.fd()).map_err(|errno| Error::system("fstat()", errno))?;
        let mount = disk.mounts.learn(self.fd().as_fd());
        Ok((
            Handle::shared(&self.file, mount, None),
            Meta::from_stat(&stat),
        ))
    }

    /// Are both the same output?
    pub(crate) fn is(&self, other: &Output) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Local {
    /// Opens a file to write to, with these permissions if it is made.
    ///
    /// # Errors
    /// [`Error::System`] with `open()`, [`Error::Overflow`].
    pub async fn create(
        &self,
        path: &[u8],
        how: Create,
        mode: u32,
        pool: &Pool,
    ) -> Result<Output, Error> {
        let path: Box<[u8]> = path.into();
        let fd = self
            .write_job(Operation::Create, pool, move || create(&path, how, mode))
            .await?;
        Ok(Output::new(fd, pool))
    }

    /// Writes all of `chunks` at the file's position (its end, with [`Create::Append`]).
    ///
    /// # Errors
    /// [`Error::System`] with `write()` (ENOSPC, EIO, …; a part may have been written), [`Error::Overflow`].
    pub async fn append(
        &self,
        output: &Output,
        chunks: Vec<Bytes>,
        pool: &Pool,
    ) -> Result<(), Error> {
        let file = output.file.clone();
        self.write_job(Operation::Write, pool, move || {
            write_all(file.fd(), &chunks)
        })
        .await
    }

    /// Waits until the file's contents are on the disk (fdatasync).
    ///
    /// # Errors
    /// [`Error::System`] with `fdatasync()`, [`Error::Overflow`].
    pub async fn sync(&self, output: &Output, pool: &Pool) -> Result<(), Error> {
        let file = output.file.clone();
        self.write_job(Operation::Fsync, pool, move || synced(file.fd()))
            .await
    }

    /// Renames a file over another.
    ///
    /// # Errors
    /// [`Error::System`] with `rename()` (EXDEV across mounts), [`Error::Overflow`].
    pub async fn rename(&self, from: &[u8], to: &[u8], pool: &Pool) -> Result<(), Error> {
        let (from, to): (Box<[u8]>, Box<[u8]>) = (from.into(), to.into());
        self.write_job(Operation::Rename, pool, move || {
            renamed(&from, &to).map_err(|errno| Error::system("rename()", errno))
        })
        .await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`Error::System`] with `unlink()`, [`Error::Overflow`].
    pub async fn unlink(&self, path: &[u8], pool: &Pool) -> Result<(), Error> {
        let path: Box<[u8]> = path.into();
        self.write_job(Operation::Unlink, pool, move || {
            unlinked(&path).map_err(|errno| Error::system("unlink()", errno))
        })
        .await
    }

    /// Makes a directory; one that exists is fine.
    ///
    /// # Errors
    /// [`Error::System`] with `mkdir()`, [`Error::Overflow`].
    pub async fn mkdir(&self, path: &[u8], mode: u32, pool: &Pool) -> Result<(), Error> {
        let path: Box<[u8]> = path.into();
        self.write_job(Operation::Other, pool, move || make_directory(&path, mode))
            .await
    }

    /// Opens the file of an output made with [`Create::New`] for reading, also if it has lost its name or another file
    /// has taken it.
    ///
    /// # Errors
    /// [`Error::System`] with the call's name, [`Error::Overflow`].
    pub async fn open_output(
        &self,
        output: &Output,
        access: &Access<'_>,
    ) -> Result<Rc<OpenFile>, Error> {
        let (disk, output) = (self.0.disk.clone(), output.clone());
        let begun = Instant::now();
        let job = access.pool.run(Lane::Read, move || output.reader(&disk));
        match job.await {
            Ok(found) => {
                self.0.counters.offloaded(Operation::Open, begun.elapsed());
                let (handle, meta) = found?;
                Ok(Rc::new(OpenFile::of(handle, meta)))
            }
            Err(overflow) => {
                self.0.counters.overflowed(Operation::Open);
                Err(overflow.into())
            }
        }
    }

    pub(crate) async fn write_job<T, F>(
        &self,
        operation: Operation,
        pool: &Pool,
        work: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, Error> + Send + 'static,
    {
        let begun = Instant::now();
        match pool.run(Lane::Write, work).await {
            Ok(result) => {
                self.0.counters.offloaded(operation, begun.elapsed());
                result
            }
            Err(overflow) => {
                self.0.counters.overflowed(operation);
                Err(overflow.into())
            }
        }
    }
}

/// **Waits.** Makes a directory; one that exists is fine.
pub(crate) fn make_directory(path: &[u8], mode: u32) -> Result<(), Error> {
    let make = || rustix::fs::mkdir(OsStr::from_bytes(path), Mode::from_raw_mode(mode));
    match call_times::timed(Operation::Other, make) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::system("mkdir()", errno)),
    }
}

pub(crate) fn create(path: &[u8], how: Create, mode: u32) -> Result<OwnedFd, Error> {
    let flags = OFlags::CREATE | OFlags::CLOEXEC;
    let flags = flags
        | match how {
            Create::New => OFlags::RDWR | OFlags::EXCL,
            Create::Truncate => OFlags::WRONLY | OFlags::TRUNC,
            Create::Append => OFlags::WRONLY | OFlags::APPEND,
        };
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    let open = || rustix::fs::open(OsStr::from_bytes(path), flags, Mode::from_raw_mode(mode));
    call_times::timed(Operation::Create, open).map_err(|errno| Error::system("open()", errno))
}

/// **Waits.**
pub(crate) fn renamed(from: &[u8], to: &[u8]) -> Result<(), Errno> {
    call_times::timed(Operation::Rename, || {
        rustix::fs::rename(OsStr::from_bytes(from), OsStr::from_bytes(to))
    })
}

/// **Waits.**
pub(crate) fn unlinked(path: &[u8]) -> Result<(), Errno> {
    call_times::timed(Operation::Unlink, || {
        rustix::fs::unlink(OsStr::from_bytes(path))
    })
}

/// **Waits.**
pub(crate) fn synced(fd: &OwnedFd) -> Result<(), Error> {
    let len = rustix::fs::fstat(fd).map_or(0, |stat| Meta::from_stat(&stat).len);
    call_times::timed_on(
        Operation::Fsync,
        fd.as_fd(),
        |()| 0,
        || steps::sync(fd.as_fd(), len).map_err(|errno| Error::system("fdatasync()", errno)),
    )
}

/// Buffers of one writev(2); more are several calls.
const PARTS_MAX: usize = 64;

/// Writes all of `parts`, in as few calls as possible: a call costs a file system more than its bytes.
///
/// While much of the memory waits to be written, its way to the disk begins here, and a full queue of the disk holds
/// this thread up. Otherwise the next who needs a page waits for the disk, and that may be a loop.
pub(crate) fn write_all(fd: &OwnedFd, parts: &[impl AsRef<[u8]>]) -> Result<(), Error> {
    let bytes = parts.iter().map(|part| part.as_ref().len() as u64).sum();
    let len = |(): &()| bytes;
    call_times::timed_on(Operation::Write, fd.as_fd(), len, || {
        write_parts(fd, parts)?;
        if unwritten::wrote(bytes) {
            // What fails is tried again by the kernel.
            let _ = sys::begin_writeback(fd.as_fd(), 0, 0);
        }
        Ok(())
    })
}

fn write_parts(fd: &OwnedFd, parts: &[impl AsRef<[u8]>]) -> Result<(), Error> {
    for parts in parts.chunks(PARTS_MAX) {
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part.as_ref());
        }
        let mut left = &mut slices[..parts.len()];
        // Empty ones are no reason for a call.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match rustix::io::writev(fd.as_fd(), left) {
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("write()", errno)),
            }
        }
    }
    Ok(())
}
