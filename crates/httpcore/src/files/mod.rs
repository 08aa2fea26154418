//! The files of requests: a location's options for the disk layer (pool, system calls, symbolic links), and its errors.
//!
//! They apply to every open, read and send. Not here: their directives ([`crate::settings::files`]), paths ([`path`]) and the calls themselves (`disk`).

pub mod by_page;
mod disk_timeout;
pub mod hot_files;
pub mod path;

pub use disk_timeout::{disk_limit, disk_limit_at, disk_limit_of, late, unavailable, within};

use bytes::Bytes;
use config::Template;
use disk::{Access, AioMode, Pool, Symlinks};
use logs::Level;

use crate::Failure;
use crate::request::Request;
use crate::settings::Location;
use crate::settings::files::{Aio, DisableSymlinks};

/// The options for reading and sending an open file at a location.
#[must_use]
pub fn reading<'a>(location: &Location, pool: &'a Pool) -> Access<'a> {
    let files = &location.settings.files;
    let mut access = Access::new(pool);
    access.mode = if matches!(files.aio.value, Aio::Off) {
        AioMode::Inline
    } else {
        AioMode::Pool
    };
    access.directio = files.directio.on().map(|size| size.0);
    access.directio_alignment = files.directio_alignment.0;
    access.read_ahead = files.read_ahead.0;
    access.sendfile = files.sendfile;
    access.sendfile_max_chunk = files.sendfile_max_chunk.0;
    access.output_buffer = usize::try_from(files.output_buffers.size).unwrap_or(usize::MAX);
    access
}

/// The disk layer's options for a file of `request` whose path begins with `root` bytes of root or alias.
///
/// # Errors
/// 500 if the pool's name, made from variables, is not the name of a pool.
pub fn access<'a>(request: &'a Request, path: &[u8]) -> Result<Access<'a>, Failure> {
    let mut access = reading(request.location(), pool(request)?);
    access.moment = request.moment;
    access.stale = request.generation.stale_files(request.location);
    access.symlinks = symlinks(
        request,
        &request.location().settings.files.disable_symlinks,
        path,
    );
    Ok(access)
}

/// The pool of the request's location.
///
/// # Errors
/// 500 if the name, made from variables, is not the name of a pool.
pub fn pool(request: &Request) -> Result<&Pool, Failure> {
    let location = request.location();
    if let Some(pool) = location.pool.get() {
        return Ok(pool);
    }
    let disk = request.client.loop_.disk.disk();
    let Aio::Pool(template) = &location.settings.files.aio.value else {
        return Ok(location.pool.get_or_init(|| disk.default_pool()));
    };
    let name = request.evaluate(template);
    let pool = disk
        .pool(&name)
        .ok_or_else(|| pool_not_found(request, &name))?;
    if template.literal().is_some() {
        return Ok(location.pool.get_or_init(|| pool));
    }
    Ok(request.keep_pool(pool))
}

/// 500 for a pool that is not declared, as nginx.
#[must_use]
pub fn pool_not_found(request: &Request, name: &[u8]) -> Failure {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"thread pool \"");
        out.extend_from_slice(name);
        out.extend_from_slice(b"\" not found");
    });
    Failure::new(500)
}

fn symlinks(request: &Request, setting: &DisableSymlinks, path: &[u8]) -> Symlinks {
    let from = |template: &Option<Template>| {
        let Some(template) = template else { return 0 };
        let part = request.evaluate(template);
        if path.starts_with(&part)
            && (path.len() == part.len() || path[part.len()] == b'/' || part.ends_with(b"/"))
        {
            part.len()
        } else {
            0
        }
    };
    match setting {
        DisableSymlinks::Off => Symlinks::Follow,
        DisableSymlinks::On(part) => Symlinks::Refuse { from: from(part) },
        DisableSymlinks::IfNotOwner(part) => Symlinks::RefuseOthers { from: from(part) },
    }
}

/// The status and the log line for an error of the disk layer.
#[must_use]
pub fn failure(request: &Request, error: &disk::Error, path: &[u8]) -> Failure {
    use disk::Errno;
    if let Some(failure) = unavailable(request, error, path) {
        return failure;
    }
    let (status, level) = match error.errno() {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => (404, Level::Error),
        Some(Errno::ACCESS | Errno::MLINK | Errno::LOOP) => (403, Level::Error),
        _ => (500, Level::Crit),
    };
    if status != 404 || request.location().settings.static_files.log_not_found {
        log_error(request, level, error, path);
    }
    Failure::new(status)
}

/// Writes `open() "PATH" failed (2: No such file or directory)`.
pub fn log_error(request: &Request, level: Level, error: &disk::Error, path: &[u8]) {
    request.log(level, &|out| {
        out.extend_from_slice(&error_text(error, path))
    });
}

/// nginx's words for an error and its file.
#[must_use]
pub fn error_text(error: &disk::Error, path: &[u8]) -> Vec<u8> {
    match error {
        disk::Error::System { call, errno } => {
            let mut text = [call.as_bytes(), b" \"", path, b"\" failed"].concat();
            logs::append_os_error(&mut text, &(*errno).into());
            text
        }
        other => [other.to_string().as_bytes(), b": \"", path, b"\""].concat(),
    }
}

/// 503 when a pool's queue is full (nginx answers 500: see `docs/differences.md`).
#[must_use]
pub fn overflowed(request: &Request, overflow: &disk::Overflow) -> Failure {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(overflow.to_string().as_bytes())
    });
    Failure::new(503).with_header("Retry-After", Bytes::from_static(b"1"))
}
