//! Requests and their sub-requests: how one is made of another, and what it takes over.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use message::Method;
use runtime::timing::poll_timing;

use super::body::{Arriving, RequestBody};
use super::whole::{Inclusion, Whole};
use super::{Request, UriOrigin};
use crate::Response;
use crate::route::LocationId;

/// State that a sub-request has of its ancestors.
#[derive(Debug)]
pub(super) struct Parent {
    /// Number of its ancestors; 0 for a stand-in of the client's own request.
    depth: u32,
    /// The method of the client's request, for `$request_method`.
    method_text: Bytes,
    /// The location whose error logs have its lines: as in nginx that of the client's request, when it was made.
    logged_at: LocationId,
    /// The response that it is a part of, where its body is shown.
    inclusion: Option<Inclusion>,
}

impl Request {
    /// A sub-request (see [`crate::subrequest`]).
    pub(crate) fn child(&self, uri: Bytes, args: Bytes, body: RequestBody) -> Box<Self> {
        let mut child = Self::begin(
            self.transport.detached(),
            Rc::clone(&self.client),
            Rc::clone(&self.generation),
            self.head.clone(),
            self.server,
            Arriving::given(body),
            poll_timing::now_ns(),
        );
        child.method = Method::Get;
        child.uri = uri;
        child.args = Some(args).filter(|args| !args.is_empty());
        child.is_internal = true;
        child.uri_origin = UriOrigin::Changed;
        child.head_length = 0;
        child.number = self.number;
        child.values = self.values.share();
        child.request_id = Cell::new(Some(self.id()));
        child.parent = Some(Box::new(Parent {
            depth: self.depth_of_subrequests() + 1,
            method_text: Bytes::copy_from_slice(self.main_method_text()),
            logged_at: self.logged_at(),
            inclusion: None,
        }));
        self.share_family_states(&mut child);
        child
    }

    /// A sub-request whose body is shown in another one's, with the client's own body where that is stored.
    pub(crate) fn included(&self, uri: Bytes, args: Bytes, inclusion: Inclusion) -> Box<Self> {
        // A body that is streamed can be had only once.
        let stored = self
            .body
            .body()
            .filter(|body| matches!(body, RequestBody::Stored(_)));
        let body = stored.cloned().unwrap_or(RequestBody::None);
        let mut child = self.child(uri, args, body);
        if let Some(parent) = &mut child.parent {
            parent.inclusion = Some(inclusion);
        }
        child
    }

    /// Stands in for this request where something is asked for that may outlive the borrow. It has the state that the
    /// modules share with it.
    #[must_use]
    pub fn stand_in(&self) -> Box<Self> {
        let mut stand_in = self.twin();
        self.share_states(&mut stand_in);
        stand_in
    }

    /// Stands in for this request while its page is made. It has the same variables, and this head as its response's.
    pub fn page_stand_in(&self, whole: Rc<Whole>, head: Box<Response>) -> Box<Self> {
        let mut stand_in = self.stand_in();
        stand_in.moment = self.moment;
        stand_in.head_length = self.head_length;
        stand_in.transport = self.transport.stand_in();
        stand_in.charset_hint = self.charset_hint;
        stand_in.response = Some(head);
        let is_value = self.is_value();
        if let Some(parent) = &mut stand_in.parent {
            parent.depth = self.depth_of_subrequests();
            parent.inclusion = Some(Inclusion {
                whole,
                stub: None,
                is_value,
            });
        }
        stand_in
    }

    /// A copy of this request as a sub-request, at the same point of its processing.
    pub fn twin(&self) -> Box<Self> {
        let body = self.body.body().cloned();
        let body = body.unwrap_or(RequestBody::None);
        let mut twin = self.child(self.uri.clone(), Bytes::new(), body);
        if let (Some(twins), Some(own)) = (&mut twin.parent, &self.parent) {
            twins.depth = own.depth;
        }
        twin.args = self.args.clone();
        twin.method = self.method;
        twin.location = self.location;
        twin.is_internal = self.is_internal;
        twin.is_passed_on = self.is_passed_on;
        twin.uri_origin = self.uri_origin;
        twin.add_uri_to_alias = self.add_uri_to_alias;
        twin.captures = self.captures.clone();
        twin
    }

    /// The location whose error logs have its lines.
    #[must_use]
    pub fn logged_at(&self) -> LocationId {
        match &self.parent {
            Some(parent) => parent.logged_at,
            None => self.location,
        }
    }

    /// Whether it is a sub-request, which has no connection.
    #[must_use]
    pub fn is_subrequest(&self) -> bool {
        self.parent.is_some()
    }

    /// Number of requests above it.
    #[must_use]
    pub fn depth_of_subrequests(&self) -> u32 {
        self.parent.as_ref().map_or(0, |parent| parent.depth)
    }

    /// The response that it is a part of.
    #[must_use]
    pub fn whole(&self) -> Option<&Rc<Whole>> {
        self.inclusion().map(|inclusion| &inclusion.whole)
    }

    /// Whether its body becomes the value of a variable.
    #[must_use]
    pub fn is_value(&self) -> bool {
        self.inclusion().is_some_and(|inclusion| inclusion.is_value)
    }

    /// The replacement for its response when that fails or is empty; taken once.
    pub fn take_stub(&mut self) -> Option<Box<Response>> {
        self.parent.as_mut()?.inclusion.as_mut()?.stub.take()
    }

    fn inclusion(&self) -> Option<&Inclusion> {
        self.parent.as_ref()?.inclusion.as_ref()
    }

    /// Takes the method of the request above it; it is GET otherwise.
    pub fn take_method(&mut self, parent: &Request) {
        self.method = parent.method;
    }

    /// Its method's text: `GET` once an error page took over a request of another method, or one whose line could not be
    /// read, which has none of its own.
    #[must_use]
    pub fn method_text(&self) -> &[u8] {
        if self.method != self.head.method {
            return b"GET";
        }
        match self.head.method_text() {
            [] if self.is_internal => self.method.name().as_bytes(),
            text => text,
        }
    }

    /// `$request_method`: the method of the client's request.
    #[must_use]
    pub fn main_method_text(&self) -> &[u8] {
        match &self.parent {
            Some(parent) => &parent.method_text,
            None => self.method_text(),
        }
    }
}
