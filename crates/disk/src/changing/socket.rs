//! A listening Unix socket in a directory, for orders to the process that owns the directory.

use crate::files::error::Error;
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

impl Local {
    /// A listening socket (a stream, non-blocking) under a name in a directory; another one that has the name is
    /// deleted first. The path may be longer than a socket's name can be.
    ///
    /// # Errors
    /// [`Error::System`] with the call that failed, [`Error::Overflow`].
    pub async fn listen_unix(
        &self,
        directory: &[u8],
        name: &[u8],
        pool: &Pool,
    ) -> Result<OwnedFd, Error> {
        let (directory, name): (Box<[u8]>, Box<[u8]>) = (directory.into(), name.into());
        let work = move || listen_unix(&directory, &name);
        self.write_job(Operation::Other, pool, work).await
    }
}

/// **Waits.**
#[expect(clippy::disallowed_methods, reason = "runs in a pool")]
fn listen_unix(directory: &[u8], name: &[u8]) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, OsStr::from_bytes(directory), flags, Mode::empty());
    let directory = directory.map_err(|errno| Error::system("open()", errno))?;
    match rustix::fs::unlinkat(&directory, OsStr::from_bytes(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(Error::system("unlink()", errno)),
    }
    // A socket's name has room for 107 bytes (unix(7)), which many a path exceeds.
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let address = SocketAddrUnix::new(OsStr::from_bytes(&path));
    let address = address.map_err(|errno| Error::system("bind()", errno))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(|errno| Error::system("socket()", errno))?;
    bind(&socket, &address).map_err(|errno| Error::system("bind()", errno))?;
    listen(&socket, BACKLOG).map_err(|errno| Error::system("listen()", errno))?;
    Ok(socket)
}
