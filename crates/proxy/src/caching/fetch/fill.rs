//! A fill: one request to the origin for a cache. A task of its own, on the loop of the request that needed it; that
//! request may be gone when the fill ends.
//!
//! Judges the answer, publishes it to the followers, and has it written meanwhile (`write_entry`). Not here: followers,
//! and what they do without an answer (`no_response`). Invariants: a slow client delays no other one, as far as the window
//! and the file reach. A slow disk delays none for long: after a while the writing is given up.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::FetchMoment;
use cache::fill::{Ending, Filler, Metadata, Sharing, Unwanted};
use cache::freshness::{
    self, FieldLine, OriginResponse, PassReason, Rules, Storable, StoreVerdict,
};
use cache::store::{Hit, Renewal};
use cache::{Key, Lifetime, Store, variant};
use cache::{KeyState, KnownKey};
use disk::DiskState;
use disk::in_place;
use disk::memory::MemoryLevel;
use disk::memory::level::level;
use logs::wall_clock::Moment;
use message::date::Seconds;
use message::range_fields::ContentRange;
use message::{BodyError, HeaderId, RequestHead, ResponseFraming, ResponseHead};
use runtime::{Loop, Seat};
use tokio::sync::{mpsc, oneshot};

use crate::caching::caches::open_cache::Cache;
use crate::caching::fetch::fill_exchange::{Asked, ask, unwanted};
use crate::caching::fetch::store_question::{StoreQuestion, Storing};
use crate::caching::fetch::write_entry;
use crate::caching::fetch::write_entry::EntryToWrite;
use crate::caching::write_backpressure::{DISK_PATIENCE, WritePermit};
use crate::exchange::upstream_exchange::NoAnswer;
use crate::response::accel;
use crate::response::upgrade::SWITCHING;
use crate::response::upstream_response::{UpstreamBody, UpstreamResponse};
use crate::settings::caching::rules;
use crate::settings::caching::{Caching, UseStale};
use crate::settings::proxy_pass::PassSettings;
use crate::upstream_request::request::UpstreamRequest;
use httpcore::settings::Location;
use upstream::next_upstream::PeerFailure;

/// Bytes of a response that stay in memory for its followers.
pub(super) const WINDOW_BYTES: usize = cache::fill::WINDOW_BYTES;

/// A fill before it begins.
pub(super) struct FillTask {
    /// The upstream request.
    pub upstream_request: Rc<UpstreamRequest>,
    /// The receiver of the response.
    pub filler: Filler,
    /// Whether the response may be stored.
    pub storing: Storing,
    /// The receiver of interim heads (`early_hints`).
    pub hints: Option<mpsc::Sender<Arc<ResponseHead>>>,
    /// The receiver of a 101, with the connection that is a tunnel from there on.
    pub switched: Option<oneshot::Sender<UpstreamResponse>>,
    /// The rest. Boxed: it is handed on from step to step.
    pub context: Box<FillContext>,
}

/// The part of a fill that is needed after the origin has answered.
pub(super) struct FillContext {
    /// The loop.
    pub loop_: Rc<Loop>,
    /// The settings that it was begun with.
    pub generation: Rc<httpcore::http_loop::generation::Generation>,
    /// The request's location.
    pub location: httpcore::route::LocationId,
    /// The cache.
    pub cache: Arc<Cache>,
    /// The text that the key is made of.
    pub key_text: Bytes,
    /// The key.
    pub main: Key,
    /// The variant that was looked up.
    pub looked_for: Option<Key>,
    /// The request's header lines, for `Vary`.
    pub head: RequestHead,
    /// The stored response that is no longer fresh.
    pub stale: Option<Box<Hit>>,
    /// Whether it was looked up and not found.
    pub is_miss: bool,
    /// Whether the origin was asked to revalidate the stored response.
    pub is_conditional: bool,
    /// Whether the disk did not bring what is stored.
    pub is_past_disk: bool,
    /// Purges from this moment on cover the response.
    pub moment: FetchMoment,
    /// Its place among the loop's connections, until the whole response has arrived.
    pub seat: Option<Seat>,
    /// Dropped when the whole response has arrived; a request may wait for that.
    pub end: Option<oneshot::Sender<()>>,
    /// When the origin was asked.
    pub asked: Seconds,
}

