//! The thread of an issuer: orders certificates that are missing, renews those that are due.
//!
//! Not here: the protocol (`client`), when something is due ([`crate::schedule`]). Invariants: one order of a certificate at a
//! time, in all processes with the same state directory; one line for each failure, with the authority's words; a certificate
//! stays until its successor is there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::clock::unix_now;
use crate::error::Error;
use crate::identifier::{Identifier, Order};
use crate::issuer::Issuer;
use crate::schedule::{self, ATTEMPTS_APART_MAX, ORDERS_APART_MIN, roll};
use crate::sink::{Figures, Level, Sink};
use crate::store::{Attempts, Issued, Lock, Store};

/// Maximum number of certificates of an issuer.
pub const ORDERS_MAX: usize = 10_000;
/// Maximum time between two looks at the clock, which may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Minimum time between two times that figures are told: each time tells those of all certificates.
const FIGURES_APART_MIN: Duration = Duration::from_secs(1);
/// Wait for another process that orders the same certificate.
const LOCKED_WAIT: Duration = Duration::from_secs(5);
/// Seconds by which a new certificate may begin later than now: more is a wrong clock.
const LATER_SECONDS_MAX: i64 = 24 * 3600;
/// Seconds before the end of a certificate from which on it is ordered even if the attempt cannot be noted on the disk.
const ENDING_SECONDS: i64 = 7 * 24 * 3600;

/// What is wanted, with the certificates that are there.
type Wanted = Vec<(Order, Option<Issued>)>;

/// The thread of an issuer. It ends, perhaps after an order, when this value is dropped.
#[derive(Debug)]
pub struct Renewal {
    issuer: Arc<Issuer>,
    store: Arc<Store>,
    wanted: Sender<Wanted>,
}

impl Renewal {
    /// Starts it. At most [`ORDERS_MAX`] certificates are taken. `is_changed`: because of a configuration that has changed, not
    /// because the process is a new one.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        issuer: Arc<Issuer>,
        store: Arc<Store>,
        (wanted, is_changed): (Wanted, bool),
        sink: Arc<dyn Sink>,
    ) -> io::Result<Self> {
        let (sender, changes) = mpsc::channel();
        let mut keeper = Keeper {
            issuer: Arc::clone(&issuer),
            store: Arc::clone(&store),
            sink,
            changes,
            jobs: Vec::new(),
            told_at: None,
            ask_from: None,
        };
        let name = "acme".to_owned();
        thread::Builder::new().name(name).spawn(move || {
            keeper.change(wanted, is_changed);
            keeper.run();
        })?;
        Ok(Self {
            issuer,
            store,
            wanted: sender,
        })
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }

    /// Its state.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Takes other certificates. What failed is tried again soon.
    pub fn change(&self, wanted: Wanted) {
        // Without a receiver the thread has ended: its process does, too.
        let _ = self.wanted.send(wanted);
    }
}

/// Something that is to be done for a certificate, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// There is none yet: to order it.
    First,
    /// To renew it.
    Renewal,
    /// To ask the authority when to renew it.
    Question,
}

/// A certificate, and what is known of it.
struct Job {
    order: Order,
    id: String,
    issued: Option<Issued>,
    /// Seconds since 1970.
    renew_at: i64,
    /// What the authority suggests: seconds since 1970.
    window: Option<(i64, i64)>,
    /// When the authority is asked for that; `None`: there is nothing to ask about.
    ask_at: Option<Instant>,
    /// Before this nothing is ordered.
    earliest: Instant,
    attempts: Attempts,
    orders: u64,
    failures: u64,
}

impl Job {
    fn new(order: Order, issued: Option<Issued>, store: &Store, is_changed: bool) -> Self {
        let id = order.id();
        let attempts = store.attempts(&id);
        let mut job = Self {
            earliest: Instant::now() + schedule::first_wait(&attempts, unix_now(), is_changed),
            attempts,
            order,
            id,
            issued: None,
            renew_at: 0,
            window: None,
            ask_at: None,
            orders: 0,
            failures: 0,
        };
        if let Some(issued) = issued {
            job.take(issued);
        }
        job
    }

