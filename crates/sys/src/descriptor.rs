//! Descriptors that came into this process by number: inherited over exec, or named in the environment.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// The descriptors already adopted, so that no number can be owned twice. At most one entry per descriptor.
static ADOPTED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Takes ownership of the open descriptor with this number and sets FD_CLOEXEC on it.
///
/// # Errors
/// EBADF if no such descriptor is open, or if it has been adopted before, or is one of 0, 1, 2 (which std owns).
pub fn adopt_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    let bad = || io::Error::from_raw_os_error(libc::EBADF);
    if number <= 2 {
        return Err(bad());
    }
    let mut adopted = ADOPTED.lock().map_err(|_| bad())?;
    if adopted.contains(&number) {
        return Err(bad());
    }
    // SAFETY: fcntl with F_SETFD touches no memory; a number that is not open gives EBADF.
    crate::checked(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    adopted.push(number);
    // SAFETY: the descriptor is open (fcntl succeeded) and not owned through this function before (ADOPTED).
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Adopts the descriptor whose number stands in the environment variable `name`; None if it is not set.
///
/// # Errors
/// EINVAL if the variable is no number, else as [`adopt_descriptor`].
pub fn inherited_descriptor(name: &str) -> Option<io::Result<OwnedFd>> {
    let text = std::env::var_os(name)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    Some(match number {
        Some(number) => adopt_descriptor(number),
        None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    })
}