/// Runs a fill to its end.
pub(super) async fn run(task: FillTask) {
    let FillTask {
        upstream_request,
        filler,
        mut storing,
        hints,
        switched,
        context,
    } = task;
    let may_store = !matches!(storing, Storing::No);
    let asked = {
        let mut asked = pin!(ask(&context, upstream_request, may_store, hints));
        tokio::select! {
            biased;
            asked = &mut asked => asked,
            // An origin that is silent keeps its connection no longer.
            Unwanted = unwanted(&filler, &mut storing) => return,
        }
    };
    match asked {
        Asked::Unresolved => {
            context.note_failure(502);
            filler.end_without(Ending::Refused(502));
        }
        Asked::Nothing(none) => context.fail(filler, none),
        Asked::Answer(answer, _) if answer.head.status == SWITCHING => {
            switch(filler, answer, switched);
        }
        Asked::Answer(answer, permit) => {
            let permit = permit.filter(|_| answer.body.is_whole_within(usize::MAX));
            context.take(filler, answer, storing, permit).await;
        }
    }
}

/// Hands over a 101: it is for the request that asked for it alone, and there is nothing in it to store.
fn switch(
    filler: Filler,
    answer: UpstreamResponse,
    owner: Option<oneshot::Sender<UpstreamResponse>>,
) {
    let head = Arc::clone(&answer.head);
    if let Some(owner) = owner {
        // If the request has ended, the tunnel ends here.
        let _ = owner.send(answer);
    }
    filler.set_head(head, Sharing::Private);
    filler.finish();
}

/// Length of a response's body in bytes, if that is known; else 0. (A response to HEAD has the length of another one.)
fn expected(answer: &UpstreamResponse) -> u64 {
    match (&answer.body, answer.head.framing) {
        (UpstreamBody::Whole(body), _) => body.len() as u64,
        (UpstreamBody::Stream(_), ResponseFraming::Length(length)) => length,
        _ => 0,
    }
}

/// Whether a body of this length is not the part of a whole that its head says it is. (A response to HEAD has none.)
fn is_another_part(head: &ResponseHead, body_len: u64) -> bool {
    let part = head.get(HeaderId::ContentRange);
    let part = part.and_then(ContentRange::parse);
    head.status == 206 && body_len > 0 && part.is_some_and(|part| part.body_len() != body_len)
}

/// The ending for a failure to get a response.
fn ending(none: NoAnswer) -> Ending {
    match none.failure {
        Some(PeerFailure::Timeout) => Ending::TimedOut(none.status),
        Some(PeerFailure::InvalidHeader) => Ending::Invalid(none.status),
        Some(PeerFailure::Status(status)) => Ending::Covered(status),
        Some(PeerFailure::Error) => Ending::Lost(none.status),
        None if none.status == 502 => Ending::Lost(none.status),
        None => Ending::Refused(none.status),
    }
}

impl FillContext {
    fn location(&self) -> &Location {
        self.generation.settings.location(self.location)
    }

    fn passing(&self) -> Option<&PassSettings> {
        self.location().made()
    }