    /// Has the certificate of another authority replaced as soon as may be. Until then it is shown.
    fn give_up(&mut self) {
        self.renew_at = 0;
        self.ask_at = None;
        if let Some(issued) = &mut self.issued {
            // The issuer's authority knows nothing of it.
            issued.renewal_id = None;
        }
    }

    /// Takes a certificate: it is renewed by its dates, unless the authority says something else.
    fn take(&mut self, issued: Issued) {
        self.renew_at = schedule::renew_at(issued.not_before, issued.not_after, roll());
        self.window = None;
        self.ask_at = issued.renewal_id.is_some().then(Instant::now);
        self.issued = Some(issued);
    }

    /// How long until it has to be ordered.
    fn until_order(&self, now: Instant) -> Duration {
        let wait = self.earliest.saturating_duration_since(now);
        let left = match &self.issued {
            None => 0,
            Some(_) => self.renew_at.saturating_sub(unix_now()).max(0),
        };
        wait.max(Duration::from_secs(left.unsigned_abs()))
    }

    fn until_question(&self, now: Instant) -> Option<Duration> {
        self.ask_at.map(|at| at.saturating_duration_since(now))
    }

    fn until_next(&self, now: Instant) -> Duration {
        let order = self.until_order(now);
        self.until_question(now)
            .map_or(order, |question| order.min(question))
    }

    /// What has to be done now.
    fn due(&self, now: Instant) -> Option<Task> {
        match (self.until_order(now).is_zero(), &self.issued) {
            (true, None) => Some(Task::First),
            (true, Some(_)) => Some(Task::Renewal),
            (false, _) => {
                let left = self.until_question(now)?;
                left.is_zero().then_some(Task::Question)
            }
        }
    }

    /// How long a failed attempt may put off the next one.
    fn failed_wait_max(&self) -> Duration {
        self.issued.as_ref().map_or(Duration::MAX, |issued| {
            schedule::failed_wait_max(issued.not_after, unix_now(), roll())
        })
    }

    fn figures(&self) -> Figures {
        let left = self.until_next(Instant::now()).as_secs();
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        Figures {
            id: self.id.clone(),
            name: self
                .order
                .identifiers
                .first()
                .map_or("", Identifier::value)
                .to_owned(),
            orders: self.orders,
            failures: self.failures,
            next_attempt: unix_now().saturating_add(left),
        }
    }
}

struct Keeper {
    issuer: Arc<Issuer>,
    store: Arc<Store>,
    sink: Arc<dyn Sink>,
    changes: Receiver<Wanted>,
    jobs: Vec<Job>,
    /// When figures were told last.
    told_at: Option<Instant>,
    /// Before this the authority is not asked when to renew: it has not answered.
    ask_from: Option<Instant>,
}

