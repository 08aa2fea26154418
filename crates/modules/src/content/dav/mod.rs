//! `dav_methods`: creates, replaces, copies, moves and removes files and directories (RFC 4918, as far as nginx
//! implements it).
//!
//! All disk work is done in the location's pool, and a file gets its name atomically. `disk_timeout` limits each look at what
//! is there, and no change that has begun: it may yet succeed. Not here: properties and locks
//! (PROPFIND, LOCK), which nginx does not have either. Invariant: no path has a segment `..` after its root.

mod copy_move;
mod delete;
mod put;

use bytes::Bytes;
use config::{Flag, Number, directives};
use disk::{CopyPurpose, Errno, Pool, TreeErrors};
use logs::Level;
use message::escape::Escape;
use message::{Body, HeaderId, Method};

use httpcore::file_mode::Permissions;
use httpcore::files::path::{self, Mapped};
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::{Failure, Response};

use httpcore::files;

config::choice_set! {
    /// `dav_methods`.
    pub struct DavMethods: u32 {
        /// None.
        OFF = "off",
        /// PUT.
        PUT = "put",
        /// DELETE.
        DELETE = "delete",
        /// MKCOL.
        MKCOL = "mkcol",
        /// COPY.
        COPY = "copy",
        /// MOVE.
        MOVE = "move",
    }
}

directives! {
    /// WebDAV.
    pub struct Dav in Location {
        /// Enables methods: PUT, DELETE, MKCOL, COPY, MOVE. A body is written to `client_body_temp_path`, or beside its
        /// destination if that is on another file system, and moved into place when it is complete. A `Date` header
        /// sets the file's time.
        dav_methods: DavMethods = "off", [HTTP | SERVER | LOCATION] 1..;
        /// Creates missing directories of the path of a PUT.
        create_full_put_path: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Refuses DELETE for paths with fewer segments than this.
        min_delete_depth: Number = "0", [HTTP | SERVER | LOCATION] 1;
        /// Sets the permissions of created files and directories: `user`, `group` or `all`, with `r` or `rw`.
        dav_access: Permissions = "user:rw", [HTTP | SERVER | LOCATION] 1..=3;
    }
}

/// Whether the location obeys methods that change files.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Dav>().dav_methods != DavMethods::OFF
}

/// Does what the request's method asks for; `None`: the location does not obey it.
pub async fn make(request: &mut Request) -> Option<Outcome> {
    let allowed = request.location().own::<Dav>().dav_methods;
    if allowed == DavMethods::OFF {
        return None;
    }
    let wanted = match request.method {
        Method::Put => DavMethods::PUT,
        Method::Delete => DavMethods::DELETE,
        Method::Mkcol => DavMethods::MKCOL,
        Method::Copy => DavMethods::COPY,
        Method::Move => DavMethods::MOVE,
        _ => return None,
    };
    if !allowed.contains(wanted) {
        return None;
    }
    // In a box: hardly any request is one of these.
    let done = Box::pin(obey(request, wanted)).await;
    Some(done.unwrap_or_else(|outcome| outcome))
}

async fn obey(request: &mut Request, method: DavMethods) -> Result<Outcome, Outcome> {
    let status = match method {
        DavMethods::PUT => return put::make(request).await,
        DavMethods::DELETE => delete::remove(request).await,
        DavMethods::MKCOL => delete::make_collection(request).await,
        DavMethods::COPY => copy_move::make(request, CopyPurpose::Copy).await,
        _ => copy_move::make(request, CopyPurpose::Move).await,
    };
    match status.map_err(Outcome::Failed)? {
        201 if method == DavMethods::MKCOL => Ok(created(request)),
        status => Ok(empty(status)),
    }
}

/// A 201 that says where.
fn created(request: &Request) -> Outcome {
    let mut response = bare(201);
    response.location = Some(Bytes::from(Escape::Uri.apply(&request.uri)));
    Outcome::Answer(response)
}

fn empty(status: u16) -> Outcome {
    Outcome::Answer(bare(status))
}

