//! Sending an answer: head and body, with as few calls as it takes.
//!
//! Not here: how bytes are serialised (`wire`), where a file's pages are (`disk`). Invariant: what is counted in
//! [`Sent`](crate::request::Sent) was taken by the socket.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use disk::{OpenFile, Sink};
use message::{Body, BodyError, Chunk, FileRange, Version};
use tokio::io::Interest;
use wire::http1::write;
use wire::rate::{Allowed, Rate};
use wire::{Stream, Timer};

use crate::after::headers;
use crate::content::files;
use crate::content::proxy::tunnel;
use crate::log::Level;
use crate::request::Request;
use crate::{Response, redirects};

use super::directives::SizeTemplate;
use super::finish::{After, invite};
use super::is_http11;

/// Bytes of a file that are read into memory and sent with the head rather than with `sendfile`.
pub const TOGETHER_MAX: u64 = 64 << 10;

/// Why sending ended early; the connection is closed.
enum Stop {
    Client(wire::Error),
    Disk(disk::Error),
    Body(BodyError),
}

impl From<wire::Error> for Stop {
    fn from(error: wire::Error) -> Self {
        Self::Client(error)
    }
}

/// How an answer is framed.
#[derive(Clone, Copy)]
struct Framing {
    is_chunked: bool,
    has_body: bool,
    has_trailers: bool,
    rate: Rate,
    timeout: Duration,
}

/// Sends the answer; what was sent stands in the request then, and the answer's head too.
pub async fn transmit(request: &mut Request, mut response: Box<Response>) -> After {
    redirects::complete(request, &mut response);
    let framing = frame(request, &mut response);
    if request.keepalive
        && request.head.expects_continue()
        && request.head.has_body()
        && request.error_status.is_none()
        && let Err(error) = invite(request, framing.timeout).await
    {
        return stopped(request, Stop::Client(error));
    }
    let body = std::mem::take(&mut response.body);
    request.response = Some(response);
    let gathers = !request.location().settings.sending.tcp_nodelay;
    if gathers {
        let _ = request.wire.stream.set_nodelay(false);
    }
    let sent = send(request, body, framing).await;
    if gathers {
        // The next answer may be of another location. What is left goes out now.
        let _ = request.wire.stream.set_nodelay(true);
    }
    match sent {
        Ok(()) => {
            request.is_complete = true;
            if request.keepalive {
                After::Keep
            } else {
                After::close()
            }
        }
        Err(stop) => stopped(request, stop),
    }
}

/// Decides on chunks and on the connection.
fn frame(request: &mut Request, response: &mut Response) -> Framing {
    let settings = &request
        .generation
        .settings
        .location(request.location)
        .settings;
    let status = response.status;
    let is_bodiless = matches!(status, 204 | 304) || status < 200;
    let has_trailers = headers::has_trailers(&settings.headers, status);
    let mut is_chunked = false;
    if !matches!(status, 200 | 206 | 304) {
        response.last_modified = None;
    }
    if status == 204 {
        response.content_type = Bytes::new();
        response.content_length = None;
    }
    let may_chunk = !is_bodiless && !request.is_head();
    if may_chunk && (response.content_length.is_none() || has_trailers) {
        if !is_http11(&request.head) {
            request.keepalive &= response.content_length.is_some();
        } else if settings.sending.chunked_transfer_encoding {
            if has_trailers {
                response.content_length = None;
            }
            is_chunked = true;
        } else if response.content_length.is_none() {
            request.keepalive = false;
        }
    }
    request.is_chunked = is_chunked;
    request.keepalive &= !request.client.loop_.is_leaving();
    let size = |size: &Option<SizeTemplate>| size.as_ref().map_or(0, |size| size.bytes(request));
    let per_second = request
        .limit_rate
        .get()
        .unwrap_or_else(|| size(&settings.sending.limit_rate));
    let after = if per_second == 0 {
        0
    } else {
        size(&settings.sending.limit_rate_after)
    };
    Framing {
        is_chunked,
        has_body: !is_bodiless && !request.is_head(),
        has_trailers: has_trailers && is_chunked,
        rate: Rate { per_second, after },
        timeout: settings.sending.send_timeout.duration(),
    }
}

async fn send(
    request: &mut Request,
    body: Body<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    if matches!(body, Body::Tunnel) {
        request.keepalive = false;
        send_head(request, framing, &[]).await?;
        Box::pin(tunnel::run(request)).await;
        return Ok(());
    }
    if !framing.has_body {
        return send_head(request, framing, &[]).await;
    }
    match body {
        Body::Empty | Body::Tunnel => {
            send_head(request, framing, &[]).await?;
            end(request, framing, &mut Body::Empty).await
        }
        Body::Once(Chunk::Bytes(bytes)) if !framing.is_chunked && framing.rate.per_second == 0 => {
            send_head(request, framing, &bytes).await
        }
        Body::Once(Chunk::File(range)) if !framing.is_chunked && framing.rate.per_second == 0 => {
            send_file_answer(request, range, framing).await
        }
        mut stream => {
            send_head(request, framing, &[]).await?;
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(Stop::Body)?;
                Box::pin(send_chunk(request, chunk, framing)).await?;
            }
            end(request, framing, &mut stream).await
        }
    }
}