    /// Why the response is not to be written to the cache's disk; `None`: it may be. What a failing disk did not bring may
    /// be whole there, and what it takes in its place may never get there.
    pub(super) fn write_refusal(&self) -> Option<&'static str> {
        let keeps_its_own = self.is_past_disk && self.cache.disk.state() == DiskState::Failing;
        match keeps_its_own {
            true => Some("its disk fails, and has the entry still"),
            false => self.cache.write_refusal(),
        }
    }

    fn rules(&self) -> &Rules {
        rules(self.location())
    }

    fn store(&self) -> &Store {
        self.cache
            .former_store()
            .expect("there was no fill before it was open")
    }

    /// Ends a fill that got no response.
    fn fail(self: Box<Self>, filler: Filler, none: NoAnswer) {
        self.note_failure(none.status);
        filler.end_without(ending(none));
    }

    /// Keeps the origin from being asked again at once where nothing is stored (`proxy_cache_valid 502 …`); a fault of
    /// this server itself (500) may be gone with the next request.
    fn note_failure(&self, status: u16) {
        let is_of_origin = matches!(status, 502 | 504);
        let valid = self.rules().valid(status).filter(|_| is_of_origin);
        if let Some(seconds) = valid.filter(|_| self.is_miss) {
            let now = Moment::now().second();
            let known = KnownKey {
                state: KeyState::Failed,
                status,
                lifetime: Lifetime {
                    date: now,
                    expires: now.saturating_add(i64::from(seconds)),
                    ..Lifetime::default()
                },
                ..KnownKey::seen(self.looked_for.unwrap_or(self.main), now)
            };
            self.cache.note(&self.loop_, &known);
        }
    }

    async fn take(
        self: Box<Self>,
        filler: Filler,
        answer: UpstreamResponse,
        storing: Storing,
        permit: Option<WritePermit>,
    ) {
        let status = answer.head.status;
        if self.is_covered(status) {
            return filler.end_without(Ending::Covered(status));
        }
        if status == 304 && self.is_conditional {
            return in_place::boxed(|| self.renew(filler, &answer.head, storing)).await;
        }
        let storable = match self.may_store(&answer.head, storing).await {
            true => self.judge(&answer.head),
            false => None,
        };
        match storable {
            Some(storable) => self.share(filler, answer, storable, permit).await,
            None => {
                drop(permit);
                let mut body = answer.body;
                self.buffer(&answer.head, &mut body);
                filler.set_head(answer.head, Sharing::Private);
                if in_place::boxed(|| self.pump(&filler, body)).await.is_some() {
                    filler.finish();
                }
            }
        }
    }

    /// Whether the stored response is better than one with this status.
    fn is_covered(&self, status: u16) -> bool {
        let Some(hit) = &self.stale else { return false };
        let Some(kind) = UseStale::of_status(status) else {
            return false;
        };
        let is_wanted = self
            .location()
            .own::<Caching>()
            .proxy_cache_use_stale
            .has(kind);
        let failure = freshness::OriginFailure::Status(status);
        let now = Moment::now().second();
        self.rules()
            .may_cover(&hit.known.lifetime, now, failure, is_wanted)
    }

    async fn may_store(&self, head: &Arc<ResponseHead>, storing: Storing) -> bool {
        // The origin decides each time which client gets content that is elsewhere.
        let passing = self.passing();
        if passing.is_some_and(|passing| accel::has_redirect(passing, head)) {
            return false;
        }
        if !accel::is_buffered(self.location(), head) {
            return false;
        }
        match storing {
            Storing::No => false,
            Storing::Yes => true,
            Storing::Ask(owner) => {
                let (may_store, answer) = oneshot::channel();
                let question = StoreQuestion {
                    head: Arc::clone(head),
                    may_store,
                };
                owner.send(question).is_ok() && answer.await.unwrap_or(false)
            }
        }
    }

    fn judge(&self, head: &ResponseHead) -> Option<Storable> {
        let answer = OriginResponse {
            status: head.status,
            fields: head.iter(),
            is_authorized: self.head.get(HeaderId::Authorization).is_some(),
            is_slice: self.passing().is_some_and(PassSettings::asks_for_ranges),
            asked: self.asked,
            now: Moment::now().second(),
        };
        match freshness::judge(&answer, self.rules()) {
            StoreVerdict::Store(storable) => Some(storable),
            StoreVerdict::Pass(_) => None,
        }
    }

    /// The variant that the request asked for, of a response with this `Vary`.
    fn variant(&self, vary: &[u8]) -> Key {
        let text =
            |field: &message::Field| (self.head.text(field.name), self.head.text(field.value));
        variant(self.main, vary, self.head.fields.iter().map(text))
    }

    /// Opens the response to followers, and stores it.
    async fn share(
        self: Box<Self>,
        filler: Filler,
        answer: UpstreamResponse,
        storable: Storable,
        permit: Option<WritePermit>,
    ) {
        let own = (!storable.vary.is_empty()).then(|| self.variant(&storable.vary));
        let key = Store::key_for(self.main, self.looked_for, own);
        let vary = Bytes::from(storable.vary);
        filler.set_metadata(Metadata {
            vary: vary.clone(),
            variant: own.unwrap_or(key),
            lifetime: Some(storable.lifetime),
        });
        let (store, is_alone) = (self.store(), filler.is_alone());
        let refusal = self.write_refusal();
        let backpressure = &self.cache.backpressure;
        let is_saved = refusal.is_none() && backpressure.admits(store, &self.loop_, is_alone).await;
        if !is_saved {
            self.cache
                .shed(match (refusal, level() >= MemoryLevel::Fills) {
                    (Some(refusal), _) => refusal,
                    (None, true) => "memory is scarce",
                    (None, false) => "too much waits to be written already",
                });
        }
        let (expected, head) = (expected(&answer), answer.head);
        let saving = |body| {
            Box::new(EntryToWrite {
                cache: Arc::clone(&self.cache),
                store: self.store().clone(),
                local: self.loop_.disk.clone(),
                wheel: Rc::clone(&self.loop_.wire.wheel),
                body,
                head: Arc::clone(&head),
                key,
                main: self.main,
                variant: own.unwrap_or(key),
                key_text: self.key_text.clone(),
                vary,
                without: storable.without,
                lifetime: storable.lifetime,
                expected,
                moment: self.moment.clone(),
                permit,
            })
        };
        match answer.body {
            UpstreamBody::Whole(body) => {
                let is_whole = !is_another_part(&head, body.len() as u64);
                let is_saved = is_saved && is_whole && !self.has_newer(&filler, &key);
                let unfound = filler.finish_with(Arc::clone(&head), body.clone(), is_saved);
                let saving =
                    unfound.map(|unfound| saving(write_entry::BodySource::Whole(body, unfound)));
                // A fill that only waits for the disk takes no connection's place.
                drop(self);
                if let Some(saving) = saving {
                    in_place::boxed(|| write_entry::run(saving)).await;
                }
            }
            mut body @ UpstreamBody::Stream(_) => {
                self.buffer(&head, &mut body);
                let saver = is_saved.then(|| filler.writer()).flatten();
                let saving = saver.map(|saver| saving(write_entry::BodySource::Follower(saver)));
                filler.set_head(head, Sharing::Shared);
                in_place::boxed(|| self.pass_on(filler, body, key, saving)).await;
            }
        }
    }

    /// A response that is not stored is read ahead of slow followers like any other.
    fn buffer(&self, head: &ResponseHead, body: &mut UpstreamBody) {
        let location = self.location();
        if let UpstreamBody::Stream(stream) = body
            && accel::is_buffered(location, head)
        {
            let own = location.pool.get();
            stream.buffer_by(own.unwrap_or(&self.store().settings().pool));
        }
    }

    /// Whether a newer response is stored than this one, which was asked for beside others: then it must not be
    /// followed.
    fn has_newer(&self, filler: &Filler, key: &Key) -> bool {
        filler.is_alone() && self.store().has_newer(key, &self.moment)
    }

    /// Hands on a body as it arrives, and stores it meanwhile.
    async fn pass_on(
        mut self: Box<Self>,
        filler: Filler,
        body: UpstreamBody,
        key: Key,
        saving: Option<Box<EntryToWrite>>,
    ) {
        let save = async {
            if let Some(saving) = saving {
                write_entry::run(saving).await;
            }
        };
        let come = async {
            let whole_len = self.pump(&filler, body).await;
            let head = filler.fill().head();
            let is_other = whole_len
                .zip(head)
                .is_some_and(|(len, head)| is_another_part(&head, len));
            if is_other || self.has_newer(&filler, &key) {
                filler.stop_storing();
            }
            if whole_len.is_some() {
                filler.finish();
            }
            // As above: what is only waiting for the disk takes no connection's place.
            drop((self.seat.take(), self.end.take()));
        };
        tokio::join!(come, save);
    }

    /// Hands on the origin's body; the number of its bytes if that was all of it. A slow disk does not hold it back for
    /// long, and a silent origin is left as soon as the rest is not needed.
    async fn pump(&self, filler: &Filler, mut body: UpstreamBody) -> Option<u64> {
        let (mut patience, mut len) = (DISK_PATIENCE, 0);
        loop {
            let piece = tokio::select! {
                biased;
                piece = body.piece() => piece,
                Unwanted = filler.unwanted() => return None,
            };
            let Some(piece) = piece else { break };
            let piece = match piece {
                Ok(piece) => piece,
                // The reason is in the log already.
                Err(error) => {
                    if matches!(error, BodyError::Invalid) {
                        filler.spoil();
                    }
                    return None;
                }
            };
            len += piece.len() as u64;
            let given_up = || self.cache.shed("the disk is slower than the origin");
            let backpressure = &self.cache.backpressure;
            let pushed = backpressure.push(&self.loop_, filler, piece, &mut patience, given_up);
            // A body that is not in the cache's file need not wait for its followers either.
            if !body.ahead_of(pushed, || !filler.is_storing()).await {
                return None;
            }
        }
        filler.set_trailers(body.trailers());
        Some(len)
    }

    /// Ends a fill whose stored response has not changed, by the origin's word. No client waits for the disk to record
    /// that.
    async fn renew(
        mut self: Box<Self>,
        filler: Filler,
        head: &Arc<ResponseHead>,
        storing: Storing,
    ) {
        let Some(hit) = self.stale.clone() else {
            return filler.end_without(Ending::Refused(502));
        };
        drop(self.seat.take());
        let end = self.end.take();
        let stored = hit.entry.head();
        let StoreVerdict::Store(storable) = self.judge_renewal(stored, head) else {
            return filler.end_without(Ending::Renewed);
        };
        // The body was chosen by other fields of requests than these: it stays as old as it is.
        if storable.vary[..] != hit.entry.vary()[..] {
            return filler.end_without(Ending::Renewed);
        }
        let lifetime = storable.lifetime;
        // What must not be stored of a response must not be of a 304 either; as in nginx it renews the lifetime.
        let may_store = self.may_store(head, storing).await;
        let updated = freshness::updated_fields(stored.iter(), head.iter(), &storable.without);
        let (updated, patience) = match !may_store || self.are_same(&updated, stored) {
            true => (None, Duration::ZERO),
            false => (Some(updated), DISK_PATIENCE),
        };
        let mut update = pin!(self.update(&hit, lifetime, updated));
        let done = tokio::select! {
            biased;
            done = &mut update => Some(done),
            () = self.loop_.wire.wheel.sleep(patience) => None,
        };
        filler.end_without(Ending::Renewed);
        drop(end);
        let done = match done {
            Some(done) => done,
            None => update.await,
        };
        if let Err(error) = done {
            self.cache.tell("an entry cannot be renewed", &error);
        }
    }

    /// Judges a stored response with the lines of a 304 of the origin. An `Expires` that is over and that the 304 does
    /// not send anew says nothing of the response from now on: as in nginx `proxy_cache_valid` does.
    fn judge_renewal(&self, stored: &ResponseHead, head: &ResponseHead) -> StoreVerdict {
        let updated = freshness::updated_fields(stored.iter(), head.iter(), &[]);
        let now = Moment::now().second();
        let judge = |keeps_expires: bool| {
            let counts =
                move |(_, _, id): &FieldLine<'_>| keeps_expires || *id != HeaderId::Expires;
            let answer = OriginResponse {
                status: stored.status,
                fields: updated.iter().copied().filter(counts),
                is_authorized: self.head.get(HeaderId::Authorization).is_some(),
                is_slice: stored.status == 206,
                asked: self.asked,
                now,
            };
            freshness::judge(&answer, self.rules())
        };
        match judge(true) {
            StoreVerdict::Pass(PassReason::Stale) if head.get(HeaderId::Expires).is_none() => {
                judge(false)
            }
            verdict => verdict,
        }
    }

    /// Applies a 304: to the index at once, so that no other request asks meanwhile, then to the file.
    async fn update(
        &self,
        hit: &Hit,
        lifetime: Lifetime,
        updated: Option<Vec<FieldLine<'_>>>,
    ) -> Result<(), cache::Error> {
        let (store, local) = (self.store(), &self.loop_.disk);
        store.renew(local, &hit.known, lifetime).await?;
        let Some(fields) = updated else {
            return Ok(());
        };
        let pool = store.settings().pool.clone();
        let access = disk::Access {
            noatime: true,
            ..disk::Access::new(&pool)
        };
        let renewal = Renewal {
            lifetime,
            fields,
            moment: self.moment.clone(),
        };
        store.rewrite(local, &access, hit, renewal).await.map(drop)
    }

    /// Whether these lines equal the stored ones. `Date` is compared only where clients see it: the index knows a
    /// response's age.
    fn are_same(&self, updated: &[FieldLine<'_>], stored: &ResponseHead) -> bool {
        let passing = self.passing();
        let hides_date = passing.is_none_or(|passing| passing.hidden.has(b"Date", HeaderId::Date));
        let counts = |(_, _, id): &FieldLine<'_>| *id != HeaderId::Date || !hides_date;
        let mut updated: Vec<_> = updated.iter().copied().filter(counts).collect();
        let mut stored: Vec<_> = stored.iter().filter(counts).collect();
        updated.sort_unstable();
        stored.sort_unstable();
        updated == stored
    }
}
