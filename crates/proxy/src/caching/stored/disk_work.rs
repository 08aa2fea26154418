//! What a request asks of its cache's disk: at once what is in memory, else as work that owns all it needs, so that it
//! can be raced or dropped.
//!
//! Not here: what the request does instead (`lookup`), and the race with the origin (`hedge`). Invariants: nothing is
//! asked of a disk that is out; a body is returned once its first part was read, so that a disk's failure is known
//! before the head is sent.

use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use cache::store::{Checks, Hit, LookupOutcome, Uses};
use cache::{EntryFault, Error, Key, Store};
use disk::{Access, AioMode, DiskState, Local, OpenFile, Pool, READ_MAX, in_place};
use message::date::Seconds;
use message::{Body, RequestHead};

use crate::caching::cache_request::{CacheRequest, access_by, lines_of, local};
use crate::caching::stored::verify;
use httpcore::Failure;
use httpcore::files::by_page::{TOGETHER_MAX, goes_by_page};
use httpcore::request::Request;
use httpcore::transport::{DiskLimit, Transport};

/// Maximum size of a body that is checked before its response begins, in bytes; of a longer one, the first part is.
const CHECKED_FIRST_MAX: u64 = 1 << 20;
/// Bytes of a body that are read before its response begins; of one that was verified already.
const FIRST: u64 = 64 << 10;
/// The same, while the disk is slow or fails, and of a part of another response.
const FIRST_SICK: u64 = 1 << 20;
/// Work for a disk, which owns what it needs.
pub(crate) type DiskWork<T> = Pin<Box<dyn Future<Output = T>>>;

/// The first answer.
pub(crate) enum Quick<T> {
    /// From memory.
    Done(T),
    /// The disk has to be waited for.
    Wait(DiskWork<T>),
    /// The disk is out.
    Past,
}

/// The result of a look-up.
pub(crate) type Found = Result<LookupOutcome, Error>;
/// A stored body, ready to be sent.
pub(crate) type ReadBody = Result<Body<Rc<OpenFile>>, Error>;

/// The means of a disk's work.
#[derive(Clone)]
struct Means {
    store: Store,
    local: Local,
    pool: Pool,
    mode: AioMode,
    moment: u64,
}

impl Means {
    fn of(request: &Request, cache_request: &CacheRequest<'_>, access: &Access<'_>) -> Self {
        Self {
            store: cache_request.store.clone(),
            local: local(request).clone(),
            pool: access.pool.clone(),
            mode: access.mode,
            moment: access.moment,
        }
    }

    fn access(&self) -> Access<'_> {
        Access {
            mode: self.mode,
            moment: self.moment,
            ..access_by(&self.pool)
        }
    }
}

/// Looks the stored response up.
///
/// # Errors
/// 500: the pool's name, made from variables, names no pool.
pub(crate) async fn find(
    request: &Request,
    cache_request: &CacheRequest<'_>,
) -> Result<Quick<Found>, Failure> {
    let access = cache_request.access(request)?;
    let disk = &cache_request.cache.disk;
    let wheel = &request.client.loop_.wire.wheel;
    let in_memory = access.in_memory();
    let found = tokio::select! {
        biased;
        found = cache_request.find(request, &in_memory) => found,
        // It waits only where it deletes what a purge covers.
        () = wheel.sleep(disk.patience()) => return Ok(Quick::Past),
    };
    if !matches!(found, Err(Error::Disk(disk::Error::NotInMemory(_)))) {
        return Ok(Quick::Done(found));
    }
    if disk.is_out() {
        return Ok(Quick::Past);
    }
    let means = Means::of(request, cache_request, &access);
    let head = (*request.head).clone();
    let key = (cache_request.main, cache_request.key_text.clone());
    let now = cache_request.now;
    Ok(Quick::Wait(
        in_place::boxed(|| find_by(means, head, key, now)).into_pin(),
    ))
}

async fn find_by(means: Means, head: RequestHead, key: (Key, Bytes), now: Seconds) -> Found {
    let access = means.access();
    let lines = lines_of(&head);
    let find = means.store.find(
        &means.local,
        &access,
        (key.0, &key.1),
        lines,
        now,
        Uses::Counted,
    );
    find.await
}

/// The body of a hit, its first part read and verified.
pub(crate) fn body(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
) -> Quick<ReadBody> {
    // A stream of HTTP/2 that is slow holds no buffer for a file.
    let is_at_once = match &request.transport {
        Transport::Http2(_) => false,
        transport => transport.sends_at_once(),
    };
    if request.is_head() {
        return Quick::Done(Ok(kept(hit).unwrap_or_else(|| file_of(hit))));
    }
    let (is_part, first) = (request.is_subrequest(), first_of(request));
    let is_read = |start, len| {
        let is_small = is_at_once && len <= TOGETHER_MAX;
        is_small && !goes_by_page(request, &hit.file, start, len)
    };
    if hit.known.is_verified
        && let Some(body) = present(local(request), hit, first, is_read)
    {
        return Quick::Done(Ok(body));
    }
    let Ok(access) = cache_request.access(request) else {
        return Quick::Past;
    };
    if cache_request.cache.disk.is_out() {
        return Quick::Past;
    }
    let means = Means::of(request, cache_request, &access);
    let hit = hit.clone();
    let len = hit.entry.body_len();
    if (is_part || !hit.known.is_verified) && len > CHECKED_FIRST_MAX {
        let verified = verify::body(request, cache_request, hit, means.pool);
        return Quick::Wait(Box::pin(verified));
    }
    let cache = cache_request.cache;
    let first = match (is_part, cache.disk.state()) {
        (false, DiskState::Well) => FIRST,
        _ => FIRST_SICK,
    };
    Quick::Wait(in_place::boxed(|| read(means, hit, is_at_once, first)).into_pin())
}