/// Sends the head, and a body in memory behind it with the same call.
async fn send_head(request: &mut Request, framing: Framing, body: &[u8]) -> Result<(), Stop> {
    let before = request.wire.sent();
    if request.head.version < Version::HTTP_10 {
        request.wire.send_bytes(framing.timeout, body).await?;
        request.count(before, 0);
        return Ok(());
    }
    let mut head_bytes = 0;
    let location = request.generation.settings.location(request.location);
    let connection = match (
        request.response.as_ref().map_or(0, |r| r.status),
        request.keepalive,
    ) {
        (101, _) => write::Connection::Upgrade,
        (_, true) => {
            write::Connection::KeepAlive(location.settings.keepalive.keepalive_timeout.told)
        }
        (_, false) => write::Connection::Close,
    };
    let date = request.client.loop_.wire.date();
    let context = write::Context {
        server_line: location.settings.identity.line().as_bytes(),
        date: &date,
        connection,
        is_chunked: framing.is_chunked,
    };
    let response = request.response.as_ref().expect("transmit put it there");
    let sent = request
        .wire
        .send_with_body(
            framing.timeout,
            |out| {
                write::head(out, response, &context);
                head_bytes = out.len() as u64;
            },
            body,
        )
        .await;
    request.count(before, head_bytes);
    Ok(sent?)
}

/// A file that is the whole body: small ones go with the head, large ones from the page cache behind it.
async fn send_file_answer(
    request: &mut Request,
    mut range: FileRange<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    if range.len <= TOGETHER_MAX && !range.file.has_copy() {
        let bytes = read(
            request,
            &range,
            usize::try_from(range.len).unwrap_or(usize::MAX),
        )
        .await?;
        return send_head(request, framing, &bytes).await;
    }
    let settings = &request.location().settings;
    if range.file.has_copy() {
        request.wire.hold_next(true);
        send_head(request, framing, &[]).await?;
        send_copy(request, &mut range)?;
        if range.len == 0 {
            return Ok(());
        }
        return Box::pin(send_file(request, range, framing)).await;
    }
    // Full packets all the way cost a seventh less per byte of a large file.
    let corks = settings.sending.tcp_nopush && settings.files.sendfile;
    if corks {
        let _ = request.wire.stream.set_nopush(true);
    }
    send_head(request, framing, &[]).await?;
    Box::pin(send_file(request, range, framing)).await?;
    if corks {
        let _ = request.wire.stream.set_nopush(false);
    }
    Ok(())
}

/// Sends of a file's copy in memory what the socket takes at once: mostly all of it.
fn send_copy(request: &mut Request, range: &mut FileRange<Rc<OpenFile>>) -> Result<(), Stop> {
    let before = request.wire.sent();
    let len = usize::try_from(range.len).unwrap_or(usize::MAX);
    let (file, offset) = (&range.file, range.offset);
    let sent = request
        .wire
        .try_send_by(|socket| file.send_copy(socket, offset, len));
    match sent {
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

/// Reads a whole range; one that ends early was truncated.
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
            disk.read(&range.file, range.offset, len, &access).await
        }
    };
    let bytes = first.map_err(Stop::Disk)?;
    if bytes.len() < len {
        return Err(Stop::Disk(disk::Error::Truncated {
            len: range.offset + bytes.len() as u64,
        }));
    }
    Ok(bytes)
}

/// Sends a range of a file as it lies.
async fn send_file(
    request: &mut Request,
    range: FileRange<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let pool = files::pool(request)
        .map_err(|_| Stop::Body(BodyError::Truncated))?
        .clone();
    let access = files::reading(location, &pool);
    let disk = request.client.loop_.disk.clone();
    let (mut offset, end) = (range.offset, range.offset + range.len);
    let begun = request.sent.get().bytes;
    while offset < end {
        let upto = end.min(offset.saturating_add(allowed(request, framing, begun).await));
        let start = offset;
        let (stream, timer) = request.wire.halves();
        let sink = ToClient {
            stream,
            timer: Cell::new(Some(timer)),
            timeout: framing.timeout,
        };
        let outcome = disk
            .send(&range.file, &mut offset, upto, &sink, &access)
            .await;
        request.add_sent(offset - start);
        outcome.map_err(Stop::Disk)?;
    }
    Ok(())
}

/// How many bytes may go now; waits while none may.
async fn allowed(request: &Request, framing: Framing, begun: u64) -> u64 {
    if framing.rate.per_second == 0 {
        return u64::MAX;
    }
    loop {
        let sent = request.sent.get().bytes - begun;
        match framing.rate.allow(sent, request.elapsed_ms()) {
            Allowed::Bytes(bytes) => return bytes,
            Allowed::Wait(pause) => request.client.loop_.wire.wheel.sleep(pause).await,
        }
    }
}

