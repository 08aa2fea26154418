//! COPY and MOVE: finds the destination, checks that it is allowed, and copies or moves.

use bytes::Bytes;
use disk::{CopyPurpose, Errno, FileKind, Pool, Relation};
use logs::Level;
use message::{HeaderId, uri};

use crate::content::dav::Dav;
use httpcore::Failure;
use httpcore::files;
use httpcore::request::Request;
use httpcore::settings::root::Alias;

use super::delete::{remove_path, without_slash};
use super::{Depth, put};

/// A COPY or MOVE request, parsed.
struct Wanted {
    purpose: CopyPurpose,
    /// Without a slash at its end.
    from: Bytes,
    /// Likewise.
    to: Bytes,
    /// The header `Destination`, as it came.
    destination: Bytes,
    /// Whether both name directories.
    is_collection: bool,
    overwrites: bool,
}

/// Copies or moves what the request's URI names.
///
/// # Errors
/// nginx's answer.
pub(super) async fn make(request: &mut Request, purpose: CopyPurpose) -> Result<u16, Failure> {
    super::refuse_body(request, "COPY and MOVE with body are unsupported")?;
    let wanted = understand(request, purpose)?;
    check_paths(request, &wanted)?;
    let pool = super::pool(request)?;
    let occupied = clear_for(request, &wanted, &pool).await?;
    let disk = &request.client.loop_.disk;
    // Behind a slash, a link stands for what it leads to, and a file is no directory (lstat(2)).
    let slash: &[u8] = if wanted.is_collection { b"/" } else { b"" };
    let path = Bytes::from([&wanted.from, slash].concat());
    let from = match files::within(request, || disk.stat_link(&path, &pool)).await {
        Ok(meta) => meta.kind,
        Err(error) => return Err(super::failure(request, &error, &path, 404)),
    };
    if from == FileKind::Directory && !wanted.is_collection {
        return Err(said(request, 400, &|out| {
            out.push(b'"');
            out.extend_from_slice(&request.uri);
            out.extend_from_slice(b"\" is collection");
        }));
    }
    // What is removed below is not what is to be copied, and does not hold it.
    check_places(request, &wanted, &path, &pool).await?;
    match from {
        FileKind::Directory => {
            if let Some(kind) = occupied {
                remove_path(request, &wanted.to, kind, &pool).await?;
            }
            directory(request, &wanted, &pool).await
        }
        FileKind::File | FileKind::Other => file(request, &wanted, &pool).await,
    }
}

fn understand(request: &mut Request, purpose: CopyPurpose) -> Result<Wanted, Failure> {
    let Some(place) = request.head.place(HeaderId::Destination) else {
        let sentence = "client sent no \"Destination\" header";
        return Err(super::refuse(request, 400, sentence));
    };
    let destination = Bytes::copy_from_slice(request.head.text(place));
    let to = path_of(request, &destination)?;
    let is_collection = request.uri.ends_with(b"/");
    if is_collection != to.ends_with(b"/") {
        return Err(said(request, 409, &|out| {
            out.extend_from_slice(b"both URI \"");
            out.extend_from_slice(&request.uri);
            out.extend_from_slice(b"\" and \"Destination\" URI \"");
            out.extend_from_slice(&destination);
            out.extend_from_slice(b"\" should be either collections or non-collections");
        }));
    }
    if let Some(Alias::Prefix(length)) = request.location().settings.root.alias
        && to.len() < length
    {
        return Err(invalid(request, "Destination", &destination));
    }
    check_depth(request, purpose)?;
    let overwrites = overwrites(request)?;
    let from = super::map(request)?;
    let from = plain(&from.path);
    // Variables in `root` see the URI that is mapped.
    let own = std::mem::replace(&mut request.uri, to);
    let mapped = super::map(request);
    request.uri = own;
    let to = plain(&mapped?.path);
    Ok(Wanted {
        purpose,
        from: Bytes::copy_from_slice(without_slash(&from)),
        to: Bytes::copy_from_slice(without_slash(&to)),
        destination,
        is_collection,
        overwrites,
    })
}

