//! Maps a URI to a path: `root` and `alias`.
//!
//! Pure but for the request's variables. Not here: the directives ([`crate::settings::root`]), symbolic links (`realpath_root`). nginx-drop-in 18 (alias in regex locations).

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use logs::Level;

use crate::Failure;
use crate::request::Request;
use crate::settings::root::Alias;

crate::variables! {
    /// The root directory of the request: the value of `root` or `alias`.
    "document_root" => fresh(document_root);
    /// The file that the request maps to.
    "request_filename" => fresh(filename);
}

/// Bytes reserved for a path's root; a longer root grows the buffer.
const PATH_TYPICAL: usize = 64;
/// Maximum capacity, in bytes, of the buffer that is kept for the next path.
const PATH_KEPT: usize = 4096;

thread_local! {
    /// Buffer for the next path of this loop.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A URI's path: the first bytes are the root.
#[derive(Debug)]
pub struct Mapped {
    /// The whole path.
    pub path: Vec<u8>,
    /// Length in bytes of the part that comes from `root` or `alias`.
    pub root: usize,
}

impl Default for Mapped {
    fn default() -> Self {
        Self {
            path: SPARE.try_with(Cell::take).unwrap_or_default(),
            root: 0,
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.path.capacity() <= PATH_KEPT {
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.path)));
        }
    }
}

impl Mapped {
    /// The whole path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.path))
    }
}

/// Appends the root's (or alias') path.
pub fn root(request: &Request, out: &mut Vec<u8>) {
    let settings = &request.location().settings.root;
    match settings.path.literal() {
        Some(literal) => out.extend_from_slice(literal),
        None => {
            let start = out.len();
            request.evaluate_into(&settings.path, out);
            if out.get(start) != Some(&b'/') {
                let prefix = request.settings().prefix.as_os_str().as_bytes();
                out.splice(start..start, prefix.iter().copied());
            }
        }
    }
}

fn document_root(request: &Request, out: &mut Vec<u8>) -> bool {
    root(request, out);
    true
}

fn filename(request: &Request, out: &mut Vec<u8>) -> bool {
    let mut mapped = Mapped::default();
    let is_mapped = map(request, &mut mapped).is_ok();
    if is_mapped {
        out.extend_from_slice(&mapped.path);
    }
    is_mapped
}

/// The path of the request's URI.
///
/// # Errors
/// 500 if an `alias` cannot be applied because the URI was rewritten.
pub fn map(request: &Request, mapped: &mut Mapped) -> Result<(), Failure> {
    mapped.path.clear();
    mapped.path.reserve(PATH_TYPICAL + request.uri.len());
    let alias = request.location().settings.root.alias;
    if alias.is_some() && !request.uri_origin.is_of_location() {
        request.log(Level::Alert, &|out| {
            out.extend_from_slice(b"\"alias\" cannot be used in location \"");
            out.extend_from_slice(&request.location().name);
            out.extend_from_slice(b"\" where URI was rewritten");
        });
        return Err(Failure::new(500));
    }
    root(request, &mut mapped.path);
    mapped.root = mapped.path.len();
    match alias {
        None => mapped.path.extend_from_slice(&request.uri),
        Some(Alias::Prefix(length)) => mapped
            .path
            .extend_from_slice(&request.uri[length.min(request.uri.len())..]),
        Some(Alias::Whole) if request.add_uri_to_alias => {
            mapped.path.extend_from_slice(&request.uri)
        }
        Some(Alias::Whole) => {}
    }
    Ok(())
}
