//! A transport without a socket, for tests: what a request is given to read, and what is sent to it, are values.
//!
//! It marks the end of each body explicitly, as the frames of HTTP/2 and HTTP/3 do.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{pending, ready};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Bytes;
use disk::{OpenFile, Sink};
use message::{Body, Header};

use crate::Response;

use super::{BodyStop, Extent, Piece, Unsent};

/// The client of a request.
#[derive(Debug, Default)]
pub struct TestClient {
    /// The pieces of the request's body that were not read.
    unread: VecDeque<Bytes>,
    /// Whether the client has left.
    has_left: bool,
    /// Whether the client was asked for the body.
    pub is_invited: bool,
    /// The interim responses, with their status and lines.
    pub interims: Vec<(u16, Vec<Header>)>,
    /// The head, without its body.
    pub head: Option<Response>,
    /// The body, as far as it was sent.
    pub body: RefCell<Vec<u8>>,
    /// Whether the end was sent.
    pub is_ended: bool,
    /// The trailers.
    pub trailers: Vec<Header>,
    /// Number of writes: pieces, and parts of them.
    pub writes: Cell<u32>,
    is_closing: bool,
    /// Whether nothing follows the head.
    is_bodiless: bool,
    read: u64,
    sent: u64,
}

impl TestClient {
    /// A client that sends a body in these pieces.
    #[must_use]
    pub fn with_body(pieces: &[&'static str]) -> Self {
        let pieces = pieces.iter().copied();
        Self {
            unread: pieces.map(Bytes::from).collect(),
            ..Self::default()
        }
    }

    /// A client that has left.
    #[must_use]
    pub fn that_left() -> Self {
        Self {
            has_left: true,
            ..Self::default()
        }
    }

    pub(super) fn is_prompt(&self) -> bool {
        false
    }

    pub(super) fn is_pipelined(&self) -> bool {
        false
    }

    pub(super) fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(super) async fn peer_closed(&self) {
        if !self.has_left {
            pending::<()>().await;
        }
    }

    pub(super) fn is_body_over(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.read
    }

    pub(super) fn limit_body(&mut self, _: u64) {}

    pub(super) fn try_read_body(&mut self, out: &mut Vec<u8>) -> Result<bool, wire::Error> {
        let Some(piece) = self.unread.pop_front() else {
            return Ok(false);
        };
        self.read += piece.len() as u64;
        out.extend_from_slice(&piece);
        Ok(true)
    }

    pub(super) async fn read_body(
        &mut self,
        _: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyStop> {
        self.try_read_body(out).map_err(BodyStop::Failed)?;
        Ok(())
    }

    pub(super) async fn discard_body(&mut self, _: Duration, _: Duration) -> Result<(), BodyStop> {
        self.unread.clear();
        Ok(())
    }

    pub(super) fn is_persistent(&self) -> bool {
        !self.is_closing
    }

    pub(super) fn close_after_response(&mut self) {
        self.is_closing = true;
    }

    pub(super) async fn invite(&mut self, _: Duration) -> Result<(), wire::Error> {
        self.is_invited = true;
        Ok(())
    }

    pub(super) fn takes_interim(&self) -> bool {
        true
    }

    pub(super) async fn interim(
        &mut self,
        _: Duration,
        status: u16,
        lines: &[Header],
    ) -> Result<(), wire::Error> {
        self.interims.push((status, lines.to_vec()));
        Ok(())
    }

    pub(super) fn frame(&mut self, _: &mut Response, extent: &Extent) -> bool {
        self.is_bodiless = !extent.has_body;
        extent.has_body
    }

    pub(super) fn is_chunked(&self) -> bool {
        false
    }

    pub(super) fn tells_end(&self, _: &Response, _: bool) -> bool {
        true
    }

    pub(super) fn sends_at_once(&self) -> bool {
        true
    }

    pub(super) fn gather(&self, _: bool) {}

    pub(super) fn cork(&self, _: bool) {}

    pub(super) fn send_now(&mut self, piece: &Piece<'_>) -> Result<Unsent, wire::Error> {
        if let Some(head) = &piece.head {
            assert!(self.head.is_none(), "there is one head");
            self.head = Some(head.response.with_body(Body::Empty));
        }
        self.add(piece.body);
        self.is_ended |= piece.is_last || self.is_bodiless;
        Ok(Unsent {
            gone: piece.body.len(),
            ..Unsent::default()
        })
    }

    pub(super) async fn open_piece(&mut self, _: Duration, _: u64) -> Result<(), wire::Error> {
        Ok(())
    }

    pub(super) async fn send_bytes(
        &mut self,
        _: Duration,
        bytes: &[u8],
    ) -> Result<(), wire::Error> {
        if !bytes.is_empty() {
            self.add(bytes);
        }
        Ok(())
    }

    pub(super) async fn close_piece(&mut self, _: Duration) -> Result<(), wire::Error> {
        Ok(())
    }

    /// There is no socket that the kernel could send to.
    pub(super) fn send_copy(&mut self, _: &OpenFile, _: u64, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    pub(super) async fn end(
        &mut self,
        _: Duration,
        trailers: &[Header],
    ) -> Result<(), wire::Error> {
        self.is_ended = true;
        self.trailers = trailers.to_vec();
        Ok(())
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The response: status, length, body; its end has come.
    #[track_caller]
    pub fn whole(&self) -> (u16, Option<u64>, String) {
        assert!(self.is_ended);
        let head = self.head.as_ref().expect("a head was sent");
        let body = String::from_utf8(self.body.borrow().clone()).expect("bodies of tests are text");
        (head.status, head.content_length, body)
    }

    fn count_write(&self) {
        self.writes.update(|writes| writes + 1);
    }

    fn add(&mut self, bytes: &[u8]) {
        assert!(self.head.is_some(), "the head goes first");
        assert!(!self.is_ended, "nothing follows the end");
        self.body.get_mut().extend_from_slice(bytes);
        self.sent += bytes.len() as u64;
        self.count_write();
    }
}

/// Bytes of files come through [`Sink::try_write`], as under TLS.
impl Sink for TestClient {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        operation()
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.body.borrow_mut().extend_from_slice(bytes);
        self.count_write();
        Ok(bytes.len())
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> {
        ready(Ok(()))
    }
}
