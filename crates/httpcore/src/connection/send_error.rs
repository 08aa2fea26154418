//! The reasons for which sending a response ends early, and their log lines.
//!
//! Invariant: the connection is closed then, since it is not known how much of the response the client has.

use std::io;
use std::rc::Rc;

use disk::OpenFile;
use logs::Level;
use message::BodyError;
use wire::call_failed;

use crate::request::Request;
use crate::request_body;

use super::finish::After;
use crate::connection::finish;

const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// The reason why sending ended early; the connection is closed.
pub(super) enum Stop {
    Client(wire::Error),
    /// The disk of this file failed, or, with [`disk::Error::Socket`], the client did.
    Disk(disk::Error, Rc<OpenFile>),
    Body(BodyError),
    /// The client closed while the response waited for its source.
    Left,
    /// The client left, or the rest of its request is malformed; that is logged.
    Logged,
    /// The client sends or takes nothing for too long; that is logged.
    LoggedTimeout,
}

impl From<wire::Error> for Stop {
    fn from(error: wire::Error) -> Self {
        Self::Client(error)
    }
}

/// Logs why sending ended early, and closes.
pub(super) fn stopped(request: &mut Request, stop: Stop) -> After {
    let mut after = After::Close;
    let is_ours = match &stop {
        Stop::Client(_) | Stop::Left | Stop::Logged | Stop::LoggedTimeout => false,
        Stop::Disk(error, _) => !matches!(error, disk::Error::Socket(_)),
        Stop::Body(_) => true,
    };
    match stop {
        Stop::Client(wire::Error::Timeout) => {
            after = After::TimedOut;
            log_client(request, TIMED_OUT);
        }
        Stop::Disk(disk::Error::Socket(error), _) if error.kind() == io::ErrorKind::TimedOut => {
            after = After::TimedOut;
            log_client(request, TIMED_OUT);
        }
        Stop::Client(wire::Error::Io(error)) => {
            log_client(request, &call_failed("writev", &error));
        }
        Stop::Client(error) => log_client(request, &error.to_string()),
        Stop::Disk(disk::Error::Socket(error), _) => {
            log_client(request, &call_failed("sendfile", &error));
        }
        Stop::Disk(disk::Error::Overflow(overflow), _) => request.log(Level::Error, &|out| {
            out.extend_from_slice(overflow.to_string().as_bytes());
        }),
        Stop::Disk(error, file) => request.log(Level::Alert, &|out| {
            out.extend_from_slice(error.to_string().as_bytes());
            out.extend_from_slice(b" while sending response to client: \"");
            // A cache's file is not where the URI leads.
            out.extend_from_slice(&file.kernel_path());
            out.push(b'"');
        }),
        Stop::Left => request_body::log_left(request),
        Stop::Logged => {}
        Stop::LoggedTimeout => after = After::TimedOut,
        Stop::Body(BodyError::Logged | BodyError::Invalid) => {}
        Stop::Body(error) => request.log(Level::Error, &|out| {
            out.extend_from_slice(error.to_string().as_bytes())
        }),
    }
    if is_ours && !finish::has_told_end(request) {
        return After::Reset;
    }
    after
}

/// Logs that a client does not take its response any further.
fn log_client(request: &Request, text: &str) {
    request.log(Level::Info, &|out| {
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b" while sending response to client");
    });
}
