//! Tells the service manager of the state of the server (sd_notify(3), `Type=notify`).
//!
//! Not here: when. Invariant: without the variable [`VARIABLE`] nothing is sent, and a manager that does not listen
//! changes nothing.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use logs::process_log::{Level, error_log};
use rustix::time::{ClockId, clock_gettime};

/// Names the manager's socket: a path, or behind an `@` an abstract name.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Everything listens, or a reload has ended.
pub(super) fn ready() {
    tell("READY=1");
}

/// A reload begins.
pub(super) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
}

/// The server ends.
pub(super) fn stopping() {
    tell("STOPPING=1");
}

/// Another process goes on as the service's main process.
pub(super) fn main_process(process: u32) {
    tell(&format!("READY=1\nMAINPID={process}"));
}

fn tell(text: &str) {
    let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), text.as_bytes()) {
        let error = wire::errno(&error);
        error_log(
            Level::Notice,
            format_args!("the service manager is not told ({error})"),
        );
    }
}

fn send(name: &[u8], text: &[u8]) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(text, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_or_abstract() {
        let name = format!("freewheel-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let at_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, name) in [
            (at_path, path.display().to_string()),
            (at_name, format!("@{name}")),
        ] {
            send(name.as_bytes(), b"READY=1").unwrap();
            let mut text = [0; 32];
            let length = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1");
        }
        rustix::fs::unlink(&path).unwrap();
        assert!(send(path.display().to_string().as_bytes(), b"READY=1").is_err());
    }
}
