//! HTTP/1: a request on a connection that it has for itself (RFC 9112).
//!
//! The framing of bodies, the `Connection` line and persistence are decided here. Not here: the bytes of heads and
//! chunks (`wire::http1`), the wait for a request and what follows a response (`connection`).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use disk::{OpenFile, Sink};
use message::{Header, RequestHead, Version};
use runtime::{IdleEntry, Waiting};
use wire::http1::body_decoder::Decoder;
use wire::http1::response_writer::{self, ConnectionHeader, HeadContext};
use wire::{Input, Stream, Timer, turn};

use crate::Response;
use crate::request::body::Pipe;

use super::{BodyStop, ClientSide, ClientStream, DiskLimit, Extent, FileWaits, Piece, Unsent};

/// A client's connection between two requests. Boxed, since it goes from request to request.
pub struct Link {
    /// The connection.
    pub wire: wire::Connection,
    /// Its entry in the list of idle connections.
    pub place: IdleEntry,
    /// Whether a request has come together with the one before it, so that more may be on their way.
    pub is_pipelined: bool,
}

/// A connection that carries one request.
pub struct Http1 {
    link: Box<Link>,
    /// Finds the end of the request's body.
    body: Decoder,
    version: Version,
    is_pipelined: bool,
    /// Whether `100 Continue` was sent.
    is_invited: bool,
    is_persistent: bool,
    /// Whether the response is sent in chunks.
    is_chunked: bool,
    /// Bytes of the body that were read when the rest of it was given up.
    read_before: Option<u64>,
    /// What is done with the body while the client takes nothing of the response.
    meanwhile: Option<Box<Meanwhile>>,
}

impl Http1 {
    /// The connection of a request whose head was read; `is_pipelined`: with the response to another one.
    #[must_use]
    pub fn new(link: Box<Link>, head: &RequestHead, is_pipelined: bool) -> Self {
        Self {
            link,
            body: Decoder::new(head.framing, 0),
            version: head.version,
            is_pipelined,
            is_invited: false,
            is_persistent: head.wants_keepalive(),
            is_chunked: false,
            read_before: None,
            meanwhile: None,
        }
    }

    /// The connection without its request.
    #[must_use]
    pub fn into_link(self) -> Box<Link> {
        self.link
    }

    pub(super) fn is_prompt(&self) -> bool {
        self.link.wire.is_prompt()
    }

    pub(super) fn is_pipelined(&self) -> bool {
        self.is_pipelined
    }

