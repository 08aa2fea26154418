//! The format of a line of the error log: `YYYY/MM/DD hh:mm:ss [level] PID#TID: *CONN text, client: …`.
//!
//! Pure but for the process and thread ids. Invariant: a line ends in one newline and has at most [`ERROR_LINE_BYTES`]
//! bytes.

use super::level::Level;
use crate::wall_clock::{Clock, TIME_ERROR_BYTES};

/// The longest line of the error log, newline included (nginx's bound).
pub const ERROR_LINE_BYTES: usize = 2048;

/// Maximum bytes of a text that the system's error follows: a longer one is cut, so that the error stays in the line, behind
/// its head (as in nginx).
const BEFORE_OS_ERROR_BYTES: usize = ERROR_LINE_BYTES - 128;

/// The numbers of the process and the thread that writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pid: u32,
    tid: i32,
}

impl Process {
    /// Of the calling thread.
    pub(crate) fn current() -> Self {
        Self {
            pid: std::process::id(),
            tid: rustix::thread::gettid().as_raw_nonzero().get(),
        }
    }

    /// Appends a whole line, newline included; `write` appends the text and its context.
    pub(crate) fn error_line(
        self,
        clock: &Clock,
        level: Level,
        connection: Option<u64>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(&clock.time_error());
        out.extend_from_slice(b" [");
        out.extend_from_slice(level.name().as_bytes());
        out.extend_from_slice(b"] ");
        out.extend_from_slice(number.format(self.pid).as_bytes());
        out.push(b'#');
        out.extend_from_slice(number.format(self.tid).as_bytes());
        out.extend_from_slice(b": ");
        if let Some(connection) = connection {
            out.push(b'*');
            out.extend_from_slice(number.format(connection).as_bytes());
            out.push(b' ');
        }
        write(out);
        out.truncate(start + ERROR_LINE_BYTES - 1);
        out.push(b'\n');
    }
}

/// The parts of a line that [`Process::error_line`] made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The process, in digits.
    pub pid: &'a [u8],
    /// The thread, in digits.
    pub tid: &'a [u8],
    /// The connection, in digits.
    pub connection: Option<&'a [u8]>,
    /// The text, with its context, as far as the line has room.
    pub text: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Those of a line of this level.
    pub(crate) fn of(line: &'a [u8], level: Level) -> Self {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let head = TIME_ERROR_BYTES + b" [] ".len() + level.name().len();
        let rest = line.get(head..).unwrap_or_default();
        let (pid, rest) = number(rest, b"#");
        let (tid, rest) = number(rest, b": ");
        let (connection, text) = match rest.strip_prefix(b"*") {
            Some(rest) => {
                let (connection, text) = number(rest, b" ");
                (Some(connection), text)
            }
            None => (None, rest),
        };
        Self {
            pid,
            tid,
            connection,
            text,
        }
    }
}

/// The digits that a text begins with, and the text behind them and `end`.
fn number<'a>(text: &'a [u8], end: &[u8]) -> (&'a [u8], &'a [u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    (digits, rest.strip_prefix(end).unwrap_or(rest))
}

/// Appends ` (2: No such file or directory)`, as nginx ends what the system refused. A text in `out` that leaves no room for
/// it in a line is cut.
pub fn append_os_error(out: &mut Vec<u8>, error: &std::io::Error) {
    if out.len() > BEFORE_OS_ERROR_BYTES {
        out.truncate(BEFORE_OS_ERROR_BYTES);
        out.extend_from_slice(b"...");
    }
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            out.extend_from_slice(b" (");
            out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
            out.extend_from_slice(b": ");
            // std puts the number behind the system's words.
            let words = text
                .rfind(" (os error")
                .map_or(text.as_str(), |at| &text[..at]);
            out.extend_from_slice(words.as_bytes());
        }
        None => {
            out.extend_from_slice(b" (");
            out.extend_from_slice(text.as_bytes());
        }
    }
    out.push(b')');
}

/// Appends `open() "PATH" failed (2: No such file or directory)`.
pub fn append_failed(out: &mut Vec<u8>, call: &str, path: &[u8], error: &std::io::Error) {
    out.extend_from_slice(call.as_bytes());
    out.extend_from_slice(b"() \"");
    out.extend_from_slice(path);
    out.extend_from_slice(b"\" failed");
    append_os_error(out, error);
}