impl Keeper {
    fn run(&mut self) {
        loop {
            let told_in = self.tell_figures();
            let now = Instant::now();
            let waits = self.jobs.iter().map(|job| job.until_next(now));
            let wait = waits.chain(told_in).min().unwrap_or(LOOK_EVERY);
            let wait = wait.min(LOOK_EVERY);
            match self.changes.recv_timeout(wait) {
                Ok(wanted) => self.change(wanted, true),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !self.attend_to_all() {
                return;
            }
        }
    }

    /// Takes what is wanted now; what is known of a certificate stays.
    fn change(&mut self, wanted: Wanted, is_changed: bool) {
        let old = std::mem::take(&mut self.jobs).into_iter();
        let mut old: BTreeMap<Order, Job> = old.map(|job| (job.order.clone(), job)).collect();
        for (order, issued) in wanted.into_iter().take(ORDERS_MAX) {
            let job = match old.remove(&order) {
                None => self.begin(order, issued, is_changed),
                Some(mut job) => {
                    // The change may have mended it.
                    if job.attempts.failures > 0 {
                        let soon = schedule::first_wait(&job.attempts, unix_now(), true);
                        job.earliest = job.earliest.min(Instant::now() + soon);
                    }
                    job
                }
            };
            self.jobs.push(job);
        }
    }

    fn begin(&self, order: Order, issued: Option<Issued>, is_changed: bool) -> Job {
        let mut job = Job::new(order, issued, &self.store, is_changed);
        if job.issued.is_some() && job.attempts.is_foreign(&self.issuer) {
            job.give_up();
            let (issuer, id) = (&self.issuer.name, &job.id);
            let text = format!(
                "the certificate is of another authority than that of \"uri\", and is ordered anew, acme issuer: \"{issuer}\", order: \"{id}\""
            );
            self.sink.log(Level::Notice, &text);
        }
        job
    }

    /// Does what is due, the most urgent first; `false`: the thread has to end.
    fn attend_to_all(&mut self) -> bool {
        let (issuer, store, sink) = (
            Arc::clone(&self.issuer),
            Arc::clone(&self.store),
            Arc::clone(&self.sink),
        );
        let mut client: Option<Client<'_>> = None;
        for task in [Task::First, Task::Renewal, Task::Question] {
            for at in 0..self.jobs.len() {
                match self.changes.try_recv() {
                    Ok(wanted) => {
                        self.change(wanted, true);
                        return true;
                    }
                    Err(mpsc::TryRecvError::Disconnected) => return false,
                    Err(mpsc::TryRecvError::Empty) => {}
                }
                if self.jobs[at].due(Instant::now()) != Some(task) {
                    continue;
                }
                let opened = match client.take() {
                    Some(client) => Ok(client),
                    None => store
                        .open()
                        .and_then(|()| Client::new(&issuer, &store, &*sink)),
                };
                match opened {
                    Ok(opened) => self.attend_to(at, client.insert(opened)),
                    Err(error) => {
                        match task {
                            // No attempt of an order: the next one is one of the first.
                            Task::Question => self.question_failed(at, &error),
                            _ => self.failed(at, &error, "updating certificate"),
                        }
                        self.put_off(at);
                        return true;
                    }
                }
                self.tell_figures();
            }
        }
        true
    }

    /// The authority cannot be asked: what else is due waits as long as this certificate, unless it ends.
    fn put_off(&mut self, failed: usize) {
        let (earliest, ask_at) = (self.jobs[failed].earliest, self.jobs[failed].ask_at);
        let now = Instant::now();
        for job in self.jobs.iter_mut().filter(|job| job.due(now).is_some()) {
            let latest = now.checked_add(job.failed_wait_max());
            job.earliest = job
                .earliest
                .max(latest.map_or(earliest, |at| earliest.min(at)));
            job.ask_at = job.ask_at.max(job.ask_at.and(ask_at));
        }
    }

    fn attend_to(&mut self, at: usize, client: &mut Client<'_>) {
        let now = Instant::now();
        if self.jobs[at]
            .until_question(now)
            .is_some_and(|left| left.is_zero())
        {
            self.ask(at, client);
        }
        if self.jobs[at].until_order(now).is_zero() {
            self.order(at, client);
        }
    }

    /// Asks the authority when to renew.
    fn ask(&mut self, at: usize, client: &mut Client<'_>) {
        let job = &mut self.jobs[at];
        let id = job
            .issued
            .as_ref()
            .and_then(|issued| issued.renewal_id.clone());
        let (Some(id), true) = (id, client.has_renewal_info()) else {
            job.ask_at = Some(Instant::now() + ATTEMPTS_APART_MAX);
            return;
        };
        if let Some(from) = self.ask_from.filter(|from| *from > Instant::now()) {
            job.ask_at = Some(from);
            return;
        }
        let suggestion = match client.renewal_info(&id) {
            Ok(suggestion) => suggestion,
            Err(error) => return self.question_failed(at, &error),
        };
        job.ask_at = Some(Instant::now() + suggestion.ask_again);
        let window = suggestion.window;
        let end = job.issued.as_ref().map_or(0, |issued| issued.not_after);
        if job.window == Some(window) || window.0 >= end {
            return;
        }
        job.window = Some(window);
        job.renew_at = schedule::within((window.0, window.1.min(end)), roll());
        let why = suggestion.explanation.map_or(String::new(), |url| {
            let url: String = url
                .chars()
                .filter(|letter| !letter.is_control())
                .take(200)
                .collect();
            format!(", see {url} for details")
        });
        let text = format!(
            "CA suggested renewal window: {} to {}{why}, {}",
            date(window.0),
            date(window.1),
            self.about(at)
        );
        self.sink.log(Level::Notice, &text);
    }

    /// The authority does not say when to renew. Where that is not about this certificate alone, questions about others wait as
    /// long: each could take its time, and orders would wait behind them.
    fn question_failed(&mut self, at: usize, error: &Error) {
        let again = Instant::now() + schedule::ask_again(None);
        self.jobs[at].ask_at = Some(again);
        self.jobs[at].failures += 1;
        let text = format!("{error} while updating renewal info, {}", self.about(at));
        self.sink.log(Level::Warn, &text);
        if matches!(error, Error::Connection(_) | Error::RateLimited { .. }) {
            self.ask_from = Some(again);
        }
    }

    fn order(&mut self, at: usize, client: &mut Client<'_>) {
        let lock = match self.store.lock(&self.jobs[at].id) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                self.jobs[at].earliest = Instant::now() + LOCKED_WAIT;
                return;
            }
            Err(error) => return self.failed(at, &error, "updating certificate"),
        };
        if self.adopt(at) {
            return;
        }
        match self.order_locked(at, client, &lock) {
            Ok(()) => self.succeeded(at, client),
            Err(error) => self.failed(at, &error, "updating certificate"),
        }
    }

    /// Takes the certificate that another process has got meanwhile.
    fn adopt(&mut self, at: usize) -> bool {
        let job = &mut self.jobs[at];
        let end = job
            .issued
            .as_ref()
            .map_or(i64::MIN, |issued| issued.not_after);
        let Some(found) = self
            .store
            .load(&job.id)
            .filter(|found| found.not_after > end)
        else {
            return false;
        };
        let renew_at = schedule::renew_at(found.not_before, found.not_after, roll());
        let attempts = self.store.attempts(&job.id);
        if renew_at <= unix_now() || attempts.is_foreign(&self.issuer) {
            return false;
        }
        self.sink.issued(&self.issuer.name, &job.id, &found);
        job.take(found);
        job.attempts = attempts;
        true
    }

    fn order_locked(&mut self, at: usize, client: &mut Client<'_>, _: &Lock) -> Result<(), Error> {
        let job = &mut self.jobs[at];
        job.orders += 1;
        job.attempts.last = unix_now();
        let noted = self.store.write_attempts(&job.id, &job.attempts);
        let end = job.issued.as_ref().map(|issued| issued.not_after);
        if end.is_none_or(|end| end.saturating_sub(ENDING_SECONDS) > job.attempts.last) {
            // Without the note, starts in a row could order again and again.
            noted?;
        }
        let replaces = job
            .issued
            .as_ref()
            .and_then(|issued| issued.renewal_id.clone());
        let replaces = replaces.filter(|_| client.has_renewal_info());
        let issued = match client.order(&job.order, replaces.as_deref()) {
            Err(Error::Problem(problem)) if problem.is_of_account() => {
                // It was good when the last order ended.
                client.forget_account();
                client.order(&job.order, replaces.as_deref())?
            }
            outcome => outcome?,
        };
        let written = self.store.prepare(&job.id, &issued);
        self.sink.issued(&self.issuer.name, &job.id, &issued);
        let written = written.and_then(|()| self.store.commit(&job.id));
        job.take(issued);
        if let Err(error) = written {
            // It is shown, and lost with the process.
            let text = format!("{error} while writing the certificate, {}", self.about(at));
            self.sink.log(Level::Error, &text);
        }
        Ok(())
    }

    fn succeeded(&mut self, at: usize, client: &mut Client<'_>) {
        self.jobs[at].attempts.failures = 0;
        self.jobs[at].attempts.until = 0;
        self.jobs[at].attempts.authority = self.issuer.uri.digest();
        let text = format!(
            "certificate issued, renewal scheduled at {}, {}",
            date(self.jobs[at].renew_at),
            self.about(at)
        );
        self.sink.log(Level::Notice, &text);
        self.ask(at, client);
        let job = &mut self.jobs[at];
        let (begin, end) = job
            .issued
            .as_ref()
            .map_or((0, 0), |issued| (issued.not_before, issued.not_after));
        let now = unix_now();
        job.earliest = Instant::now() + ORDERS_APART_MIN;
        if job.renew_at <= now || begin > now + LATER_SECONDS_MAX {
            job.attempts.early = job.attempts.early.saturating_add(1);
            let wait = schedule::early_wait(job.attempts.early);
            job.earliest = Instant::now() + wait;
            let text = format!(
                "the certificate is due as soon as it came: it holds from {} to {}, and it is {} by this machine's clock; next order in {} s, {}",
                date(begin),
                date(end),
                date(now),
                wait.as_secs(),
                self.about(at)
            );
            self.sink.log(Level::Warn, &text);
        } else {
            job.attempts.early = 0;
        }
        let job = &self.jobs[at];
        let _ = self.store.write_attempts(&job.id, &job.attempts);
    }

    fn failed(&mut self, at: usize, error: &Error, what: &str) {
        let job = &mut self.jobs[at];
        job.failures += 1;
        job.attempts.failures = job.attempts.failures.saturating_add(1);
        job.attempts.last = unix_now();
        let own = schedule::failed_wait(job.attempts.failures, error.is_lasting(), roll());
        let own = own.min(job.failed_wait_max());
        let wait = match error {
            Error::RateLimited { wait, .. } => {
                let wait = (*wait).min(ATTEMPTS_APART_MAX);
                job.attempts.until = unix_now() + i64::try_from(wait.as_secs()).unwrap_or(0);
                own.max(wait)
            }
            _ => own,
        };
        job.earliest = Instant::now() + wait;
        // The question waits as long: it would fail for the same reason.
        job.ask_at = job
            .ask_at
            .map(|ask_at| ask_at.max(Instant::now() + wait.min(schedule::ask_again(None))));
        let _ = self.store.write_attempts(&job.id, &job.attempts);
        let level = match error.is_lasting() {
            true => Level::Error,
            false => Level::Warn,
        };
        let text = format!(
            "{error} while {what}, {}, next attempt in {} s",
            self.about(at),
            wait.as_secs()
        );
        self.sink.log(level, &text);
    }

    /// The end of a line about a certificate.
    fn about(&self, at: usize) -> String {
        let (issuer, id) = (&self.issuer.name, &self.jobs[at].id);
        format!("acme issuer: \"{issuer}\", order: \"{id}\"")
    }

    /// Tells the figures, unless that was done a moment ago; then the time after which it may be done.
    fn tell_figures(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let next = self.told_at.map(|told_at| told_at + FIGURES_APART_MIN);
        if let Some(next) = next.filter(|next| *next > now) {
            return Some(next - now);
        }
        self.told_at = Some(now);
        let all = self.jobs.iter().map(Job::figures).collect();
        self.sink.figures(&self.issuer.name, all);
        None
    }
}

/// A time as text.
fn date(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
#[path = "renewal_tests.rs"]
mod tests;