    pub(super) fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        self.link.wire.stream.tcp_socket()
    }

    pub(super) async fn peer_closed(&self) {
        self.link.wire.stream.peer_closed().await;
    }

    /// Whether the body of the request was read to its end.
    #[must_use]
    pub fn is_body_over(&self) -> bool {
        self.body.is_end()
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.read_before.unwrap_or_else(|| self.body.used())
    }

    /// Counts no more bytes of the body: what is still read of it is read for the connection's sake alone.
    pub fn give_body_up(&mut self) {
        self.read_before = Some(self.body_bytes());
    }

    pub(super) fn limit_body(&mut self, limit: u64) {
        self.body.set_limit(limit);
    }

    pub(super) fn try_read_body(&mut self, out: &mut Vec<u8>) -> Result<bool, wire::Error> {
        self.link.wire.try_read_body_into(&mut self.body, out)
    }

    pub(super) async fn read_body(
        &mut self,
        timeout: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyStop> {
        if let Some(error) = self.meanwhile.as_mut().and_then(|it| it.fault.take()) {
            return Err(BodyStop::Failed(error));
        }
        let Link { wire, place, .. } = &mut *self.link;
        let reading = pin!(wire.read_body_into(&mut self.body, timeout, out));
        stopped(place.wait_for(Waiting::Body, reading).await)
    }

    /// Has the rest of the body passed on while the client takes nothing of the response.
    pub(super) fn pass_meanwhile(&mut self, pipe: Rc<Pipe>) {
        self.meanwhile = Some(Box::new(Meanwhile { pipe, fault: None }));
    }

    pub(super) async fn discard_body(
        &mut self,
        total: Duration,
        between: Duration,
    ) -> Result<(), BodyStop> {
        let Link { wire, place, .. } = &mut *self.link;
        let discarding = pin!(wire.discard_body(&mut self.body, total, between));
        stopped(place.wait_for(Waiting::Lingering, discarding).await)
    }

    pub(super) fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    pub(super) fn close_after_response(&mut self) {
        self.is_persistent = false;
    }

    pub(super) async fn invite(&mut self, timeout: Duration) -> Result<(), wire::Error> {
        if std::mem::replace(&mut self.is_invited, true) {
            return Ok(());
        }
        self.send_bytes(timeout, response_writer::CONTINUE).await
    }

    pub(super) fn takes_interim(&self) -> bool {
        self.version >= Version::HTTP_11
    }

    pub(super) async fn interim(
        &mut self,
        timeout: Duration,
        status: u16,
        lines: &[Header],
    ) -> Result<(), wire::Error> {
        let write = |out: &mut Vec<u8>| response_writer::interim(out, status, lines);
        self.link.wire.send(timeout, write).await
    }

    /// The end of a body is marked by its length, by the last chunk, or by the end of the connection.
    pub(super) fn frame(&mut self, response: &mut Response, extent: &Extent) -> bool {
        self.is_chunked = false;
        if extent.has_body && (response.content_length.is_none() || extent.has_trailers) {
            if self.version < Version::HTTP_11 {
                self.is_persistent &= response.content_length.is_some();
            } else if extent.may_chunk {
                if extent.has_trailers {
                    response.content_length = None;
                }
                self.is_chunked = true;
            } else if response.content_length.is_none() {
                self.is_persistent = false;
            }
        }
        self.is_chunked
    }

    pub(super) fn is_chunked(&self) -> bool {
        self.is_chunked
    }

    pub(super) fn tells_end(&self, response: &Response, has_body: bool) -> bool {
        self.has_head() && (!has_body || self.is_chunked || response.content_length.is_some())
    }

    /// Whether responses have a head: not those of HTTP/0.9.
    fn has_head(&self) -> bool {
        self.version >= Version::HTTP_10
    }

    pub(super) fn sends_at_once(&self) -> bool {
        self.has_head()
    }

    pub(super) fn takes_pages(&self) -> bool {
        self.link.wire.stream.clear_socket().is_some()
    }

    pub(super) fn hold_next(&mut self, holds: bool) {
        self.link.wire.hold_next(holds);
    }

    pub(super) fn gather(&self, gathers: bool) {
        let _ = self.link.wire.stream.set_nodelay(!gathers);
    }

    pub(super) fn cork(&self, corks: bool) {
        let _ = self.link.wire.stream.set_nopush(corks);
    }

    #[inline]
    pub(super) fn send_now(&mut self, piece: &Piece<'_>) -> Result<Unsent, wire::Error> {
        let is_chunk = self.is_chunked && !piece.body.is_empty();
        let behind: &'static [u8] = match (is_chunk, piece.is_last) {
            (true, true) => b"\r\n0\r\n\r\n",
            (true, false) => response_writer::CRLF,
            (false, true) => b"0\r\n\r\n",
            (false, false) => &[],
        };
        let mut head_len = 0;
        let head = piece.head.filter(|_| self.has_head());
        let (is_persistent, is_chunked) = (self.is_persistent, self.is_chunked);
        let date = self.link.wire.owner().date();
        let write = |out: &mut Vec<u8>| {
            if let Some(head) = head {
                let context = HeadContext {
                    server_line: head.server_line,
                    date: &date,
                    connection: match (head.response.status, is_persistent) {
                        (101, _) => ConnectionHeader::Upgrade,
                        (_, true) => ConnectionHeader::KeepAlive(head.keepalive_told),
                        (_, false) => ConnectionHeader::Close,
                    },
                    is_chunked,
                };
                response_writer::head(out, head.response, &context);
                head_len = out.len() as u64;
            }
            if is_chunk {
                response_writer::chunk_head(out, piece.body.len() as u64);
            }
        };
        let (head, gone, behind_gone) = self.link.wire.send_now(write, piece.body, behind)?;
        Ok(Unsent {
            head,
            head_len,
            gone,
            behind: &behind[behind_gone..],
        })
    }

    pub(super) async fn open_piece(
        &mut self,
        timeout: Duration,
        len: u64,
    ) -> Result<(), wire::Error> {
        if !self.is_chunked {
            return Ok(());
        }
        let write = |out: &mut Vec<u8>| response_writer::chunk_head(out, len);
        self.send(timeout, write).await
    }

    pub(super) async fn send_bytes(
        &mut self,
        timeout: Duration,
        bytes: &[u8],
    ) -> Result<(), wire::Error> {
        match &self.meanwhile {
            None => self.link.wire.send_bytes(timeout, bytes).await,
            Some(_) => Box::pin(self.send_and_pass(timeout, bytes)).await,
        }
    }

    async fn send(
        &mut self,
        timeout: Duration,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), wire::Error> {
        let (unsent, ..) = self.link.wire.send_now(write, &[], &[])?;
        match unsent.is_empty() {
            true => Ok(()),
            false => self.send_bytes(timeout, &unsent).await,
        }
    }

    /// Sends bytes, and passes the body on while the client takes none.
    async fn send_and_pass(&mut self, timeout: Duration, bytes: &[u8]) -> Result<(), wire::Error> {
        let waits = FileWaits {
            client: timeout,
            disk: None,
        };
        let mut gone = 0;
        while gone < bytes.len() {
            match self.link.wire.try_send(&bytes[gone..]) {
                Ok(count) => gone += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let sink = self.sink(waits.clone());
                    sink.writable().await.map_err(of_wait)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) async fn close_piece(&mut self, timeout: Duration) -> Result<(), wire::Error> {
        match self.is_chunked {
            true => self.send_bytes(timeout, response_writer::CRLF).await,
            false => Ok(()),
        }
    }

    pub(super) fn send_copy(
        &mut self,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let send = |socket: BorrowedFd<'_>| file.send_copy(socket, offset, len);
        self.link.wire.try_send_by(send)
    }

    /// The socket as the disk layer writes to it.
    pub(super) fn sink(&mut self, waits: FileWaits) -> impl Sink {
        let (stream, timer, input) = self.link.wire.parts();
        let body = &mut self.body;
        let passing = self.meanwhile.as_deref_mut().map(|meanwhile| Passing {
            meanwhile,
            input,
            body,
        });
        ToClient {
            stream,
            timer: Cell::new(Some(timer)),
            waits,
            passing: RefCell::new(passing),
        }
    }

    pub(super) async fn end(
        &mut self,
        timeout: Duration,
        trailers: &[Header],
    ) -> Result<(), wire::Error> {
        let write = |out: &mut Vec<u8>| response_writer::last_chunk(out, trailers);
        self.send(timeout, write).await
    }

    pub(super) fn sent(&self) -> u64 {
        self.link.wire.sent()
    }

    pub(super) fn tunnel(&mut self, patience: Duration) -> ClientSide<'_> {
        let owner = Rc::clone(self.link.wire.owner());
        let early = self.link.wire.take_unread();
        let (stream, timer) = self.link.wire.halves();
        ClientSide {
            early,
            stream: ClientStream::Socket(stream),
            timer,
            owner,
            patience,
        }
    }
}