fn bare(status: u16) -> Box<Response> {
    let mut response = Response::boxed(status);
    response.content_length = (status != 204).then_some(0);
    response.body = Body::Empty;
    response
}

/// The path of the request's URI.
fn map(request: &Request) -> Result<Mapped, Failure> {
    let mut mapped = Mapped::default();
    path::map(request, &mut mapped)?;
    if leaves_root(&mapped) || mapped.path.contains(&0) {
        request.log(Level::Error, &|out| {
            out.push(b'"');
            out.extend_from_slice(&mapped.path);
            out.extend_from_slice(b"\" leads out of its root");
        });
        return Err(Failure::new(403));
    }
    Ok(mapped)
}

/// Whether the path has a segment `..` after its root. An `alias` without a slash at its end can make one.
fn leaves_root(mapped: &Mapped) -> bool {
    let mut end = 0;
    mapped.path.split(|byte| *byte == b'/').any(|segment| {
        end += segment.len() + 1;
        segment == b".." && end > mapped.root + 1
    })
}

fn pool(request: &Request) -> Result<Pool, Failure> {
    files::pool(request).cloned()
}

/// Refuses a body with 415, for a method that takes none.
fn refuse_body(request: &Request, sentence: &str) -> Result<(), Failure> {
    match request.head.has_body() {
        true => Err(refuse(request, 415, sentence)),
        false => Ok(()),
    }
}

fn refuse(request: &Request, status: u16, sentence: &str) -> Failure {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(sentence.as_bytes())
    });
    Failure::new(status)
}

/// Logs a failed call and returns its failure; `missing` is the status where there is no such path.
fn failure(request: &Request, error: &disk::Error, path: &[u8], missing: u16) -> Failure {
    if let Some(failure) = files::unavailable(request, error, path) {
        return failure;
    }
    let (status, level) = verdict(error.errno(), missing);
    files::log_error(request, level, error, path);
    Failure::new(status)
}

fn verdict(errno: Option<Errno>, missing: u16) -> (u16, Level) {
    match errno {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => (missing, Level::Error),
        Some(Errno::ACCESS | Errno::PERM) => (403, Level::Error),
        Some(Errno::EXIST) => (405, Level::Error),
        Some(Errno::NOSPC) => (507, Level::Crit),
        _ => (500, Level::Crit),
    }
}

/// Logs what went wrong inside a tree.
fn tell(request: &Request, troubles: &TreeErrors) {
    for trouble in &troubles.noted {
        let (_, level) = verdict(Some(trouble.errno), 0);
        let error = disk::Error::System {
            call: trouble.call,
            errno: trouble.errno,
        };
        files::log_error(request, level, &error, &trouble.path);
    }
    let more = troubles.count - troubles.noted.len();
    if more > 0 {
        request.log(Level::Crit, &|out| {
            out.extend_from_slice(format!("{more} more such failures").as_bytes());
        });
    }
}

/// `Depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Zero,
    One,
    Infinity,
    Invalid,
}

fn depth(request: &Request, absent: Depth) -> Depth {
    let Some(value) = request.head.get(HeaderId::Depth) else {
        return absent;
    };
    match value {
        b"0" => Depth::Zero,
        b"1" => Depth::One,
        b"infinity" => Depth::Infinity,
        _ => {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(b"client sent invalid \"Depth\" header: \"");
                out.extend_from_slice(value);
                out.push(b'"');
            });
            Depth::Invalid
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_of_their_root() {
        let leaves = |root: &str, tail: &str| {
            leaves_root(&Mapped {
                path: [root, tail].concat().into_bytes(),
                root: root.len(),
            })
        };
        assert!(!leaves("/a/../b", "/c/d"));
        assert!(!leaves("/a", "/..b/c../..."));
        assert!(!leaves("/a", "../b"));
        assert!(leaves("/a/", "../b"));
        assert!(leaves("/a", "/b/.."));
        assert!(leaves("/a", "/../b"));
        assert!(leaves("/a/.", "./b"));
    }
}
