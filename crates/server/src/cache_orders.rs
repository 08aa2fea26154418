//! Asking the server that owns a cache's directory, over its control socket (`proxy::caching::caches::control`).
#![expect(
    clippy::disallowed_methods,
    reason = "for commands: no loop runs in their process"
)]

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cache::JOURNAL_FOLDER;
use proxy::caching::caches::control::{Answer, NAME, Order, PROGRESS};

/// Maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Connects to the server that owns a directory. None: none listens.
///
/// # Errors
/// The directory is no cache's, or the socket may not be used.
pub(crate) fn connect(directory: &Path) -> std::io::Result<Option<UnixStream>> {
    let folder = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_PATH)
        .open(directory.join(JOURNAL_FOLDER))?;
    // A socket's name has room for 107 bytes, which many a path exceeds.
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        // The server has ended.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends an order and takes the answer; None: it is none.
///
/// # Errors
/// The socket fails, or there is neither an answer nor progress for so long.
pub(crate) fn ask(
    mut stream: UnixStream,
    order: &Order,
    patience: Duration,
) -> std::io::Result<Option<Answer>> {
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(order.line().as_bytes())?;
    let mut from = BufReader::new(stream);
    loop {
        let mut line = String::new();
        (&mut from).take(ANSWER_BYTES_MAX).read_line(&mut line)?;
        if !line.starts_with(PROGRESS) {
            return Ok(Answer::parse(&line));
        }
    }
}
