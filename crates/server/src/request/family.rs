//! Requests and their sub-requests: how one is made of another, and what it knows of it.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use message::Method;

use crate::loops::timing;
use crate::request_body::{Arriving, RequestBody};

use super::Request;

/// What a sub-request knows of those above it.
#[derive(Debug)]
pub(super) struct Parent {
    /// How many there are.
    depth: u32,
    /// The method of the client's request, for `$request_method`.
    method_text: Bytes,
}

impl Request {
    /// A sub-request (see [`crate::subrequest`]).
    pub(crate) fn child(&self, uri: Bytes, args: Bytes, body: RequestBody) -> Box<Self> {
        let mut child = Self::begin(
            self.wire.none_below(),
            Rc::clone(&self.client),
            Rc::clone(&self.generation),
            self.head.clone(),
            self.server,
            Arriving::given(body),
            timing::now_ns(),
        );
        child.method = Method::Get;
        child.uri = uri;
        child.args = args;
        child.is_internal = true;
        child.is_target_raw = false;
        child.head_length = 0;
        child.values = self.values.share();
        child.request_id = Cell::new(Some(self.id()));
        child.parent = Some(Box::new(Parent {
            depth: self.depth_of_subrequests() + 1,
            method_text: Bytes::copy_from_slice(self.main_method_text()),
        }));
        self.share_rare(&mut child);
        child
    }

    /// A sub-request that is the same as this request, at the same place on its way.
    pub(crate) fn twin(&self) -> Box<Self> {
        let body = self.body.body().cloned();
        let body = body.unwrap_or(RequestBody::None);
        let mut twin = self.child(self.uri.clone(), self.args.clone(), body);
        if let (Some(twins), Some(own)) = (&mut twin.parent, &self.parent) {
            twins.depth = own.depth;
        }
        twin.method = self.method;
        twin.location = self.location;
        twin.is_internal = self.is_internal;
        twin.is_location_valid = self.is_location_valid;
        twin.is_target_raw = self.is_target_raw;
        twin.add_uri_to_alias = self.add_uri_to_alias;
        twin.captures = self.captures.clone();
        twin
    }

    /// Is it a sub-request, which has no connection?
    #[must_use]
    pub fn is_subrequest(&self) -> bool {
        self.parent.is_some()
    }

    /// How many requests are above it.
    #[must_use]
    pub fn depth_of_subrequests(&self) -> u32 {
        self.parent.as_ref().map_or(0, |parent| parent.depth)
    }

    /// Takes the method of the request above it, which is GET otherwise.
    pub fn take_method(&mut self, parent: &Request) {
        self.method = parent.method;
    }

    /// `$request_method`: that of the client's request.
    #[must_use]
    pub fn main_method_text(&self) -> &[u8] {
        match &self.parent {
            Some(parent) => &parent.method_text,
            None => self.method_text(),
        }
    }
}
