//! PUT: the body becomes a file.

use bytes::Bytes;
use disk::{Errno, PutOptions, PutOutcome};
use logs::Level;
use message::{HeaderId, date};

use crate::content::dav::Dav;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body;

use httpcore::files;

/// Puts the request's body at the path of its URI.
pub(super) async fn make(request: &mut Request) -> Result<Outcome, Outcome> {
    if request.uri.ends_with(b"/") {
        let refused = super::refuse(request, 409, "cannot PUT to a collection");
        return Err(Outcome::Failed(refused));
    }
    if request.head.get(HeaderId::ContentRange).is_some() {
        let refused = super::refuse(request, 501, "PUT with range is unsupported");
        return Err(Outcome::Failed(refused));
    }
    let path = super::map(request).map_err(Outcome::Failed)?;
    let path = Bytes::copy_from_slice(&path.path);
    let pool = super::pool(request).map_err(Outcome::Failed)?;
    let disk = request.client.loop_.disk.clone();
    let location = request.location();
    let place = location
        .settings
        .client_body
        .client_body_temp_path
        .place(&request.settings().prefix);
    let dav = location.own::<Dav>();
    let putting = PutOptions {
        mode: Some(dav.dav_access.of_files()),
        mtime: request.head.get(HeaderId::Date).and_then(date::parse),
        directory_mode: dav
            .create_full_put_path
            .then_some(dav.dav_access.of_directories()),
    };
    let begun = files::within(request, || disk.begin_for(&path, &place, &pool)).await;
    let file = match begun {
        Ok(file) => file,
        Err(error) => return Err(Outcome::Failed(refused(request, &error, &place.directory))),
    };
    request_body::write_to(request, &file, &pool).await?;
    let temporary = file.path().to_vec();
    match disk.put(file, &path, putting, &pool).await {
        Ok(PutOutcome::Created) => Ok(super::created(request)),
        Ok(PutOutcome::Replaced) => Ok(super::empty(204)),
        Ok(PutOutcome::IsDirectory) => {
            request.log(Level::Error, &|out| {
                out.push(b'"');
                out.extend_from_slice(&path);
                out.extend_from_slice(b"\" could not be created");
                logs::append_os_error(out, &Errno::ISDIR.into());
            });
            Err(Outcome::Failed(Failure::new(409)))
        }
        Err(error) => {
            let text = rename_text(&error, &temporary, &path);
            Err(Outcome::Failed(match text {
                Some(text) => {
                    request.log(Level::Crit, &|out| out.extend_from_slice(&text));
                    Failure::new(500)
                }
                None => refused(request, &error, &path),
            }))
        }
    }
}

/// nginx's words for a rename that failed.
pub(super) fn rename_text(error: &disk::Error, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let disk::Error::System {
        call: "rename()",
        errno,
    } = error
    else {
        return None;
    };
    let mut text = [b"rename() \"", from, b"\" to \"", to, b"\" failed"].concat();
    logs::append_os_error(&mut text, &(*errno).into());
    Some(text)
}

/// 503 for a pool that is full or a disk that is late, 500 for what else a disk says, with its line in the log.
pub(super) fn refused(request: &Request, error: &disk::Error, path: &[u8]) -> Failure {
    if let Some(failure) = files::unavailable(request, error, path) {
        return failure;
    }
    files::log_error(request, Level::Crit, error, path);
    Failure::new(500)
}
