//! Reading a whole body: memory up to `client_body_buffer_size`; beyond that all of it goes to a temporary file.
//!
//! The file is made and written by the pool, and the socket is not read meanwhile: a slow disk slows its client, and one that
//! takes longer than `disk_timeout` for a piece ends the request. What has come already goes into one write.

use std::rc::Rc;

use bytes::Bytes;
use disk::memory::level::level;
use disk::memory::{Holder, MemoryLevel, charge};
use disk::{Pool, Retention, Spooled, Temporary};
use logs::Level;
use message::Framing;

use crate::Failure;
use crate::files;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::request::body::InFile;
use crate::transport::Transport;

use super::{PieceError, RequestBody, Stored, read_once, read_ready};
use crate::settings::request_body::InFileOnly;

/// Permissions of a body's file.
const MODE: u32 = 0o600;
/// Maximum of memory that is reserved before any data has come, in bytes.
const RESERVED_MAX: u64 = 64 << 10;
/// Bytes of a body that is longer than its buffer, that have come already, from which they are written. (One read may bring
/// more.) To write each buffer by itself would cost a thread's wake-up each.
const PART_BYTES: u64 = 128 << 10;

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
    let mut memory = begun.to_vec();
    let mut counted = charge(Holder::RequestBodies, memory.len());
    let mut spool = None;
    while !request.transport.is_body_over() {
        if spool.is_none() {
            make_room(&mut memory, framing, memory_max);
        }
        read_once(request, &mut memory).await?;
        counted.set(memory.len());
        let is_full = memory.len() as u64 >= memory_max && !memory.is_empty();
        if is_full && !request.transport.is_body_whole() {
            fill_part(request, &mut memory)?;
            counted.set(memory.len());
        }
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
    drop(counted);
    let spool = spool.expect("write made it");
    Ok(Stored::in_file(
        framing,
        InFile {
            open: Rc::new(spool.spooled.open.grown(spool.len)),
            temporary: spool.spooled.file,
            len: spool.len,
            disk: request.client.loop_.disk.clone(),
            pool: spool.pool,
            limit: files::disk_limit(request),
        },
    ))
}

/// Makes room for what comes of a body that is kept in memory: for all of it once a part has come, so that it need not move.
/// Room that nothing has come to is none of the system's memory.
fn make_room(memory: &mut Vec<u8>, framing: Framing, memory_max: u64) {
    if memory.len() < memory.capacity() {
        return;
    }
    let known = match framing {
        Framing::Length(length) if length > memory_max => return,
        Framing::Length(length) if memory.len() as u64 >= RESERVED_MAX => length,
        Framing::Length(length) => length.min(RESERVED_MAX),
        _ => memory_max.min(RESERVED_MAX),
    };
    // If the system has none, what comes finds its own.
    let _ = memory.try_reserve_exact((known as usize).saturating_sub(memory.len()));
}

/// Reads what has come already, so that it is written in one go; nothing while memory is scarce.
fn fill_part(request: &mut Request, memory: &mut Vec<u8>) -> Result<(), Outcome> {
    match level() < MemoryLevel::Buffers {
        true => read_ready(request, memory, PART_BYTES),
        false => Ok(()),
    }
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
            fill_part(request, &mut memory)?;
            counted.set(memory.capacity());
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
    spooled: Spooled,
    len: u64,
    pool: Pool,
}

/// Appends to the file, which is made when it is first needed.
async fn write(
    request: &Request,
    spool: &mut Option<Spool>,
    bytes: Vec<u8>,
) -> Result<(), Outcome> {
    let len = bytes.len() as u64;
    match spool {
        None => *spool = Some(create(request, bytes.into()).await?),
        Some(spool) => {
            append(request, &spool.spooled.file, bytes.into(), &spool.pool).await?;
            spool.len += len;
        }
    }
    Ok(())
}

async fn create(request: &Request, bytes: Bytes) -> Result<Spool, Outcome> {
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
    let (disk, len) = (&request.client.loop_.disk, bytes.len() as u64);
    let spool = || disk.spool(&place, fate, bytes, MODE, &pool);
    let spooled = files::within(request, spool).await;
    let spooled = spooled.map_err(|error| refuse(request, &error, &place.directory))?;
    request.log(level, &|out| {
        out.extend_from_slice(b"a client request body is buffered to a temporary file ");
        out.extend_from_slice(spooled.file.path());
    });
    Ok(Spool { spooled, len, pool })
}

/// 503 for a pool that is full or a disk that is late, 500 for a disk that fails, each with its line in the log.
fn refuse(request: &Request, error: &disk::Error, path: &[u8]) -> Outcome {
    if let Some(failure) = files::unavailable(request, error, path) {
        return Outcome::Failed(failure);
    }
    files::log_error(request, Level::Crit, error, path);
    Outcome::Failed(Failure::new(500))
}