fn stopped(outcome: Option<Result<(), wire::Error>>) -> Result<(), BodyStop> {
    match outcome {
        Some(outcome) => outcome.map_err(BodyStop::Failed),
        None => Err(BodyStop::GaveWay),
    }
}

/// The error of [`ToClient`]'s wait as the connection's.
fn of_wait(error: io::Error) -> wire::Error {
    match error.kind() {
        io::ErrorKind::TimedOut => wire::Error::Timeout,
        _ => wire::Error::Io(error),
    }
}

/// A body that goes on apart from the response: a client may send all of it before it takes anything.
struct Meanwhile {
    pipe: Rc<Pipe>,
    /// Why nothing more can be read: told with the next read.
    fault: Option<wire::Error>,
}

/// The body that goes on, with what it is read by.
struct Passing<'a> {
    meanwhile: &'a mut Meanwhile,
    input: &'a mut Input,
    body: &'a mut Decoder,
}

impl Passing<'_> {
    /// Moves what has come into the pipe. No time limits it: that of the response does.
    fn go_on(&mut self, stream: &Stream, context: &mut Context<'_>) {
        let Meanwhile { pipe, fault } = &mut *self.meanwhile;
        while fault.is_none() && !pipe.has_end() && pipe.poll_room(context).is_ready() {
            let mut piece = Vec::new();
            let read = self
                .input
                .poll_body_into(stream, self.body, &mut piece, context);
            match read {
                Poll::Ready(Ok(())) => pipe.give(piece, self.body.is_end()),
                Poll::Ready(Err(error)) => *fault = Some(error),
                Poll::Pending => return,
            }
        }
    }
}

/// The client's socket as the disk layer sees it.
struct ToClient<'a> {
    stream: &'a Stream,
    /// Taken out only while it waits.
    timer: Cell<Option<&'a mut Timer>>,
    waits: FileWaits,
    /// The body that goes on while it waits.
    passing: RefCell<Option<Passing<'a>>>,
}

impl Sink for ToClient<'_> {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.clear_socket()
    }

    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.stream.try_write_by(operation)
    }

    fn room(&self) -> usize {
        match turn::may_go_on() {
            true => usize::MAX,
            false => 0,
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(bytes)
    }

    fn disk_limit(&self) -> impl Future<Output = Duration> {
        DiskLimit::reached(self.waits.disk.as_ref())
    }

    async fn writable(&self) -> io::Result<()> {
        let timer = self.timer.take().ok_or(io::ErrorKind::Other)?;
        let ready = std::future::poll_fn(|cx| {
            let ready = self.stream.poll_writable(cx);
            if ready.is_pending()
                && let Some(passing) = &mut *self.passing.borrow_mut()
            {
                passing.go_on(self.stream, cx);
            }
            ready
        });
        let outcome = timer.guard(self.waits.client, ready).await;
        self.timer.set(Some(timer));
        outcome.map_err(|wire::Elapsed| io::Error::from(io::ErrorKind::TimedOut))?
    }
}
