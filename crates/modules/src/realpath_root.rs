//! `$realpath_root`: the root directory of a request with symbolic links resolved.
//!
//! Variables cannot wait for a disk, so the links are resolved by a step of their own: before an instruction of the rewriting that uses the
//! variable, and once the rewriting has ended. Not earlier: to compose the root is to ask for values that are found once.
//! Invariant: only configurations that use the variable pay for it.

use std::rc::Rc;

use logs::Level;

use httpcore::files;
use httpcore::files::path;
use httpcore::request::Request;
use httpcore::request::state::State;
use httpcore::settings::root::directory;

httpcore::variables! {
    /// `$document_root` with symbolic links resolved.
    "realpath_root" => fresh(append);
}

/// The value of `$realpath_root` for one root.
#[derive(Debug)]
struct Resolved {
    root: Vec<u8>,
    found: Result<Vec<u8>, disk::Error>,
}

impl State for Resolved {}

/// Determines `$realpath_root` at the request's location, if the configuration uses it.
pub async fn run(request: &mut Request) {
    if request.settings().realpath_variables.is_empty() {
        return;
    }
    let mut path = Vec::new();
    path::root(request, &mut path);
    if known(request, &path).is_some() {
        return;
    }
    let disk = &request.client.loop_.disk;
    let found = match files::pool(request) {
        Ok(pool) => {
            let access = files::reading(request.location(), pool);
            // Boxed: it is large, and hardly any configuration needs it.
            Box::pin(files::within(request, || {
                disk.real_path(directory(&path), &access)
            }))
            .await
        }
        // The failure is in the log already.
        Err(_) => return,
    };
    request.states.put(Rc::new(Resolved { root: path, found }));
}

/// Appends `$realpath_root`; `false` if it could not be determined.
fn append(request: &Request, out: &mut Vec<u8>) -> bool {
    let mut path = Vec::new();
    path::root(request, &mut path);
    match known(request, &path) {
        Some(Ok(real)) => {
            out.extend_from_slice(real);
            true
        }
        Some(Err(error)) => {
            files::log_error(request, Level::Crit, error, &path);
            false
        }
        None => false,
    }
}

/// The result for this root, if it was resolved.
fn known<'a>(request: &'a Request, root: &[u8]) -> Option<&'a Result<Vec<u8>, disk::Error>> {
    let known: &Resolved = request.states.get()?;
    (known.root == root).then_some(&known.found)
}
