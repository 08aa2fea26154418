//! The state of a request in its cache, for the variables and the logs.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use cache::Entry;
use cache::freshness::{self, OriginResponse, Verdict};
use cache::store::Hit;
use logs::wall_clock::Moment;
use message::HeaderId;

use super::counters::Status;
use super::{cache_request, fill};
use crate::content::proxy::Passing;
use crate::request::Request;

/// Refusal text where every server that was asked failed.
const NO_ANSWER: &str = "no answer";

/// A request's record of its cache lookup; see the module.
#[derive(Debug, Default, Clone)]
pub struct Note {
    /// The stored entry that was used, where its head was not made anew (`$upstream_http_…`).
    pub entry: Option<Rc<Entry>>,
    /// `$upstream_cache_status`.
    pub status: Option<Status>,
    /// Whether it waits, or has waited, for what another request fetches (`$served_from`).
    pub follows: bool,
    /// `$upstream_cache_key`.
    pub key: Bytes,
    /// `$upstream_cache_age`: age of the stored response that was used, in seconds.
    pub age: Option<u32>,
    /// `$upstream_cache_last_modified`: of the stored response that is to be revalidated.
    pub last_modified: Option<Bytes>,
    /// `$upstream_cache_etag`: the same.
    pub etag: Option<Bytes>,
}

impl Note {
    /// Takes over the validators for a conditional request to the origin.
    pub fn set_validators(&mut self, hit: &Hit) {
        let head = hit.entry.head();
        let line = |id| head.get(id).map(|value| head.bytes.slice_ref(value));
        self.last_modified = line(HeaderId::LastModified);
        self.etag = line(HeaderId::ETag);
    }

    /// The header lines of the conditional request.
    #[must_use]
    pub fn conditions(&self) -> Vec<(Bytes, Bytes)> {
        let names: [(&'static [u8], _); 2] = [
            (b"If-Modified-Since", &self.last_modified),
            (b"If-None-Match", &self.etag),
        ];
        let lines = names.into_iter();
        lines
            .filter_map(|(name, value)| Some((Bytes::from_static(name), value.clone()?)))
            .collect()
    }
}

/// A request's record, made on first use.
pub fn of(request: &mut Request) -> &mut Note {
    request.cached.get_or_insert_default()
}

/// The variable that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// `$upstream_cache_status`
    Status,
    /// `$upstream_cache_key`
    Key,
    /// `$upstream_cache_age`
    Age,
    /// `$upstream_cache_last_modified`
    LastModified,
    /// `$upstream_cache_etag`
    ETag,
    /// `$upstream_cache_refusal`
    Refusal,
}

/// Appends a variable's value; false: it has none.
pub fn variable(request: &Request, which: Which, out: &mut Vec<u8>) -> bool {
    let Some(note) = &request.cached else {
        return false;
    };
    let mut put = |text: &[u8]| {
        out.extend_from_slice(text);
        true
    };
    match which {
        Which::Status => note
            .status
            .is_some_and(|status| put(status.name().as_bytes())),
        Which::Key => !note.key.is_empty() && put(&note.key),
        Which::Age => note
            .age
            .is_some_and(|age| put(itoa::Buffer::new().format(age).as_bytes())),
        Which::LastModified => note.last_modified.as_ref().is_some_and(|text| put(text)),
        Which::ETag => note.etag.as_ref().is_some_and(|text| put(text)),
        Which::Refusal => refusal(request).is_some_and(|why| put(why.as_bytes())),
    }
}

/// The reason why the origin's response is not stored, if its head gives one or there is no response.
fn refusal(request: &Request) -> Option<Cow<'static, str>> {
    let passed = request.passed.as_ref()?;
    let Some(head) = &passed.head else {
        let was_asked = !passed.record.tries.borrow().is_empty();
        return was_asked.then_some(NO_ANSWER.into());
    };
    let now = Moment::now().second();
    let passing = request.location().passing.as_deref();
    let answer = OriginResponse {
        status: head.status,
        fields: fill::lines(head),
        is_authorized: request.head.get(HeaderId::Authorization).is_some(),
        is_slice: passing.is_some_and(Passing::asks_for_ranges),
        asked: now,
        now,
    };
    match freshness::judge(&answer, cache_request::rules(request.location())) {
        Verdict::Pass(why) => Some(why.to_string().into()),
        Verdict::Store(_) => None,
    }
}
