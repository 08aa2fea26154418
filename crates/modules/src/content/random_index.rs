//! `random_index`: serves a random file of the requested directory.
//!
//! The directory is read in the pool. Not here: serving the file, to which the request is redirected internally.

use config::{Flag, directives};
use disk::{Errno, FileNames};
use message::Method;

use httpcore::Failure;
use httpcore::files::path::{self, Mapped};
use httpcore::outcome::{Outcome, Target};
use httpcore::request::Request;

use super::autoindex;
use httpcore::files;

directives! {
    /// Random index files.
    pub struct RandomIndex in Location {
        /// Serves a random file of a directory, before `index` is considered. Files whose names begin with a dot are
        /// left out.
        random_index: Flag = "off", [LOCATION] FLAG;
    }
}

/// Whether a random file is wanted.
#[must_use]
pub fn is_on(request: &Request) -> bool {
    request.location().own::<RandomIndex>().random_index
        && matches!(request.method, Method::Get | Method::Head | Method::Post)
}

/// Redirects a request for a directory to one of its files; `None` if it has none.
pub async fn make(request: &Request) -> Option<Outcome> {
    match choose_one(request).await {
        Ok(name) => {
            let uri = [&request.uri[..], &name?].concat();
            Some(Outcome::Redirect(Target::Uri(
                uri.into(),
                request.args.clone().unwrap_or_default(),
            )))
        }
        Err(failure) => Some(Outcome::Failed(failure)),
    }
}

async fn choose_one(request: &Request) -> Result<Option<Box<[u8]>>, Failure> {
    let mut mapped = Mapped::default();
    path::map(request, &mut mapped)?;
    if mapped.path.len() > 1 && mapped.path.ends_with(b"/") {
        mapped.path.pop();
    }
    let access = files::access(request, &mapped.path)?;
    let disk = &request.client.loop_.disk;
    let random = u128::from_ne_bytes(request.client.loop_.random_16());
    // There too, since letting go of many names takes a while.
    let choose = move |found| choose(found, random);
    let chosen = files::within(request, || disk.files_shown(&mapped.path, &access, choose));
    let chosen = chosen.await;
    let chosen = chosen.map_err(|error| autoindex::failure(request, &error, &mapped.path))?;
    chosen.map_err(|(name, errno)| {
        autoindex::log_left_out(request, &mapped.path, &name, errno);
        Failure::new(500)
    })
}

/// The name of an entry that cannot be looked at, and why.
type Unseen = (Box<[u8]>, Errno);

/// The file for a random number; `None`: there is none.
///
/// # Errors
/// The entry that cannot be looked at.
fn choose(found: FileNames, random: u128) -> Result<Option<Box<[u8]>>, Unseen> {
    let FileNames { mut names, failed } = found;
    if let Some(failed) = failed {
        return Err(failed);
    }
    if names.is_empty() {
        return Ok(None);
    }
    // 128 bits: how much more often the first ones come does not show.
    let at = usize::try_from(random % names.len() as u128).unwrap_or(0);
    Ok(Some(names.swap_remove(at)))
}
