//! Reading a whole body: memory up to `client_body_buffer_size`; beyond that all of it goes to a temporary file.
//!
//! The file is made and written by the pool, and the socket is not read meanwhile: a slow disk slows its client, and one that
//! takes longer than `disk_timeout` for a piece ends the request.

use bytes::Bytes;
use disk::memory::{Holder, charge};
use disk::{Pool, Retention, Temporary};
use logs::Level;
use message::Framing;

use crate::Failure;
use crate::files;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::request::body::InFile;
use crate::transport::Transport;

use super::{PieceError, RequestBody, Stored, read_once};
use crate::settings::request_body::InFileOnly;

/// Permissions of a body's file.
const MODE: u32 = 0o600;
/// Maximum of memory that is reserved before any data has come, in bytes.
const RESERVED_MAX: u64 = 64 << 10;

/// Reads to the end; `begun` is the part that came before.
pub(super) async fn read(request: &mut Request, begun: Bytes) -> Result<Stored, Outcome> {
    let framing = request.head.framing;
    let (size, in_file_only) = {
        let settings = &request.location().settings.client_body;
        (
            settings.client_body_buffer_size.0,
            settings.client_body_in_file_only,
        )
    };
    // As nginx: one buffer may be a quarter larger if it then holds the whole body, but over HTTP/2.
    let may_exceed = !matches!(request.transport, Transport::Http2(_));
    let memory_max = match framing {
        Framing::Length(length) if may_exceed && length < size.saturating_add(size / 4) => length,
        _ => size,
    };
    let mut memory = Vec::with_capacity(memory_max.min(RESERVED_MAX) as usize);
    memory.extend_from_slice(&begun);
    let mut counted = charge(Holder::RequestBodies, memory.capacity());
    let mut spool = None;
    while !request.transport.is_body_over() {
        read_once(request, &mut memory).await?;
        counted.set(memory.capacity());
        let is_full = memory.len() as u64 >= memory_max && !memory.is_empty();
        if is_full && !request.transport.is_body_whole() {
            write(request, &mut spool, std::mem::take(&mut memory)).await?;
        }
    }
    let is_over = memory.len() as u64 > memory_max;
    if spool.is_none() && !is_over && in_file_only == InFileOnly::Off {
        drop(counted);
        return Ok(Stored::in_memory(framing, memory.into()));
    }
    write(request, &mut spool, memory).await?;
    let spool = spool.expect("write made it");
    let disk = request.client.loop_.disk.clone();
    let reopened = files::within(request, || disk.reopen(&spool.temporary, &spool.pool)).await;
    let open = match reopened {
        Ok(open) => open,
        Err(error) => return Err(refuse(request, &error, spool.temporary.path())),
    };
    drop(counted);
    Ok(Stored::in_file(
        framing,
        InFile {
            temporary: spool.temporary,
            open,
            len: spool.len,
            disk,
            pool: spool.pool,
        },
    ))
}

/// Reads to the end into an existing file; `begun` is the part that came before.
pub(super) async fn write_to(
    request: &mut Request,
    begun: Bytes,
    file: &Temporary,
    pool: &Pool,
) -> Result<(), Outcome> {
    let settings = &request.location().settings.client_body;
    let size = settings.client_body_buffer_size.0;
    let mut memory = begun.to_vec();
    let mut counted = charge(Holder::RequestBodies, memory.len());
    while !request.transport.is_body_over() {
        read_once(request, &mut memory).await?;
        counted.set(memory.capacity());
        if memory.len() as u64 >= size {
            append(request, file, std::mem::take(&mut memory).into(), pool).await?;
        }
    }
    append(request, file, memory.into(), pool).await
}

/// Writes a body that was read before.
pub(super) async fn copy_to(
    request: &Request,
    body: &RequestBody,
    file: &Temporary,
    pool: &Pool,
) -> Result<(), Outcome> {
    let mut pieces = body.pieces();
    loop {
        match pieces.next().await {
            Ok(Some(piece)) => append(request, file, piece, pool).await?,
            Ok(None) => return Ok(()),
            Err(PieceError::Disk(error)) => return Err(refuse(request, &error, file.path())),
            Err(error @ PieceError::Truncated) => {
                request.log(Level::Crit, &|out| {
                    out.extend_from_slice(error.to_string().as_bytes());
                });
                return Err(Outcome::Failed(Failure::new(500)));
            }
        }
    }
}

async fn append(
    request: &Request,
    file: &Temporary,
    bytes: Bytes,
    pool: &Pool,
) -> Result<(), Outcome> {
    if bytes.is_empty() {
        return Ok(());
    }
    let disk = &request.client.loop_.disk;
    let write = || disk.append(&file.output, vec![bytes], pool);
    let written = files::within(request, write).await;
    written.map_err(|error| refuse(request, &error, file.path()))
}

/// A file that is being written.
struct Spool {
    temporary: Temporary,
    len: u64,
    pool: Pool,
}

/// Appends to the file, which is made when it is first needed.
async fn write(
    request: &Request,
    spool: &mut Option<Spool>,
    bytes: Vec<u8>,
) -> Result<(), Outcome> {
    if spool.is_none() {
        *spool = Some(create(request).await?);
    }
    let Some(spool) = spool.as_mut().filter(|_| !bytes.is_empty()) else {
        return Ok(());
    };
    let len = bytes.len() as u64;
    append(request, &spool.temporary, bytes.into(), &spool.pool).await?;
    spool.len += len;
    Ok(())
}

async fn create(request: &Request) -> Result<Spool, Outcome> {
    let pool = files::pool(request).map_err(Outcome::Failed)?.clone();
    let settings = &request.location().settings.client_body;
    let (fate, level) = match settings.client_body_in_file_only {
        InFileOnly::Off => (Retention::Nameless, Level::Warn),
        InFileOnly::On => (Retention::Kept, Level::Notice),
        InFileOnly::Clean => (Retention::Removed, Level::Notice),
    };
    let place = settings
        .client_body_temp_path
        .place(&request.settings().prefix);
    let disk = &request.client.loop_.disk;
    let make = || disk.create_temporary(&place, fate, MODE, &pool);
    let made = files::within(request, make).await;
    let temporary = made.map_err(|error| refuse(request, &error, &place.directory))?;
    request.log(level, &|out| {
        out.extend_from_slice(b"a client request body is buffered to a temporary file ");
        out.extend_from_slice(temporary.path());
    });
    Ok(Spool {
        temporary,
        len: 0,
        pool,
    })
}

/// 503 for a pool that is full or a disk that is late, 500 for a disk that fails, each with its line in the log.
fn refuse(request: &Request, error: &disk::Error, path: &[u8]) -> Outcome {
    if let Some(failure) = files::unavailable(request, error, path) {
        return Outcome::Failed(failure);
    }
    files::log_error(request, Level::Crit, error, path);
    Outcome::Failed(Failure::new(500))
}
