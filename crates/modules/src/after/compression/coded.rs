//! A body behind a coder: compressed or decompressed as it is sent, on the loop where that is little work, else by
//! [`runtime::cpu_pool`].
//!
//! Not here: the coders themselves. Invariants: one piece is under way at a time, and the next one is asked for once it
//! was taken; no poll codes more input on the loop than [`Coder::inline_len`] allows; what a large coder has taken of
//! memory is freed by the pool.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use disk::{Disk, OpenFile};
use message::{Body, BodyError, Chunk, Header, Source};
use runtime::cpu_pool;
use runtime::timing::poll_timing;
use wire::turn;

use httpcore::body_filter::{AnswerBody, Inside};
use httpcore::request::Request;

use super::counters::{Codec, CodecCounters};
use super::places::Place;
use super::ratio::Ratio;

/// Maximum bytes that a coder gives at once.
pub const OUT_LEN: usize = 64 << 10;
/// Output shorter than this is kept until there is more, or until no more input is ready: coders give the beginning of
/// their format at once.
const HELD_LEN: usize = 4 << 10;
/// Minimum bytes of an output buffer: enough for a small answer, before it turns out that more is needed.
const OUT_LEN_LEAST: usize = 1 << 10;

/// The goal of a coder's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    /// To take its input.
    Take,
    /// To give all that it has taken.
    Flush,
    /// To end: there is no more input.
    End,
}

/// The progress of a coder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of its input that it has taken.
    pub taken: usize,
    /// Whether it has reached its goal; if not, it needs more room.
    pub is_done: bool,
}

/// A compressor or decompressor.
pub trait Coder: Send + 'static {
    /// Whether it may have megabytes once it has done much work: to free those takes the kernel milliseconds.
    const MAY_BE_LARGE: bool;

    /// Codes until the goal is reached or `out` is full; it does not grow `out`. For `Flush` and `End` there is no
    /// input.
    ///
    /// # Errors
    /// The reason why this cannot go on, for the log.
    fn code(
        &mut self,
        input: &[u8],
        goal: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<Progress, String>;

    /// Maximum bytes, taken and given since the last flush, that are coded on the loop: about 100 µs of work.
    fn inline_len(&self) -> usize;

    /// Whether it codes what it takes at once, but for a block: then a flush or an end is below half a millisecond of work.
    fn codes_at_once(&self) -> bool;

    /// An upper bound, in most cases, of its output for `len` bytes.
    fn room(&self, len: usize) -> usize;

    /// The end of its stream: it is no longer needed, and may be kept for another one if it is never large.
    fn finish(self)
    where
        Self: Sized,
    {
    }
}

/// A coder that is freed by the pool if it is large.
struct Owned<C: Coder> {
    /// There until it is freed.
    coder: Option<C>,
    /// The disk layer whose pool has worked with it; `None`: none has, so it is small.
    pool_of: Option<Arc<Disk>>,
}

impl<C: Coder> Drop for Owned<C> {
    fn drop(&mut self) {
        if let (Some(coder), Some(disk)) = (self.coder.take(), &self.pool_of)
            && C::MAY_BE_LARGE
        {
            cpu_pool::release(disk, coder);
        }
    }
}

/// A piece of work for a coder, and its result.
struct Work<C: Coder> {
    owned: Owned<C>,
    input: Bytes,
    goal: FlushMode,
    /// Bytes of the input that were taken.
    taken: usize,
    out: Vec<u8>,
    /// Bytes of `out` that were there before.
    held: usize,
    is_done: bool,
    failure: Option<String>,
    /// Its duration, in nanoseconds.
    took_ns: u64,
}

impl<C: Coder> Work<C> {
    /// Does the work, timed by `clock`.
    fn code(mut self, clock: fn() -> u64) -> Self {
        let begun = clock();
        let Some(coder) = &mut self.owned.coder else {
            return self;
        };
        match coder.code(&self.input, self.goal, &mut self.out) {
            Ok(progress) => {
                self.input.advance(progress.taken);
                self.taken = progress.taken;
                self.is_done = progress.is_done;
            }
            Err(failure) => self.failure = Some(failure),
        }
        if C::MAY_BE_LARGE && self.owned.pool_of.is_some() && self.is_over() {
            self.owned.coder = None;
        }
        self.took_ns = clock().saturating_sub(begun);
        self
    }

    /// Whether its coder is no longer needed.
    fn is_over(&self) -> bool {
        self.goal == FlushMode::End && self.is_done
    }
}

type Job<C> = Pin<Box<dyn Future<Output = Result<Work<C>, BodyError>>>>;

