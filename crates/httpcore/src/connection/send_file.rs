//! Sending a body that is a file.
//!
//! Not here: which pages are in memory, and how the others are read (`disk`). Invariant: as in [`super::send`].

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use disk::OpenFile;
use message::{BodyError, FileRange};
use wire::rate::Allowed;

use crate::files;
use crate::files::by_page::{TOGETHER_MAX, goes_by_page};
use crate::request::Request;
use crate::transport::{DiskLimit, FileWaits};

use super::send::{Delivery, send_head};
use super::send_error::Stop;
use super::send_instead;

/// Sends a file that is the whole body: a small one with the head, a large one after it from the page cache.
pub(super) async fn send_whole_file(
    request: &mut Request,
    range: FileRange<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<(), Stop> {
    let is_small = range.len <= TOGETHER_MAX;
    if is_small && !goes_by_page(request, &range.file, range.offset, range.len) {
        return send_together(request, range, delivery).await;
    }
    let settings = &request.location().settings;
    // Full packets all the way cost a seventh less per byte of a large file.
    let corks = settings.sending.tcp_nopush && settings.files.sendfile;
    if corks {
        request.transport.cork(true);
    }
    send_head(request, delivery, &[]).await?;
    send_file(request, range, delivery).await?;
    if corks {
        request.transport.cork(false);
    }
    Ok(())
}

/// Sends a small file with the head.
async fn send_together(
    request: &mut Request,
    range: FileRange<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<(), Stop> {
    let len = usize::try_from(range.len).unwrap_or(usize::MAX);
    match read(request, &range, len).await {
        Ok(bytes) => send_head(request, delivery, &bytes).await,
        Err(Stop::Disk(error, _)) if send_instead::is_due(request, &range.file, &error) => {
            send_head(request, delivery, &[]).await?;
            Box::pin(send_instead::send_instead(request, range, delivery, error)).await
        }
        Err(stop) => Err(stop),
    }
}

/// Sends as much of a file's copy in memory as the socket takes at once: usually all of it.
pub(super) fn send_copy(
    request: &mut Request,
    range: &mut FileRange<Rc<OpenFile>>,
) -> Result<(), Stop> {
    let before = request.transport.sent();
    let len = usize::try_from(range.len).unwrap_or(usize::MAX);
    match request.transport.send_copy(&range.file, range.offset, len) {
        Ok(sent) => {
            request.count(before, 0);
            range.offset += sent as u64;
            range.len -= sent as u64;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(Stop::Client(error.into())),
    }
}

/// Reads a whole range; a short read means that the file was truncated.
async fn read(
    request: &Request,
    range: &FileRange<Rc<OpenFile>>,
    len: usize,
) -> Result<Bytes, Stop> {
    let disk = &request.client.loop_.disk;
    let first = match disk.try_read(&range.file, range.offset, len) {
        Ok(found) => found,
        Err(disk::WouldBlock) => {
            let access =
                files::access(request, b"").map_err(|_| Stop::Body(BodyError::Truncated))?;
            let limit = files::disk_limit_of(request, &range.file);
            let read = Box::pin(disk.read(&range.file, range.offset, len, &access));
            tokio::select! {
                biased;
                read = read => read,
                limit = DiskLimit::reached(limit.as_ref()) => Err(disk::Error::Late(limit)),
            }
        }
    };
    let failed = |error| Stop::Disk(error, Rc::clone(&range.file));
    let bytes = first.map_err(failed)?;
    if bytes.len() < len {
        return Err(failed(disk::Error::Truncated {
            len: range.offset + bytes.len() as u64,
        }));
    }
    Ok(bytes)
}

/// Sends a range of a file without copying it to memory; the rest from elsewhere, where its disk fails and there is
/// such a place.
pub(super) async fn send_file(
    request: &mut Request,
    mut range: FileRange<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<(), Stop> {
    let disk = files::disk_limit_of(request, &range.file);
    match send_from_disk(request, &mut range, delivery, disk).await {
        Err(Stop::Disk(error, _)) if send_instead::is_due(request, &range.file, &error) => {
            Box::pin(send_instead::send_instead(request, range, delivery, error)).await
        }
        sent => sent,
    }
}

/// Sends a range of a file, which is what is left of it afterwards. A wait for the disk has this limit.
pub(super) async fn send_from_disk(
    request: &mut Request,
    range: &mut FileRange<Rc<OpenFile>>,
    delivery: Delivery,
    limit: Option<DiskLimit>,
) -> Result<(), Stop> {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let pool = files::pool(request)
        .map_err(|_| Stop::Body(BodyError::Truncated))?
        .clone();
    let access = files::reading(location, &pool);
    let disk = request.client.loop_.disk.clone();
    let waits = FileWaits {
        client: delivery.timeout,
        disk: limit,
    };
    let end = range.offset + range.len;
    // The limit is of the whole response, of which this may be a part.
    let begun = request.sent.get().head_bytes;
    while range.len > 0 {
        let upto = end.min(
            range
                .offset
                .saturating_add(allowed(request, delivery, begun).await),
        );
        let (start, before) = (range.offset, request.transport.sent());
        let part = (&mut range.offset, upto);
        let outcome = request
            .transport
            .send_file(&disk, &range.file, part, waits.clone(), &access)
            .await;
        range.len = end - range.offset;
        request.add_sent(range.offset - start);
        // What the protocol has put around it.
        request.count(before, 0);
        outcome.map_err(|error| Stop::Disk(error, Rc::clone(&range.file)))?;
    }
    Ok(())
}

/// Number of bytes that `limit_rate` allows now; waits while it allows none.
pub(super) async fn allowed(request: &Request, delivery: Delivery, begun: u64) -> u64 {
    if delivery.rate.per_second == 0 {
        return u64::MAX;
    }
    loop {
        let sent = request.sent.get().bytes - begun;
        match delivery.rate.allow(sent, request.elapsed_ms()) {
            Allowed::Bytes(bytes) => return bytes,
            Allowed::Wait(pause) => request.client.loop_.wire.wheel.sleep(pause).await,
        }
    }
}
