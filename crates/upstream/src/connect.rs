//! Opening a connection to a peer.
//!
//! Invariant: the loop resolves no path. connect(2) on a unix socket looks its path up in the file system and could
//! wait for a disk. So the disk layer opens the socket's path (O_PATH: from memory, else in a pool), and the loop
//! connects to `/proc/self/fd/N`, which is always in memory. nginx connects to the path on its loop.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use disk::{Access, Pool};
use runtime::Loop;
use runtime::listen::Address;
use wire::UpstreamConnection;
use wire::connect::{ConnectError, ConnectOptions, ConnectTo};

/// Pause before another try, after descriptors had run out and some were closed.
const TURN: Duration = Duration::from_millis(1);

/// Connects to a peer, in at most `timeout` (`proxy_connect_timeout`). `pool` is the thread pool that looks up a unix
/// socket's path when that is not in memory.
///
/// # Errors
/// The peer cannot be reached, or not in time; there is no descriptor for it, although what idles was closed; with a unix
/// socket also when the pool is full. The peer is not to blame for the latter two ([`ConnectError::Local`]).
pub async fn connect(
    address: &Address,
    options: &ConnectOptions,
    timeout: Duration,
    pool: &Pool,
    loop_: &Rc<Loop>,
) -> Result<UpstreamConnection, ConnectError> {
    match connect_once(address, options, timeout, pool, loop_).await {
        Err(error) if error.lacks_descriptor() && loop_.give_descriptors() => {
            // A connection that was told to close needs a turn.
            loop_.wire.wheel.sleep(TURN).await;
            connect_once(address, options, timeout, pool, loop_).await
        }
        outcome => outcome,
    }
}

async fn connect_once(
    address: &Address,
    options: &ConnectOptions,
    timeout: Duration,
    pool: &Pool,
    loop_: &Rc<Loop>,
) -> Result<UpstreamConnection, ConnectError> {
    match address {
        Address::Inet(inet) => {
            wire::connect::connect(ConnectTo::Inet(*inet), options, timeout, &loop_.wire).await
        }
        Address::Unix(path) => {
            // Boxed: rare, and its state should not be in every request.
            Box::pin(connect_to_path(path, options, timeout, pool, loop_)).await
        }
    }
}

async fn connect_to_path(
    path: &Path,
    options: &ConnectOptions,
    timeout: Duration,
    pool: &Pool,
    loop_: &Rc<Loop>,
) -> Result<UpstreamConnection, ConnectError> {
    let absolute = match path.is_absolute() {
        true => path.to_owned(),
        false => Path::new("/proc/self/cwd").join(path),
    };
    let begun_ms = wire::loop_clock::monotonic_ms();
    let access = Access::new(pool);
    let opening = loop_
        .disk
        .open_path(absolute.as_os_str().as_bytes(), &access);
    let mut timer = loop_.wire.wheel.timer();
    let opened = timer.guard(timeout, opening).await;
    let opened = opened.map_err(|_| ConnectError::Timeout)?;
    let file = opened.map_err(unopened)?;
    let at = PathBuf::from(format!("/proc/self/fd/{}", file.number()));
    let spent = Duration::from_millis(wire::loop_clock::monotonic_ms().saturating_sub(begun_ms));
    let left = timeout.saturating_sub(spent);
    wire::connect::connect(ConnectTo::Unix(&at), options, left, &loop_.wire).await
}

/// The error of a path: the kernel's is what connect(2) would have reported, and the peer's, unless this process lacks
/// something. A pool that is full is no fault of the peer's.
fn unopened(error: disk::Error) -> ConnectError {
    match error {
        disk::Error::System { call, errno } => ConnectError::of_call(call, errno.into()),
        error => ConnectError::Local {
            call: "open()",
            error: io::Error::other(error),
        },
    }
}