/// What a line says about the request that it is about; absent parts are left out.
#[derive(Debug, Default, Clone, Copy)]
pub struct ErrorContext<'a> {
    /// What was being done: `reading client request line`; said as ` while …`.
    pub action: Option<&'a [u8]>,
    /// The client's address without its port.
    pub client: Option<&'a [u8]>,
    /// The server's first name, or the listening address while there is no request.
    pub server: Option<&'a [u8]>,
    /// The request line as it came.
    pub request: Option<&'a [u8]>,
    /// The URI of the sub-request, when the line is about one.
    pub subrequest: Option<&'a [u8]>,
    /// `http://127.0.0.1:8081/uri`.
    pub upstream: Option<&'a [u8]>,
    /// The Host field.
    pub host: Option<&'a [u8]>,
    /// The Referer field.
    pub referrer: Option<&'a [u8]>,
}

impl ErrorContext<'_> {
    /// Appends the parts that there are, in nginx's order.
    pub fn append(&self, out: &mut Vec<u8>) {
        if let Some(action) = self.action {
            out.extend_from_slice(b" while ");
            out.extend_from_slice(action);
        }
        for (name, value) in [(", client: ", self.client), (", server: ", self.server)] {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(value);
            }
        }
        for (name, value) in [
            (", request: \"", self.request),
            (", subrequest: \"", self.subrequest),
            (", upstream: \"", self.upstream),
            (", host: \"", self.host),
            (", referrer: \"", self.referrer),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(value);
                out.push(b'"');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_line(connection: Option<u64>, write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        let process = Process { pid: 12, tid: 34 };
        process.error_line(&Clock::new(), Level::Error, connection, &mut out, write);
        let line = String::from_utf8(out).unwrap();
        line[crate::wall_clock::TIME_ERROR_BYTES..].to_owned()
    }

    #[test]
    fn a_line_has_nginx_s_form() {
        let line = error_line(Some(7), |out| {
            append_failed(
                out,
                "open",
                b"/srv/x",
                &std::io::Error::from_raw_os_error(libc::ENOENT),
            );
            let context = ErrorContext {
                client: Some(b"127.0.0.1"),
                server: Some(b"localhost"),
                request: Some(b"GET /x HTTP/1.0"),
                upstream: Some(b"http://127.0.0.1:81/x"),
                host: Some(b"h"),
                referrer: Some(b"r"),
                ..ErrorContext::default()
            };
            context.append(out);
        });
        assert_eq!(
            line,
            " [error] 12#34: *7 open() \"/srv/x\" failed (2: No such file or directory), client: 127.0.0.1, \
             server: localhost, request: \"GET /x HTTP/1.0\", upstream: \"http://127.0.0.1:81/x\", host: \"h\", \
             referrer: \"r\"\n"
        );
        let action = ErrorContext {
            action: Some(b"waiting for request"),
            ..ErrorContext::default()
        };
        let line = error_line(None, |out| {
            out.extend_from_slice(b"client timed out");
            append_os_error(out, &std::io::Error::from_raw_os_error(libc::ETIMEDOUT));
            action.append(out);
        });
        assert_eq!(
            line,
            " [error] 12#34: client timed out (110: Connection timed out) while waiting for request\n"
        );
    }

    #[test]
    fn a_line_has_its_parts() {
        let mut out = Vec::new();
        let process = Process { pid: 12, tid: 34 };
        let write = |out: &mut Vec<u8>| out.extend_from_slice(b"*9 text");
        process.error_line(&Clock::new(), Level::Warn, Some(7), &mut out, write);
        let parts = Parts::of(&out, Level::Warn);
        assert_eq!((parts.pid, parts.tid), (&b"12"[..], &b"34"[..]));
        assert_eq!(
            (parts.connection, parts.text),
            (Some(&b"7"[..]), &b"*9 text"[..])
        );
    }

    #[test]
    fn a_text_that_is_too_long_leaves_room_for_the_system_s_error() {
        let error = std::io::Error::from_raw_os_error(libc::ENAMETOOLONG);
        let with_path = |out: &mut Vec<u8>| append_failed(out, "open", &[b'x'; 4000], &error);
        let mut complaint = Vec::new();
        with_path(&mut complaint);
        for line in [
            error_line(Some(7), with_path),
            error_line(Some(7), |out| out.extend_from_slice(&complaint)),
        ] {
            assert!(
                line.ends_with("xxx... (36: File name too long)\n"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_line_is_cut_at_its_bound() {
        let line = error_line(None, |out| out.resize(100_000, b'x'));
        assert_eq!(
            line.len() + crate::wall_clock::TIME_ERROR_BYTES,
            ERROR_LINE_BYTES
        );
        assert!(line.ends_with("x\n"));
    }
}
