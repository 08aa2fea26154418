//! `autoindex`: lists a directory that has no index file. nginx-drop-in 21.

pub(crate) mod listing;

use std::sync::LazyLock;

use bytes::Bytes;
use config::{Flag, directives};
use disk::{Errno, FileKind, StatErrors};
use logs::Level;
use message::{Body, Method, uri};

use httpcore::files::path::{self, Mapped};
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::{Failure, Response};

use super::large_body;
use crate::turns::Turns;
use httpcore::files;
use listing::{Entry, Html, Kind};

/// Maximum number of bytes of a JSONP callback's name.
pub const CALLBACK_MAX: usize = 128;

/// The turns of directories that are listed where memory has no room for all. With a budget of 4 GiB it has, and none waits: not
/// for one on a disk that stands.
static LISTINGS: LazyLock<Turns> = LazyLock::new(|| {
    Turns::new(
        LISTINGS_MAX,
        MEMORY_SHARE,
        "too many directories wait to be listed",
    )
});
/// Maximum number of them at once.
const LISTINGS_MAX: usize = 32;
/// Listings that are being made take at most one part in this many of the budget.
const MEMORY_SHARE: u64 = 4;
/// Bytes of a listing of 100 000 entries while it is made: the entries, and the page. (Measured.)
const LISTING_BYTES: usize = 32 << 20;

config::choices! {
    /// How a listing is written.
    pub enum Format {
        /// HTML.
        Html = "html",
        /// XML.
        Xml = "xml",
        /// JSON.
        Json = "json",
        /// JSON in a call of the function named by the argument `callback`.
        Jsonp = "jsonp",
    }
}

