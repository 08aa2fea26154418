//! The upstream servers that a request was passed on to, and how each attempt went: for the variables and the logs.
//!
//! Shared by the request and by the exchange, which may outlive it (a cache's fill). Invariant: all of it stays on one
//! loop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use message::{Header, ResponseHead};

use crate::request::Request;
use crate::upstream::Upstream;
use crate::upstream::attempts::Tries;
use crate::upstream::sticky::{Lesson, Session};

/// What a request knows of it.
#[derive(Debug, Default, Clone)]
pub struct Passed {
    /// What was tried.
    pub record: Rc<Record>,
    /// `$proxy_host`.
    pub host: Bytes,
    /// `$proxy_port`.
    pub port: Bytes,
    /// The head of the last answer (`$upstream_http_…`).
    pub head: Option<Box<ResponseHead>>,
}

/// What was tried.
#[derive(Debug, Default)]
pub struct Record {
    /// Try after try.
    pub tries: RefCell<Tries>,
    /// Behind the last answer (`$upstream_trailer_…`).
    pub trailers: RefCell<Vec<Header>>,
    /// The server that was asked last, where sessions stay at one.
    pub bond: RefCell<Option<Box<Bond>>>,
    /// The location that asked takes no notice of `X-Accel-Charset`, wherever the answer led to.
    pub ignores_charset: Cell<bool>,
    /// What is to be remembered of a session when the answer has ended.
    pub lesson: RefCell<Option<Box<Lesson>>>,
}

/// A session and the server that it is bound to now (`sticky`).
#[derive(Debug)]
pub struct Bond {
    /// The group.
    pub upstream: Arc<Upstream>,
    /// The request's session.
    pub session: Session,
    /// The server.
    pub sid: Bytes,
    /// The answer has ended.
    pub is_over: bool,
}

impl Passed {
    /// The request goes another way: it is not known any more who is asked.
    pub fn forget_whom(&mut self) {
        self.host = Bytes::new();
        self.port = Bytes::new();
    }
}

impl Record {
    /// The last answer's body is not passed on: none of it counts, however much has come.
    pub fn forget_body(&self) {
        if let Some(one) = self.tries.borrow_mut().last() {
            one.response_length = 0;
        }
    }

    /// The answer has ended: what there is to remember is remembered.
    pub fn end(&self) {
        if let Some(lesson) = self.lesson.take() {
            lesson.learn();
        }
        if let Some(bond) = &mut *self.bond.borrow_mut() {
            bond.is_over = true;
        }
    }
}

impl Bond {
    /// The `Set-Cookie` of an answer.
    #[must_use]
    pub fn cookie(&self, request: &Request) -> Option<Bytes> {
        self.upstream.sticky()?.set_cookie(request, &self.sid)
    }

    /// An answer's head is known to the request: what it says of the session is remembered, now or at its end.
    pub fn learn(&self, request: &Request, record: &Record) {
        let Some(sticky) = self.upstream.sticky() else {
            return;
        };
        match sticky.lesson(request, &self.session, &self.sid) {
            Some(lesson) if lesson.is_early() || self.is_over => lesson.learn(),
            lesson => *record.lesson.borrow_mut() = lesson.map(Box::new),
        }
    }
}
