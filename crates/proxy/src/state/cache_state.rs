//! The state of a request in its cache, for the variables and the logs.

use std::rc::Rc;

use bytes::Bytes;
use cache::Entry;
use cache::store::Hit;
use disk::OpenFile;
use message::HeaderId;

use httpcore::request::Request;
use httpcore::request::state::State;
use httpcore::request::successor::Successor;

/// `$upstream_cache_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing stored.
    Miss,
    /// `proxy_cache_bypass`.
    Bypass,
    /// Stored, no longer fresh, fetched anew.
    Expired,
    /// No longer fresh, used in place of a failure or while it is fetched anew.
    Stale,
    /// No longer fresh, used since another request fetches it anew.
    Updating,
    /// No longer fresh, and the origin said that it has not changed.
    Revalidated,
    /// Fresh.
    Hit,
}

/// All of them.
pub const STATUSES: [Status; 7] = [
    Status::Miss,
    Status::Bypass,
    Status::Expired,
    Status::Stale,
    Status::Updating,
    Status::Revalidated,
    Status::Hit,
];

impl Status {
    /// nginx's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Miss => "MISS",
            Self::Bypass => "BYPASS",
            Self::Expired => "EXPIRED",
            Self::Stale => "STALE",
            Self::Updating => "UPDATING",
            Self::Revalidated => "REVALIDATED",
            Self::Hit => "HIT",
        }
    }
}

/// A request's record of its cache lookup; see the module.
#[derive(Debug, Default, Clone)]
pub struct CacheState {
    /// The stored entry that was used, where its head was not made anew (`$upstream_http_…`).
    pub entry: Option<Rc<Entry>>,
    /// The file that the response is sent from, where it is one.
    pub stored: Option<StoredFile>,
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

/// A stored entry whose body is sent from its file.
#[derive(Debug, Clone)]
pub struct StoredFile {
    /// The entry.
    pub entry: Rc<Entry>,
    /// The file that holds it.
    pub file: Rc<OpenFile>,
    /// Where it begins in there, in bytes.
    pub base: u64,
    /// What has the rest of it, where its disk fails.
    pub successor: Successor,
}

impl State for CacheState {
    fn is_for_stand_in(&self) -> bool {
        true
    }

    fn successor(&self, file: &Rc<OpenFile>) -> Option<Successor> {
        let stored = self.stored.as_ref()?;
        Rc::ptr_eq(&stored.file, file).then_some(stored.successor)
    }

    /// A response made from this entry alone has no record of upstream servers.
    fn is_of_upstream(&self) -> bool {
        self.entry.is_some()
    }
}

impl CacheState {
    /// Takes over the validators for a conditional request to the origin.
    pub fn set_validators(&mut self, hit: &Hit) {
        let head = hit.entry.head();
        let line = |id| head.get(id).map(|value| head.bytes.slice_ref(value));
        // What is no date is no condition (RFC 9110, 13.1.3).
        let last_modified = line(HeaderId::LastModified);
        self.last_modified = last_modified.filter(|value| message::date::parse(value).is_some());
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
pub fn of(request: &mut Request) -> &mut CacheState {
    request.states.edit()
}