directives! {
    /// Directory listings.
    pub struct Autoindex in Location {
        /// Lists directories that have no index file. The directory is read in the thread pool.
        autoindex: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the format of a listing.
        autoindex_format: Format = "html", [HTTP | SERVER | LOCATION] 1;
        /// Shows times in HTML listings in local time instead of UTC.
        autoindex_localtime: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Shows sizes in HTML listings in bytes instead of rounded to K, M and G.
        autoindex_exact_size: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}

/// Finds the charset that pages declare; `None`: none.
pub type CharsetOf = fn(&Request) -> Option<Bytes>;

/// Lists the directory of the request's URI; `None` where listings are off.
pub async fn make(request: &mut Request, charset: CharsetOf) -> Option<Outcome> {
    let is_on = request.location().own::<Autoindex>().autoindex;
    if !is_on || !matches!(request.method, Method::Get | Method::Head) {
        return None;
    }
    // Its future would make that of each request larger.
    Some(match Box::pin(list(request, charset)).await {
        Ok(response) => Outcome::Answer(Box::new(response)),
        Err(failure) => Outcome::Failed(failure),
    })
}

async fn list(request: &Request, charset: CharsetOf) -> Result<Response, Failure> {
    let settings = request.location().own::<Autoindex>();
    let callback = match settings.autoindex_format {
        Format::Jsonp => callback(request)?,
        _ => None,
    };
    let mut mapped = Mapped::default();
    path::map(request, &mut mapped)?;
    if mapped.path.len() > 1 && mapped.path.ends_with(b"/") {
        mapped.path.pop();
    }
    let access = files::access(request, &mapped.path)?;
    let format = settings.autoindex_format;
    let (exact_size, is_local) = (settings.autoindex_exact_size, settings.autoindex_localtime);
    let utc_offset = if is_local {
        i64::from(request.client.loop_.feed.clock().utc_offset())
    } else {
        0
    };
    let uri = request.uri.clone();
    let is_call = callback.is_some();
    let utf8 = charset(request).is_some_and(|name| name.eq_ignore_ascii_case(b"utf-8"));
    let turn = match LISTINGS.all_have_room(LISTING_BYTES) {
        true => None,
        false => Some(LISTINGS.take(request, LISTING_BYTES).await?),
    };
    let write = move |found: disk::Listing| {
        // A request that is given up meanwhile makes no room for another listing.
        let _turn = turn;
        let mut entries: Vec<Entry> = found.entries.into_iter().map(entry).collect();
        listing::sort(&mut entries);
        let page = match format {
            Format::Html => Html {
                uri: &uri,
                utf8,
                exact_size,
                utc_offset,
            }
            .page(&entries),
            Format::Xml => listing::xml(&entries),
            Format::Json | Format::Jsonp => listing::json(&entries, callback.as_deref()),
        };
        (page, found.failed)
    };
    let disk = &request.client.loop_.disk;
    let made = files::within(request, || disk.readdir_shown(&mapped.path, &access, write));
    let made = made.await;
    let (page, failed) = made.map_err(|error| failure(request, &error, &mapped.path))?;
    tell(request, &mapped.path, &failed)?;
    let (media_type, charset) = match format {
        Format::Html => ("text/html", ""),
        Format::Xml => ("text/xml", "utf-8"),
        Format::Jsonp if is_call => ("application/javascript", ""),
        Format::Json | Format::Jsonp => ("application/json", ""),
    };
    let mut response = Response::text(200, media_type, Vec::new());
    response.body = match page.len() <= large_body::PIECE {
        true => Body::bytes(page),
        false => Body::chunks(large_body::in_pieces(page, access.pool)),
    };
    response.charset = charset.into();
    response.names_type = true;
    // nginx sends the head before it reads the directory, so it never announces the length.
    response.content_length = None;
    response.conditional = true;
    Ok(response)
}

/// Logs the entries that are left out of a listing.
///
/// # Errors
/// 500 for one that is left out for another reason than its permissions.
fn tell(request: &Request, path: &[u8], failed: &StatErrors) -> Result<(), Failure> {
    for (name, errno) in &failed.noted {
        log_left_out(request, path, name, *errno);
        if *errno != Errno::ACCESS {
            return Err(Failure::new(500));
        }
    }
    let more = failed.count - failed.noted.len();
    if more > 0 {
        request.log(Level::Crit, &|out| {
            out.extend_from_slice(format!("{more} more such failures").as_bytes());
        });
    }
    match failed.has_others {
        true => Err(Failure::new(500)),
        false => Ok(()),
    }
}

/// Logs that an entry of a directory cannot be looked at.
pub(super) fn log_left_out(request: &Request, path: &[u8], name: &[u8], errno: Errno) {
    let error = disk::Error::System {
        call: "stat()",
        errno,
    };
    let path = [path, b"/", name].concat();
    files::log_error(request, Level::Crit, &error, &path);
}

fn entry(entry: disk::DirEntry) -> Entry {
    let kind = match entry.meta.kind {
        FileKind::Directory => Kind::Directory,
        FileKind::File => Kind::File,
        FileKind::Other => Kind::Other,
    };
    Entry {
        name: entry.name.into_vec(),
        kind,
        mtime: entry.meta.mtime,
        size: entry.meta.len,
    }
}

/// The argument `callback`, if it is the name of a function.
fn callback(request: &Request) -> Result<Option<Bytes>, Failure> {
    let Some(name) = uri::arg(request.args(), b"callback").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let is_name = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_' || *c == b'.';
    if name.len() > CALLBACK_MAX || !name.iter().all(is_name) {
        let what = if name.len() > CALLBACK_MAX {
            "too long"
        } else {
            "invalid"
        };
        request.log(Level::Info, &|out| {
            out.extend_from_slice(format!("client sent {what} callback name: \"").as_bytes());
            out.extend_from_slice(name);
            out.push(b'"');
        });
        return Err(Failure::new(400));
    }
    Ok(Some(Bytes::copy_from_slice(name)))
}

/// The status and the log line for an error of reading a directory.
pub fn failure(request: &Request, error: &disk::Error, path: &[u8]) -> Failure {
    if let Some(failure) = files::unavailable(request, error, path) {
        return failure;
    }
    let (status, level) = match error.errno() {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => (404, Level::Error),
        Some(Errno::ACCESS) => (403, Level::Error),
        _ => (500, Level::Crit),
    };
    files::log_error(request, level, error, path);
    Failure::new(status)
}