/// A body behind a coder.
struct Coded<C: Coder> {
    inside: Inside,
    disk: Arc<Disk>,
    /// `None` while it works elsewhere, and after the end.
    owned: Option<Owned<C>>,
    job: Option<Job<C>>,
    /// The next input of the coder.
    input: Bytes,
    goal: FlushMode,
    /// Whether the coder has not reached its goal yet.
    is_busy: bool,
    /// Output of the coder that has not been passed on yet.
    held: Vec<u8>,
    /// The end of the body, behind the output that came before it.
    failure: Option<BodyError>,
    /// Bytes taken and given since the last flush.
    since_flush: usize,
    /// Whether it was counted as an answer. The body of a HEAD's answer is never asked for.
    is_counted: bool,
    is_over: bool,
    ratio: Option<Rc<Ratio>>,
    /// That of its compressor, until its end.
    place: Option<Place>,
    codec: Codec,
    counters: Arc<CodecCounters>,
}

/// Processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (used.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(used.tv_nsec as u64)
}

/// The body behind a coder. Input and output of a compressor are counted in its ratio.
#[must_use]
pub fn body<C: Coder>(
    request: &Request,
    body: AnswerBody,
    coder: C,
    compressor: Option<(Rc<Ratio>, Place)>,
) -> AnswerBody {
    let (ratio, place) = compressor.unzip();
    let coding = ratio.as_ref().map(|ratio| ratio.coding());
    let codec = coding.map_or(Codec::Gunzip, Codec::from);
    let counters = request.client.loop_.figures.share();
    Body::Stream(Box::new(Coded {
        inside: Inside::new(request, body),
        disk: Arc::clone(request.client.loop_.disk.disk()),
        owned: Some(Owned {
            coder: Some(coder),
            pool_of: None,
        }),
        job: None,
        input: Bytes::new(),
        goal: FlushMode::Take,
        is_busy: false,
        held: Vec::new(),
        failure: None,
        since_flush: 0,
        is_counted: false,
        is_over: false,
        ratio,
        place,
        codec,
        counters,
    }))
}

impl<C: Coder> Coded<C> {
    /// Determines the coder's next goal.
    fn poll_goal(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        match self.inside.poll_bytes(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                if let Some(ratio) = &self.ratio {
                    ratio.take(bytes.len());
                }
                let counted = self.counters.of(self.codec);
                counted.taken.add(bytes.len() as u64);
                self.input = bytes;
                self.goal = FlushMode::Take;
            }
            // What the coder has taken comes before it.
            Poll::Ready(Some(Err(error))) if self.since_flush > 0 => {
                self.failure = Some(error);
                self.goal = FlushMode::Flush;
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(None) => self.goal = FlushMode::End,
            // If only the turn's budget is used up, more may be ready: no flush yet.
            Poll::Pending if turn::is_over() => return Poll::Pending,
            Poll::Pending if self.since_flush > 0 && !self.inside.is_reading() => {
                self.goal = FlushMode::Flush;
            }
            Poll::Pending => return Poll::Pending,
        }
        self.is_busy = true;
        Poll::Ready(Ok(()))
    }

    /// Has the coder continue: here, or on the thread pool, as `job`.
    fn work_on(&mut self, owned: Owned<C>) -> Option<Work<C>> {
        let coder = owned.coder.as_ref()?;
        let due = self.since_flush + self.input.len();
        let room = coder.room(due).clamp(OUT_LEN_LEAST, OUT_LEN);
        let is_taken = self.input.is_empty() && coder.codes_at_once();
        let is_little = due <= coder.inline_len() || is_taken;
        let mut out = std::mem::take(&mut self.held);
        out.reserve(room);
        let mut work = Work {
            owned,
            input: std::mem::take(&mut self.input),
            goal: self.goal,
            taken: 0,
            held: out.len(),
            out,
            is_done: false,
            failure: None,
            took_ns: 0,
        };
        if is_little {
            let done = work.code(poll_timing::now_ns);
            let counted = self.counters.of(self.codec);
            counted.loop_ns.add(done.took_ns);
            return Some(done);
        }
        let disk = Arc::clone(&self.disk);
        work.owned.pool_of = Some(Arc::clone(&disk));
        self.job = Some(Box::pin(async move {
            let done = cpu_pool::run(disk, || work.code(thread_ns)).await;
            done.map_err(|overflow| BodyError::Io(std::io::Error::other(overflow)))
        }));
        None
    }

    /// Takes back the coder and its output.
    fn take_back(&mut self, mut work: Work<C>) -> Result<Bytes, BodyError> {
        let given = work.out.len() - work.held;
        self.since_flush += work.taken + given;
        self.input = work.input;
        self.is_busy = !work.is_done;
        if let Some(ratio) = &self.ratio {
            ratio.give(given);
        }
        let counted = self.counters.of(self.codec);
        counted.given.add(given as u64);
        if let Some(failure) = work.failure {
            self.held = work.out;
            return self.fail(BodyError::Io(std::io::Error::other(failure)));
        }
        match (work.goal, work.is_done) {
            (FlushMode::End, true) => {
                if !C::MAY_BE_LARGE
                    && let Some(coder) = work.owned.coder.take()
                {
                    coder.finish();
                }
                self.is_over = true;
                self.place = None;
                if let Some(ratio) = &self.ratio {
                    ratio.end();
                }
            }
            (goal, is_done) => {
                if goal == FlushMode::Flush && is_done {
                    self.since_flush = 0;
                }
                self.owned = Some(work.owned);
                if goal == FlushMode::Take && is_done && work.out.len() < HELD_LEN {
                    self.held = work.out;
                    return Ok(Bytes::new());
                }
            }
        }
        Ok(work.out.into())
    }