/// Sends one piece of a body.
async fn send_chunk(
    request: &mut Request,
    chunk: Chunk<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    if chunk.is_empty() {
        return Ok(());
    }
    let before = request.wire.sent();
    if framing.is_chunked {
        let len = chunk.len();
        request
            .wire
            .send(framing.timeout, |out| write::chunk_head(out, len))
            .await?;
        request.count(before, 0);
    }
    match chunk {
        Chunk::File(range) => send_file(request, range, framing).await?,
        Chunk::Bytes(bytes) => send_bytes(request, bytes, framing).await?,
    }
    if framing.is_chunked {
        let before = request.wire.sent();
        request
            .wire
            .send_bytes(framing.timeout, write::CRLF)
            .await?;
        request.count(before, 0);
    }
    Ok(())
}

async fn send_bytes(request: &mut Request, mut bytes: Bytes, framing: Framing) -> Result<(), Stop> {
    let begun = request.sent.get().head_bytes;
    while !bytes.is_empty() {
        let now = allowed(request, framing, begun).await;
        let part = bytes.split_to(bytes.len().min(usize::try_from(now).unwrap_or(usize::MAX)));
        let before = request.wire.sent();
        let sent = request.wire.send_bytes(framing.timeout, &part).await;
        request.count(before, 0);
        sent?;
    }
    Ok(())
}

/// Ends a chunked body, with its trailers.
async fn end(
    request: &mut Request,
    framing: Framing,
    body: &mut Body<Rc<OpenFile>>,
) -> Result<(), Stop> {
    if !framing.is_chunked {
        return Ok(());
    }
    let mut trailers = match body {
        Body::Stream(source) => source.trailers(),
        _ => Vec::new(),
    };
    if framing.has_trailers {
        let status = request
            .response
            .as_ref()
            .map_or(0, |response| response.status);
        trailers.extend(headers::trailers(
            request,
            &request.location().settings.headers,
            status,
        ));
    }
    if let Some(response) = &mut request.response {
        for trailer in &trailers {
            response
                .trailers
                .push(trailer.name.clone(), trailer.value.clone());
        }
    }
    let before = request.wire.sent();
    request
        .wire
        .send(framing.timeout, |out| write::last_chunk(out, &trailers))
        .await?;
    request.count(before, 0);
    Ok(())
}

/// The client's socket as the disk layer sees it.
struct ToClient<'a> {
    stream: &'a Stream,
    /// Taken out only while it waits.
    timer: Cell<Option<&'a mut Timer>>,
    timeout: Duration,
}

impl Sink for ToClient<'_> {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.stream {
            Stream::Tcp(socket) => socket.try_io(Interest::WRITABLE, operation),
            Stream::Unix(socket) => socket.try_io(Interest::WRITABLE, operation),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(bytes)
    }

    async fn writable(&self) -> io::Result<()> {
        let timer = self.timer.take().ok_or(io::ErrorKind::Other)?;
        let ready = std::future::poll_fn(|cx| self.stream.poll_writable(cx));
        let outcome = timer.guard(self.timeout, ready).await;
        self.timer.set(Some(timer));
        outcome.map_err(|wire::Elapsed| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Says in the log why sending ended early, and closes.
fn stopped(request: &mut Request, stop: Stop) -> After {
    let mut is_timeout = false;
    match stop {
        Stop::Client(wire::Error::Timeout) => {
            is_timeout = true;
            log_timeout(request);
        }
        Stop::Disk(disk::Error::Socket(error)) if error.kind() == io::ErrorKind::TimedOut => {
            is_timeout = true;
            log_timeout(request);
        }
        Stop::Client(error) => request.log(Level::Info, &|out| {
            out.extend_from_slice(
                format!("send() failed: {error} while sending response to client").as_bytes(),
            );
        }),
        Stop::Disk(disk::Error::Socket(error)) => request.log(Level::Info, &|out| {
            out.extend_from_slice(
                format!("sendfile() failed: {error} while sending response to client").as_bytes(),
            );
        }),
        Stop::Disk(disk::Error::Overflow(overflow)) => request.log(Level::Error, &|out| {
            out.extend_from_slice(overflow.to_string().as_bytes());
        }),
        Stop::Disk(error) => request.log(Level::Alert, &|out| {
            out.extend_from_slice(error.to_string().as_bytes());
            out.extend_from_slice(b" while sending response to client: \"");
            let mut mapped = crate::path::Mapped::default();
            if crate::path::map(request, &mut mapped).is_ok() {
                out.extend_from_slice(&mapped.path);
            }
            out.push(b'"');
        }),
        Stop::Body(BodyError::Logged) => {}
        Stop::Body(error) => request.log(Level::Error, &|out| {
            out.extend_from_slice(error.to_string().as_bytes())
        }),
    }
    After::Close {
        must_linger: false,
        is_timeout,
    }
}

fn log_timeout(request: &Request) {
    request.log(Level::Info, &|out| {
        out.extend_from_slice(
            b"client timed out (110: Connection timed out) while sending response to client",
        );
    });
}