/// The decoded path of `Destination`: a path, or a URL of this host.
fn path_of(request: &Request, destination: &[u8]) -> Result<Bytes, Failure> {
    let path = match destination.first() {
        Some(b'/') => destination,
        _ => {
            let Some(host) = request.head.host().filter(|host| !host.is_empty()) else {
                let sentence = "client sent no \"Host\" header";
                return Err(super::refuse(request, 400, sentence));
            };
            let scheme = request.client.scheme().name();
            let rest = destination.strip_prefix(scheme);
            let Some(rest) = rest.and_then(|rest| rest.strip_prefix(b"://")) else {
                return Err(invalid(request, "Destination", destination));
            };
            let Some(rest) = rest.strip_prefix(host) else {
                return Err(said(request, 400, &|out| {
                    out.extend_from_slice(b"\"Destination\" URI \"");
                    out.extend_from_slice(destination);
                    out.extend_from_slice(
                        b"\" is handled by different repository than the source URI",
                    );
                }));
            };
            match rest.iter().position(|byte| *byte == b'/') {
                Some(slash) => &rest[slash..],
                None => return Err(invalid(request, "Destination", destination)),
            }
        }
    };
    match uri::safe(path) {
        Some((path, _)) => Ok(plain(&path).into()),
        None => {
            said(request, 400, &|out| {
                out.extend_from_slice(b"unsafe URI \"");
                out.extend_from_slice(path);
                out.extend_from_slice(b"\" was detected");
            });
            Err(invalid(request, "Destination", destination))
        }
    }
}

fn check_depth(request: &Request, purpose: CopyPurpose) -> Result<(), Failure> {
    match (super::depth(request, Depth::Infinity), purpose) {
        (Depth::Infinity, _) | (Depth::Zero, CopyPurpose::Copy) => Ok(()),
        (_, CopyPurpose::Copy) => {
            let sentence = "\"Depth\" header must be 0 or infinity";
            Err(super::refuse(request, 400, sentence))
        }
        (_, CopyPurpose::Move) => {
            let sentence = "\"Depth\" header must be infinity";
            Err(super::refuse(request, 400, sentence))
        }
    }
}

fn overwrites(request: &Request) -> Result<bool, Failure> {
    match request.head.get(HeaderId::Overwrite) {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(other) => Err(invalid(request, "Overwrite", other)),
    }
}

/// 403 where one is the other, or lies in it.
fn check_paths(request: &Request, wanted: &Wanted) -> Result<(), Failure> {
    if wanted.from == wanted.to {
        return Err(same_location(request, wanted));
    }
    let is_in = wanted.is_collection
        && (lies_in(&wanted.from, &wanted.to) || lies_in(&wanted.to, &wanted.from));
    match is_in {
        true => Err(not_to_collection(request, wanted, 403)),
        false => Ok(()),
    }
}

/// Likewise, where links and mounts make them so.
async fn check_places(
    request: &Request,
    wanted: &Wanted,
    from: &[u8],
    pool: &Pool,
) -> Result<(), Failure> {
    let disk = &request.client.loop_.disk;
    match files::within(request, || disk.relation(from, &wanted.to, pool)).await {
        Ok(Relation::Apart) => Ok(()),
        Ok(Relation::Same) => Err(same_location(request, wanted)),
        Ok(Relation::Nested) => Err(not_to_collection(request, wanted, 403)),
        Err(error) => Err(super::failure(request, &error, from, 404)),
    }
}

fn lies_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| directory == b"/" || rest.starts_with(b"/"))
}

/// The existing file or directory that the copy may replace.
async fn clear_for(
    request: &Request,
    wanted: &Wanted,
    pool: &Pool,
) -> Result<Option<FileKind>, Failure> {
    let disk = &request.client.loop_.disk;
    let kind = match files::within(request, || disk.stat_link(&wanted.to, pool)).await {
        Ok(meta) => meta.kind,
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(super::failure(request, &error, &wanted.to, 404)),
    };
    if kind == FileKind::Directory && !wanted.is_collection {
        return Err(not_to_collection(request, wanted, 409));
    }
    if !wanted.overwrites {
        return Err(said(request, 412, &|out| {
            out.push(b'"');
            out.extend_from_slice(&wanted.to);
            out.extend_from_slice(b"\" could not be created");
            logs::append_os_error(out, &Errno::EXIST.into());
        }));
    }
    Ok(Some(kind))
}

