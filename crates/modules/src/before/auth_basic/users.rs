//! Looks up a user in a password file.
//!
//! The disk layer keeps the contents of a small file and checks them again at each use; a large file is read piece by
//! piece. Invariant: a loop searches at most [`disk::READ_MAX`] bytes before it yields.

use bytes::Bytes;
use disk::{Access, Errno, FileKind, READ_MAX};
use logs::Level;

use httpcore::Failure;
use httpcore::files;
use httpcore::request::Request;

/// Maximum bytes of a line; a longer line names no user.
const LINE_MAX: usize = 64 << 10;

/// The stored form of a user's password; `None`: the file does not know the user.
///
/// # Errors
/// 403 where there is no file, 500 where it cannot be read, 503 where the pool is full or the disk is late.
pub(super) async fn find(
    request: &Request,
    user: &[u8],
    path: &[u8],
    access: &Access<'_>,
) -> Result<Option<Bytes>, Failure> {
    let disk = &request.client.loop_.disk;
    let failed = |error: disk::Error| failure(request, &error, path);
    let opened = files::within(request, || disk.open(path, access)).await;
    let file = opened.map_err(failed)?;
    if file.meta().kind == FileKind::Directory {
        let errno = Errno::ISDIR;
        return Err(failed(disk::Error::System {
            call: "read()",
            errno,
        }));
    }
    let mut search = Search::new(user);
    let mut offset = 0;
    while offset < file.meta().len {
        if offset > 0 {
            tokio::task::yield_now().await;
        }
        let len = usize::try_from(file.meta().len - offset).unwrap_or(READ_MAX);
        let read = files::within(request, || disk.read(&file, offset, len, access)).await;
        let piece = read.map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        offset += piece.len() as u64;
        if let Some(found) = search.feed(&piece) {
            return Ok(Some(found));
        }
    }
    Ok(search.end())
}

fn failure(request: &Request, error: &disk::Error, path: &[u8]) -> Failure {
    if let Some(failure) = files::unavailable(request, error, path) {
        return failure;
    }
    let (status, level) = match error.errno() {
        Some(Errno::NOENT) => (403, Level::Error),
        _ => (500, Level::Crit),
    };
    files::log_error(request, level, error, path);
    Failure::new(status)
}

/// A search for one user's line.
struct Search<'a> {
    user: &'a [u8],
    /// The beginning of a line whose end has not been read yet.
    begun: Vec<u8>,
    /// Whether the rest of a line is being skipped, since the line is too long.
    is_passing: bool,
}

impl<'a> Search<'a> {
    fn new(user: &'a [u8]) -> Self {
        Self {
            user,
            begun: Vec::new(),
            is_passing: false,
        }
    }

    /// Searches the next bytes of the file.
    fn feed(&mut self, piece: &Bytes) -> Option<Bytes> {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            let line = piece.slice(start..end);
            start = end + 1;
            let line = match self.begun.is_empty() {
                true => line,
                false => [&std::mem::take(&mut self.begun)[..], &line]
                    .concat()
                    .into(),
            };
            let is_rest = std::mem::replace(&mut self.is_passing, false);
            if let Some(found) = stored(&line, self.user).filter(|_| !is_rest) {
                return Some(found);
            }
        }
        self.begun.extend_from_slice(&piece[start..]);
        if self.begun.len() > LINE_MAX {
            self.begun.clear();
            self.is_passing = true;
        }
        None
    }

    /// Ends the search: the last line need not end in a newline.
    fn end(self) -> Option<Bytes> {
        let found = stored(&self.begun.into(), self.user);
        found.filter(|_| !self.is_passing)
    }
}

/// The stored password in a line, if the line is the user's. Lines that begin with `#` are comments.
fn stored(line: &Bytes, user: &[u8]) -> Option<Bytes> {
    let rest = line.strip_prefix(user)?.strip_prefix(b":")?;
    if line.starts_with(b"#") || line.starts_with(b"\r") {
        return None;
    }
    let end = memchr::memchr2(b':', b'\r', rest).unwrap_or(rest.len());
    Some(line.slice_ref(&rest[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pieces: &[&[u8]], user: &str) -> Option<String> {
        let mut search = Search::new(user.as_bytes());
        let mut pieces = pieces.iter();
        let found = pieces.find_map(|piece| search.feed(&Bytes::copy_from_slice(piece)));
        let found = found.or_else(|| search.end());
        found.map(|found| String::from_utf8_lossy(&found).into_owned())
    }

    #[test]
    fn lines_name_users() {
        let file = b"#comment:no\n\nab:1\na:2:rest\r\nc:3\r\n\r\n:empty\nlast:4";
        for (user, stored) in [
            ("a", Some("2")),
            ("ab", Some("1")),
            ("c", Some("3")),
            ("last", Some("4")),
            ("b", None),
            ("A", None),
            ("#comment", None),
            ("rest", None),
        ] {
            assert_eq!(find(&[file], user).as_deref(), stored, "{user}");
            let bytes: Vec<&[u8]> = file.chunks(1).collect();
            assert_eq!(
                find(&bytes, user).as_deref(),
                stored,
                "{user}, byte by byte"
            );
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_about_nobody() {
        let long = [&b"a:"[..], &[b'x'; LINE_MAX]].concat();
        assert_eq!(find(&[&long], "a"), None);
        assert_eq!(find(&[&long, b"\na:1\n"], "a").as_deref(), Some("1"));
        assert_eq!(find(&[&long, b"a:1\nb:2"], "a"), None);
        assert_eq!(find(&[&long, b"a:1\nb:2"], "b").as_deref(), Some("2"));
    }
}