/// Bytes of a verified body that have to be in memory before its response begins.
pub(crate) fn first_of(request: &Request) -> u64 {
    // A part of another response is sent as that one's body: nothing can go on with it once its bytes are handed over.
    match request.is_subrequest() {
        true => u64::MAX,
        false => FIRST,
    }
}

fn file_of(hit: &Hit) -> Body<Rc<OpenFile>> {
    let range = hit.entry.body();
    let start = hit.base + range.start;
    Body::file(Rc::clone(&hit.file), start, range.end - range.start)
}

/// The body, where the disk layer keeps a copy of it, the look-up has read it, or there is none. A copy is asked for first:
/// once it is written, it takes the place of the bytes in the heap.
fn kept(hit: &Hit) -> Option<Body<Rc<OpenFile>>> {
    let range = hit.entry.body();
    if range.is_empty() {
        return Some(Body::Empty);
    }
    if hit.file.has_copy() {
        return (hit.file.meta().len >= range.end).then(|| file_of(hit));
    }
    let is_inside = |whole: &Bytes| whole.len() as u64 >= range.end;
    let whole = hit.file.body().or_else(|| hit.whole.clone());
    let whole = whole.filter(is_inside)?;
    Some(Body::bytes(
        whole.slice(range.start as usize..range.end as usize),
    ))
}

/// Whether the next request for a hit needs no disk, as far as its body is concerned.
pub(crate) fn is_kept(hit: &Hit) -> bool {
    hit.entry.body().is_empty() || hit.file.has_copy() || hit.file.body().is_some()
}

/// The body, if it is in memory, or its first bytes are; as bytes where the range of it in its file `is_read`.
fn present(
    local: &Local,
    hit: &Hit,
    first: u64,
    is_read: impl FnOnce(u64, u64) -> bool,
) -> Option<Body<Rc<OpenFile>>> {
    if let Some(body) = kept(hit) {
        return Some(body);
    }
    let range = hit.entry.body();
    let (start, len) = (hit.base + range.start, range.end - range.start);
    if is_read(start, len) {
        let bytes = local.try_read(&hit.file, start, len as usize).ok()?;
        let bytes = bytes.ok().filter(|bytes| bytes.len() as u64 == len)?;
        return Some(Body::bytes(bytes));
    }
    let is_present = local.is_present(&hit.file, start, len.min(first));
    is_present.then(|| file_of(hit))
}

/// Reads what has to be there before the head is sent.
async fn read(means: Means, hit: Hit, at_once: bool, first: u64) -> ReadBody {
    let access = means.access();
    let (local, range) = (&means.local, hit.entry.body());
    let (start, len) = (hit.base + range.start, range.end - range.start);
    if !hit.known.is_verified {
        let mut checks = Checks::of(&hit);
        let (store, whole) = (&means.store, 0..len);
        let verify = store.verify(local, &access, &hit, &mut checks, &whole);
        verify.await?;
        let is_read = |_, len| at_once && len <= TOGETHER_MAX;
        if let Some(body) = present(local, &hit, first, is_read) {
            return Ok(body);
        }
    }
    if len <= TOGETHER_MAX && at_once {
        let bytes = local.read(&hit.file, start, len as usize, &access).await?;
        return match bytes.len() as u64 == len {
            true => Ok(Body::bytes(bytes)),
            false => Err(EntryFault::Damaged("end").into()),
        };
    }
    let (mut at, end) = (start, start + len.min(first));
    while at < end {
        let step = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(READ_MAX);
        match local.read(&hit.file, at, step, &access).await?.len() {
            0 => return Err(EntryFault::Damaged("end").into()),
            read => at += read as u64,
        }
    }
    Ok(file_of(&hit))
}

/// Waits for work as long as a request may. None: it took too long, or the disk is out.
pub(crate) async fn wait<T>(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    quick: Quick<T>,
) -> Option<T> {
    let work = match quick {
        Quick::Done(done) => return Some(done),
        Quick::Past => return None,
        Quick::Wait(work) => work,
    };
    let limit = patience(request, cache_request);
    // Boxed, as every wait for a pool.
    Box::pin(async move {
        tokio::select! {
            biased;
            done = work => Some(done),
            _ = DiskLimit::reached(Some(&limit)) => None,
        }
    })
    .await
}

/// The limit of a request's wait for its cache's disk.
pub(crate) fn patience(request: &Request, cache_request: &CacheRequest<'_>) -> DiskLimit {
    DiskLimit::of_disk(&request.client.loop_.wire.wheel, &cache_request.cache.disk)
}