async fn directory(request: &Request, wanted: &Wanted, pool: &Pool) -> Result<u16, Failure> {
    let disk = &request.client.loop_.disk;
    if wanted.purpose == CopyPurpose::Move
        && disk.rename(&wanted.from, &wanted.to, pool).await.is_ok()
    {
        return Ok(201);
    }
    let copy = disk.copy_tree(&wanted.from, &wanted.to, wanted.purpose, pool);
    let (troubles, copied) = copy.await;
    super::tell(request, &troubles);
    if let Err(error) = copied {
        let is_of_original = matches!(
            error,
            disk::Error::System {
                call: "opendir()",
                ..
            }
        );
        let path = match is_of_original {
            true => &wanted.from,
            false => &wanted.to,
        };
        return Err(super::failure(request, &error, path, 404));
    }
    if let Some(first) = troubles.noted.first() {
        // What is not whole is not called so, and what was not copied is not removed.
        let (status, _) = super::verdict(Some(first.errno), 500);
        return Err(Failure::new(if status == 507 { 507 } else { 500 }));
    }
    if wanted.purpose == CopyPurpose::Move {
        remove_path(request, &wanted.from, FileKind::Directory, pool).await?;
    }
    Ok(201)
}

async fn file(request: &Request, wanted: &Wanted, pool: &Pool) -> Result<u16, Failure> {
    let disk = &request.client.loop_.disk;
    let done = match wanted.purpose {
        CopyPurpose::Copy => disk.copy_file(&wanted.from, &wanted.to, pool).await,
        CopyPurpose::Move => {
            let mode = request.location().own::<Dav>().dav_access.of_directories();
            disk.move_file(&wanted.from, &wanted.to, mode, pool).await
        }
    };
    let Err(error) = done else { return Ok(204) };
    match put::rename_text(&error, &wanted.from, &wanted.to) {
        Some(text) => {
            request.log(Level::Crit, &|out| out.extend_from_slice(&text));
            Err(Failure::new(500))
        }
        None => Err(put::refused(request, &error, &wanted.to)),
    }
}

fn not_to_collection(request: &Request, wanted: &Wanted, status: u16) -> Failure {
    said(request, status, &|out| {
        out.push(b'"');
        out.extend_from_slice(&request.uri);
        out.extend_from_slice(b"\" could not be ");
        out.extend_from_slice(request.method_text());
        out.extend_from_slice(b"ed to collection \"");
        out.extend_from_slice(&wanted.destination);
        out.push(b'"');
    })
}

fn same_location(request: &Request, wanted: &Wanted) -> Failure {
    said(request, 403, &|out| {
        out.extend_from_slice(b"both URI \"");
        out.extend_from_slice(&request.uri);
        out.extend_from_slice(b"\" and \"Destination\" URI \"");
        out.extend_from_slice(&wanted.destination);
        out.extend_from_slice(b"\" point to the same location");
    })
}

fn invalid(request: &Request, name: &str, value: &[u8]) -> Failure {
    said(request, 400, &|out| {
        out.extend_from_slice(b"client sent invalid \"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\" header: \"");
        out.extend_from_slice(value);
        out.push(b'"');
    })
}

fn said(request: &Request, status: u16, text: &dyn Fn(&mut Vec<u8>)) -> Failure {
    request.log(Level::Error, text);
    Failure::new(status)
}

/// A path without segments `.`, and with one slash for several.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment != b"." {
            plain.extend_from_slice(segment);
        }
        if segments.peek().is_some() && plain.last() != Some(&b'/') {
            plain.push(b'/');
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_path_in_another() {
        assert!(lies_in(b"/a/b", b"/a"));
        assert!(!lies_in(b"/ab", b"/a"));
        assert!(!lies_in(b"/a", b"/a"));
        assert!(lies_in(b"/a", b"/"));
    }

    #[test]
    fn paths_without_dots_and_slashes_in_a_row() {
        for (path, expected) in [
            ("//a///b/c//", "/a/b/c/"),
            ("/./a/././.b/c./.", "/a/.b/c./"),
            ("/.", "/"),
            ("/a/..b", "/a/..b"),
        ] {
            assert_eq!(plain(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