    /// Passes on what came before a failure, which then is the next result.
    fn fail(&mut self, failure: BodyError) -> Result<Bytes, BodyError> {
        self.is_busy = false;
        if self.held.is_empty() {
            return Err(failure);
        }
        self.failure = Some(failure);
        Ok(std::mem::take(&mut self.held).into())
    }

    /// The coder's next output: often still empty; `None` at the end.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(job) = &mut self.job {
            let done = ready!(job.as_mut().poll(cx));
            self.job = None;
            if let Ok(work) = &done {
                let counted = self.counters.of(self.codec);
                counted.pool_ns.add(work.took_ns);
            }
            return Poll::Ready(Some(done.and_then(|work| self.take_back(work))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        if !self.is_busy
            && let Some(failure) = self.failure.take()
        {
            return Poll::Ready(Some(Err(failure)));
        }
        if !std::mem::replace(&mut self.is_counted, true) {
            let counted = self.counters.of(self.codec);
            counted.responses.add(1);
        }
        if !self.is_busy
            && let Err(error) = ready!(self.poll_goal(cx))
        {
            return Poll::Ready(Some(self.fail(error)));
        }
        // Without a coder, an earlier call failed.
        let Some(owned) = self.owned.take() else {
            return Poll::Ready(Some(Err(BodyError::Logged)));
        };
        match self.work_on(owned) {
            Some(work) => Poll::Ready(Some(self.take_back(work))),
            None => Poll::Ready(Some(Ok(Bytes::new()))),
        }
    }
}

impl<C: Coder> Source<Rc<OpenFile>> for Coded<C> {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        loop {
            match ready!(self.poll_step(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {
                    turn::spend_time();
                    ready!(turn::poll_go_on(cx));
                }
                other => return Poll::Ready(other.map(|given| given.map(Chunk::Bytes))),
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.inside.poll_ahead(cx);
    }

    fn is_over(&self) -> bool {
        self.is_over && self.job.is_none() && !self.inside.may_have_trailers()
    }

    fn takes_request(&self) -> bool {
        self.inside.takes_request()
    }

    fn trailers(&mut self) -> Vec<Header> {
        self.inside.trailers()
    }
}

/// The complete output of a coder for a text that comes in pieces of this length, with a flush after the first, and
/// little room.
#[cfg(test)]
pub fn all(mut coder: impl Coder, text: &[u8], piece: usize) -> Vec<u8> {
    let mut coded = Vec::new();
    let mut reach = |input: &[u8], goal| {
        let mut rest = input;
        loop {
            let mut out = Vec::with_capacity(1000);
            let progress = coder.code(rest, goal, &mut out).unwrap();
            rest = &rest[progress.taken..];
            coded.extend_from_slice(&out);
            if progress.is_done {
                assert!(rest.is_empty());
                return;
            }
        }
    };
    for (at, piece) in text.chunks(piece).enumerate() {
        reach(piece, FlushMode::Take);
        if at == 0 {
            reach(&[], FlushMode::Flush);
        }
    }
    reach(&[], FlushMode::End);
    coded
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    /// Tells the thread that frees it.
    struct Freed(Sender<ThreadId>);

    impl Drop for Freed {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    impl Coder for Freed {
        const MAY_BE_LARGE: bool = true;

        fn code(&mut self, _: &[u8], _: FlushMode, _: &mut Vec<u8>) -> Result<Progress, String> {
            Ok(Progress {
                taken: 0,
                is_done: true,
            })
        }

        fn inline_len(&self) -> usize {
            0
        }

        fn codes_at_once(&self) -> bool {
            false
        }

        fn room(&self, len: usize) -> usize {
            len
        }
    }

    #[test]
    fn a_large_coder_is_freed_by_the_pool() {
        let disk = Disk::new(Disk::prepare());
        let (sender, freed) = channel();
        let here = thread::current().id();
        for (pool_of, is_here) in [(None, true), (Some(Arc::clone(&disk)), false)] {
            let coder = Some(Freed(sender.clone()));
            drop(Owned { coder, pool_of });
            assert_eq!(freed.recv().unwrap() == here, is_here);
        }
        let work = Work {
            owned: Owned {
                coder: Some(Freed(sender)),
                pool_of: Some(disk),
            },
            input: Bytes::new(),
            goal: FlushMode::End,
            taken: 0,
            out: Vec::new(),
            held: 0,
            is_done: false,
            failure: None,
            took_ns: 0,
        };
        let at_its_end = thread::spawn(move || {
            let own = thread::current().id();
            (own, work.code(thread_ns).owned.coder.is_none())
        });
        let (pool_s, is_gone) = at_its_end.join().unwrap();
        assert_eq!((freed.recv().unwrap(), is_gone), (pool_s, true));
    }
}
