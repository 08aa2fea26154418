//! DELETE and MKCOL.

use disk::{Errno, FileKind, Pool};
use logs::Level;

use crate::content::dav::Dav;
use httpcore::Failure;
use httpcore::files;
use httpcore::request::Request;

use super::Depth;

/// Removes the file or the directory of the request's URI.
///
/// # Errors
/// nginx's answer.
pub(super) async fn remove(request: &Request) -> Result<u16, Failure> {
    super::refuse_body(request, "DELETE with body is unsupported")?;
    check_depth_of_uri(request)?;
    let mapped = super::map(request)?;
    let path = without_slash(&mapped.path);
    let pool = super::pool(request)?;
    let disk = &request.client.loop_.disk;
    let is_collection = request.uri.ends_with(b"/");
    let kind = match files::within(request, || disk.stat_link(path, &pool)).await {
        Ok(meta) if meta.kind != FileKind::Directory && is_collection => {
            // What lstat(2) says of a file with a slash behind it.
            let error = disk::Error::System {
                call: "lstat()",
                errno: Errno::NOTDIR,
            };
            return Err(super::failure(request, &error, &mapped.path, 409));
        }
        Ok(meta) => meta.kind,
        Err(error) => {
            let missing = match error.errno() {
                Some(Errno::NOTDIR) => 409,
                _ => 404,
            };
            return Err(super::failure(request, &error, &mapped.path, missing));
        }
    };
    if kind == FileKind::Directory {
        if !is_collection {
            return Err(is_directory(request, path));
        }
        if super::depth(request, Depth::Infinity) != Depth::Infinity {
            let sentence = "\"Depth\" header must be infinity";
            return Err(super::refuse(request, 400, sentence));
        }
    } else if !matches!(
        super::depth(request, Depth::Zero),
        Depth::Zero | Depth::Infinity
    ) {
        let sentence = "\"Depth\" header must be 0 or infinity";
        return Err(super::refuse(request, 400, sentence));
    }
    remove_path(request, path, kind, &pool).await?;
    Ok(204)
}

/// Removes what is at a path.
///
/// # Errors
/// nginx's answer; what was left behind is in the log.
pub(super) async fn remove_path(
    request: &Request,
    path: &[u8],
    kind: FileKind,
    pool: &Pool,
) -> Result<(), Failure> {
    let disk = &request.client.loop_.disk;
    let removed = match kind {
        FileKind::Directory => {
            let (troubles, removed) = disk.remove_tree(path, pool).await;
            super::tell(request, &troubles);
            removed
        }
        FileKind::File | FileKind::Other => disk.unlink(path, pool).await,
    };
    removed.map_err(|error| {
        let is_unread = matches!(
            error,
            disk::Error::System {
                call: "opendir()",
                ..
            }
        );
        match super::failure(request, &error, path, 404) {
            failure if !is_unread => failure,
            _ => Failure::new(500),
        }
    })
}

/// Makes the directory of the request's URI.
///
/// # Errors
/// nginx's answer.
pub(super) async fn make_collection(request: &Request) -> Result<u16, Failure> {
    super::refuse_body(request, "MKCOL with body is unsupported")?;
    if !request.uri.ends_with(b"/") {
        let sentence = "MKCOL can create a collection only";
        return Err(super::refuse(request, 409, sentence));
    }
    let mapped = super::map(request)?;
    let path = without_slash(&mapped.path);
    let mode = request.location().own::<Dav>().dav_access.of_directories();
    let disk = &request.client.loop_.disk;
    let pool = super::pool(request)?;
    match disk.make_new_directory(path, mode, &pool).await {
        Ok(()) => Ok(201),
        Err(error) => Err(super::failure(request, &error, path, 409)),
    }
}

/// `min_delete_depth`.
fn check_depth_of_uri(request: &Request) -> Result<(), Failure> {
    let least = request.location().own::<Dav>().min_delete_depth.0;
    let depth = depth_of(&request.uri, least);
    match depth {
        None => Ok(()),
        Some(depth) => {
            let sentence = format!("insufficient URI depth:{depth} to DELETE");
            Err(super::refuse(request, 409, &sentence))
        }
    }
}

/// How deep a URI is that is not deep enough: a slash counts where something follows it.
fn depth_of(uri: &[u8], least: u64) -> Option<u64> {
    if least == 0 {
        return None;
    }
    let mut depth = 0;
    for (at, _) in uri.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        depth += 1;
        if depth >= least && at + 1 < uri.len() {
            return None;
        }
    }
    Some(depth)
}

fn is_directory(request: &Request, path: &[u8]) -> Failure {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"DELETE \"");
        out.extend_from_slice(path);
        out.extend_from_slice(b"\" failed");
        logs::append_os_error(out, &Errno::ISDIR.into());
    });
    Failure::new(409)
}

/// A path without the slashes at its end, so that it names itself and not what it may lead to.
pub(super) fn without_slash(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/');
    &path[..end.map_or(1, |last| last + 1).min(path.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths() {
        assert_eq!(depth_of(b"/", 0), None);
        assert_eq!(depth_of(b"/", 1), Some(1));
        assert_eq!(depth_of(b"/a", 1), None);
        assert_eq!(depth_of(b"/a/", 2), Some(2));
        assert_eq!(depth_of(b"/a/b", 2), None);
        assert_eq!(depth_of(b"/a/b/c/", 3), None);
    }

    #[test]
    fn slashes_at_the_end() {
        assert_eq!(without_slash(b"/a/b//"), b"/a/b");
        assert_eq!(without_slash(b"/a"), b"/a");
        assert_eq!(without_slash(b"/"), b"/");
    }
}
