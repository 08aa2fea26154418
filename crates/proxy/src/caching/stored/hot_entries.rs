//! Prepared answers of one loop: small entries that were used a moment ago, whose heads are the same for every request.
//!
//! A request that has a prepared answer only asks the index whether the entry is still the same one, and opens nothing:
//! the bytes are in this process's memory, or in that of the kernel, which is asked. Not here: entries that have to be
//! read (`serve`). Invariants: an answer is used only if the index has its entry under the same tag; there are at most
//! `PLACES` answers.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use cache::Entry;
use cache::freshness::Rules;
use cache::store::Hit;
use disk::OpenFile;
use disk::memory::MemoryLevel;
use disk::memory::level::level;
use logs::wall_clock::Moment;
use message::{Body, HeaderId, ResponseHead};
use runtime::direct_mapped::Places;
use runtime::{LOOP, Loop};
use slots::slotted;

use crate::caching::caches::open_cache::Cache;
use crate::caching::stored::age;
use crate::caching::stored::disk_work::first_of;
use crate::state::cache_state;
use crate::state::cache_state::Status;
use httpcore::Response;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::route::LocationId;

/// Maximum of responses that one loop keeps ready; a power of two.
const PLACES: usize = 2048;
/// Maximum size of the key and small body that one response holds, in bytes.
const BYTES_MAX: usize = 16 << 10;

/// The ready responses of one loop.
#[derive(Debug, Default)]
pub(crate) struct HotEntries(Places<HotEntry, PLACES>);

slotted!(LOOP: HotEntries);

impl HotEntries {
    fn of(loop_: &Loop) -> &HotEntries {
        loop_.state.get_or_init(|| {
            loop_.add_spare_memory(|loop_| HotEntries::of(loop_).0.clear());
            HotEntries::default()
        })
    }
}

struct HotEntry {
    key_text: Bytes,
    generation: u64,
    location: LocationId,
    cache: Arc<Cache>,
    entry: Rc<Entry>,
    head: Response,
    body: HotBody,
    age: RefCell<AgeText>,
}

/// The digits of an age, which is the same for all requests of a second.
#[derive(Default)]
struct AgeText {
    age: u32,
    digits: Bytes,
}

impl AgeText {
    fn of(&mut self, age: u32) -> Bytes {
        if self.age != age || self.digits.is_empty() {
            *self = Self {
                age,
                digits: age::number(age),
            };
        }
        self.digits.clone()
    }
}

/// The place of a body.
enum HotBody {
    /// There is no body.
    Nowhere,
    /// In this entry.
    Here(Bytes),
    /// In the copy that the disk layer keeps, for as long as it keeps it.
    Copied(Weak<OpenFile>),
    /// In a segment, wherever the entry is in it now; to be sent by the page while it is in memory.
    InSegment,
}

/// Answers a request whose response is ready, where requests cannot influence that. None: it is not ready.
pub(crate) fn answer(
    request: &mut Request,
    rules: &Rules,
    cache: &Arc<Cache>,
    key_text: &Bytes,
) -> Option<Outcome> {
    if cache.fills.has_complete() {
        return None;
    }
    let prepared = HotEntries::of(&request.client.loop_)
        .0
        .get(key_text, |prepared| {
            prepared.location == request.location
                && prepared.generation == request.generation.number
                && prepared.key_text == key_text
        })?;
    if !Arc::ptr_eq(&prepared.cache, cache) {
        return None;
    }
    let now = Moment::now().second();
    let known = cache.store()?.recall(&prepared.entry, now)?;
    if !rules.is_fresh(&known.lifetime, now) {
        return None;
    }
    let body = match &prepared.body {
        HotBody::Nowhere => Body::Empty,
        HotBody::Here(bytes) => Body::bytes(bytes.clone()),
        HotBody::Copied(file) => {
            let (file, range) = (file.upgrade()?, prepared.entry.body());
            request.client.loop_.disk.note_use(&file);
            Body::file(file, range.start, range.end - range.start)
        }
        HotBody::InSegment => {
            let (file, base) = cache.store()?.place_of(&known)?;
            let range = prepared.entry.body();
            let (start, len) = (base + range.start, range.end - range.start);
            let (disk, first) = (&request.client.loop_.disk, first_of(request));
            if !disk.is_present(&file, start, len.min(first)) {
                return None;
            }
            Body::file(file, start, len)
        }
    };
    let mut response = Box::new(prepared.head.with_body(body));
    let age = known.lifetime.age(now);
    let digits = prepared.age.borrow_mut().of(age);
    response.headers.push("Age", digits);
    let state = cache_state::of(request);
    state.status = Some(Status::Hit);
    state.age = Some(age);
    state.entry = Some(Rc::clone(&prepared.entry));
    Some(Outcome::Answer(response))
}

/// Keeps the response made from a hit, before its age was added, if the next request gets the same.
pub(crate) fn keep(
    request: &Request,
    cache: &Arc<Cache>,
    key_text: &Bytes,
    hit: &Hit,
    response: &Response,
) {
    let head = hit.entry.head();
    let is_same_for_all = level() < MemoryLevel::Buffers
        && hit.entry.variant().is_none()
        && response.status == head.status
        && !is_of_request(head);
    if !is_same_for_all || request.is_head() || key_text.len() > BYTES_MAX {
        return;
    }
    let loop_ = &request.client.loop_;
    let body = match &response.body {
        Body::Empty => HotBody::Nowhere,
        // It was used for the first time. Or its bytes leave the heap once the copy is written, which a later request sees.
        Body::Once(message::Chunk::Bytes(_))
            if hit.file.body().is_none() || loop_.disk.awaits_copy(&hit.file) =>
        {
            return;
        }
        Body::Once(message::Chunk::Bytes(bytes)) if bytes.len() <= BYTES_MAX => {
            HotBody::Here(bytes.clone())
        }
        Body::Once(message::Chunk::File(range)) if range.file.has_copy() => {
            HotBody::Copied(Rc::downgrade(&range.file))
        }
        Body::Once(message::Chunk::File(_))
            if hit.known.extent.is_in_segment() && !loop_.disk.awaits_copy(&hit.file) =>
        {
            HotBody::InSegment
        }
        _ => return,
    };
    let prepared = HotEntry {
        // A copy: the text may be a part of a larger block, which it would keep.
        key_text: Bytes::copy_from_slice(key_text),
        generation: request.generation.number,
        location: request.location,
        cache: Arc::clone(cache),
        entry: Rc::clone(&hit.entry),
        head: response.with_body(Body::Empty),
        body,
        age: RefCell::default(),
    };
    HotEntries::of(loop_).0.put(key_text, prepared);
}

/// Whether the response made from a head may differ between requests.
fn is_of_request(head: &ResponseHead) -> bool {
    use HeaderId::{Location, Refresh, SetCookie};
    let others = Location.bit() | Refresh.bit() | SetCookie.bit();
    let accelerates = |name: &[u8]| {
        name.get(..8)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"X-Accel-"))
    };
    head.known & others != 0 || head.iter().any(|(name, _, _)| accelerates(name))
}
