//! Certificates by ACME: the threads of issuers in the master, and what they have for workers.
//!
//! The threads are the master's, since state directories are. They put changes into a queue and ring a bell; the master passes
//! them on to its workers, and answers when these have taken them. A new worker gets all that is known, in front of its first
//! configuration. With `master_process off` the threads change what is shown themselves. Not here: getting certificates (crate
//! `acme`). Invariants: a worker knows a certificate before a configuration that shows it; a challenge is told of only when
//! every serving worker answers it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use acme::challenge::Challenge;
use acme::{Figures, Issued, Renewal, Sink, Store};
use httpcore::tls::acme as shown;
use logs::process_log::{Level, error_log};
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::frame::{Frame, Reader, Writer};
use super::master::{Master, Purpose};
use super::supervise::{Stage, Worker};
use super::word;
use crate::settings::acme::{Declared, metrics};

/// Maximum time for workers to take a change. The master passes none on while it reads a configuration.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of changes that wait for the master; a thread with more waits.
const CHANGES_MAX: usize = 1024;
/// Maximum number of changes that are waited for at a time: each thread waits for one.
const AWAITED_MAX: usize = 1024;
/// The number of a message that workers do not answer: answers that nobody waits for would fill the channel.
const UNANSWERED: u64 = 0;

/// Something for workers.
#[derive(Clone, Serialize, Deserialize)]
enum Change {
    Issued {
        issuer: String,
        order: String,
        chain: Vec<u8>,
        key: String,
    },
    Token {
        token: String,
        text: String,
    },
    TokenOver(String),
    Certificate {
        name: String,
        certificate: String,
        key: String,
    },
    CertificateOver(String),
    Figures(String, Vec<PackedFigures>),
}

/// Id, name, orders, failures, next attempt: [`Figures`].
type PackedFigures = (String, String, u64, u64, i64);

impl Change {
    fn issued(issuer: &str, order: &str, issued: &Issued) -> Self {
        Self::Issued {
            issuer: issuer.to_owned(),
            order: order.to_owned(),
            chain: issued.chain.clone(),
            key: issued.key.to_string(),
        }
    }

    fn figures(issuer: &str, all: &[Figures]) -> Self {
        let packed = all.iter().cloned();
        let packed =
            packed.map(|one| (one.id, one.name, one.orders, one.failures, one.next_attempt));
        Self::Figures(issuer.to_owned(), packed.collect())
    }

    /// Changes what this process shows.
    fn apply(self) -> Result<(), String> {
        let full = "too many challenges are answered already";
        match self {
            Self::Issued {
                issuer,
                order,
                chain,
                key,
            } => {
                let done = shown::show(&issuer, &order, &chain, key.as_bytes());
                done.map_err(|error| error.to_string())
            }
            Self::Token { token, text } => match shown::put_token(token.as_bytes(), text.into()) {
                true => Ok(()),
                false => Err(full.to_owned()),
            },
            Self::TokenOver(token) => {
                shown::remove_token(token.as_bytes());
                Ok(())
            }
            Self::Certificate {
                name,
                certificate,
                key,
            } => {
                let put =
                    shown::put_certificate(name.as_bytes(), certificate.as_bytes(), key.as_bytes());
                match put.map_err(|error| error.to_string())? {
                    true => Ok(()),
                    false => Err(full.to_owned()),
                }
            }
            Self::CertificateOver(name) => {
                shown::remove_certificate(name.as_bytes());
                Ok(())
            }
            Self::Figures(issuer, packed) => {
                let unpacked = packed.into_iter();
                let unpacked = unpacked.map(|(id, name, orders, failures, next_attempt)| Figures {
                    id,
                    name,
                    orders,
                    failures,
                    next_attempt,
                });
                metrics::take(&issuer, unpacked.collect());
                Ok(())
            }
        }
    }
}

/// A change on its way; who waits for it.
type Sent = (Change, Option<Sender<()>>);

/// What threads hand their changes to.
struct Post {
    /// `None`: this process shows certificates itself.
    queue: Option<(mpsc::SyncSender<Sent>, Arc<OwnedFd>)>,
}

impl Post {
    fn send(&self, change: Change, is_awaited: bool) -> Result<(), String> {
        let Some((queue, bell)) = &self.queue else {
            return change.apply();
        };
        let (done, outcome) = mpsc::channel();
        let gone = |_| "the process ends".to_owned();
        queue
            .send((change, is_awaited.then_some(done)))
            .map_err(gone)?;
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        match is_awaited {
            false => Ok(()),
            true => outcome
                .recv_timeout(PATIENCE)
                .map_err(|_| "no worker process takes it".to_owned()),
        }
    }
}

impl Sink for Post {
    fn answer(&self, challenge: &Challenge) -> Result<(), String> {
        let change = match challenge.clone() {
            Challenge::Token { token, text } => Change::Token { token, text },
            Challenge::Certificate {
                name,
                certificate,
                key,
            } => Change::Certificate {
                name,
                certificate,
                key,
            },
        };
        self.send(change, true)
    }

    fn withdraw(&self, challenge: &Challenge) {
        let change = match challenge {
            Challenge::Token { token, .. } => Change::TokenOver(token.clone()),
            Challenge::Certificate { name, .. } => Change::CertificateOver(name.clone()),
        };
        // Of what is left over no harm comes.
        let _ = self.send(change, false);
    }

    fn issued(&self, issuer: &str, id: &str, issued: &Issued) {
        if let Err(sentence) = self.send(Change::issued(issuer, id, issued), true) {
            let text = format_args!("{sentence}, acme issuer: \"{issuer}\", order: \"{id}\"");
            error_log(Level::Error, text);
        }
    }

    fn figures(&self, issuer: &str, figures: Vec<Figures>) {
        let _ = self.send(Change::figures(issuer, &figures), false);
    }

    fn log(&self, level: acme::Level, text: &str) {
        let level = match level {
            acme::Level::Notice => Level::Notice,
            acme::Level::Warn => Level::Warn,
            acme::Level::Error => Level::Error,
        };
        error_log(level, format_args!("{text}"));
    }
}

/// A change that workers have not all taken yet.
struct Awaited {
    number: u64,
    workers: Vec<u32>,
    done: Sender<()>,
}

/// The threads, and what is known for new workers.
#[derive(Default)]
pub(crate) struct AcmeThreads {
    renewals: Vec<Renewal>,
    /// By issuer and order.
    certificates: BTreeMap<(String, String), Issued>,
    tokens: BTreeMap<String, String>,
    challenges: BTreeMap<String, (String, String)>,
    figures: BTreeMap<String, Vec<PackedFigures>>,
    post: OnceLock<Arc<Post>>,
    queue: Option<(Receiver<Sent>, Arc<OwnedFd>)>,
    awaited: Vec<Awaited>,
    number: u64,
    /// Whether a configuration was served before.
    is_begun: bool,
    /// Whether the threads were ended because the master served no more.
    is_stopped: bool,
}

impl std::fmt::Debug for AcmeThreads {
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.certificates.keys()).finish()
    }
}

impl AcmeThreads {
    /// The bell of changes.
    pub(super) fn bell(&self) -> Option<&Arc<OwnedFd>> {
        self.queue.as_ref().map(|(_, bell)| bell)
    }

    /// Reads the certificates that a configuration needs and that are not known yet.
    pub(super) fn load(&mut self, declared: &[Declared]) -> Vec<(String, String)> {
        let mut loaded = Vec::new();
        for one in declared {
            let Some(issuer) = &one.issuer else {
                continue;
            };
            let store = Store::new(issuer.state_path.clone());
            for order in &one.orders {
                let name = (one.name.clone(), order.id());
                if self.certificates.contains_key(&name) {
                    continue;
                }
                if let Some(issued) = store.load(&name.1) {
                    self.certificates.insert(name.clone(), issued);
                    loaded.push(name);
                }
            }
        }
        loaded
    }

    /// Has threads for these issuers, and no others. Returns what there is no more of.
    fn set(&mut self, declared: &[Declared], is_single: bool) -> Vec<Change> {
        let is_wanted = |renewal: &Renewal| {
            let mut all = declared.iter().filter(|one| !one.orders.is_empty());
            all.any(|one| one.issuer.as_ref() == Some(renewal.issuer()))
        };
        let known = self.renewals.iter().map(|known| &known.issuer().name);
        let mut gone: BTreeSet<_> = known.chain(self.figures.keys()).cloned().collect();
        self.renewals.retain(is_wanted);
        let mut names = BTreeSet::new();
        for one in declared {
            let wanted = one.orders.iter().map(|order| {
                let name = (one.name.clone(), order.id());
                let known = self.certificates.get(&name).cloned();
                names.insert(name);
                (order.clone(), known)
            });
            let wanted: Vec<_> = wanted.collect();
            let Some(issuer) = one.issuer.as_ref().filter(|_| !wanted.is_empty()) else {
                continue;
            };
            if let Some(known) = self.renewals.iter().find(|known| known.issuer() == issuer) {
                known.change(wanted);
                continue;
            }
            match self.start(Arc::clone(issuer), wanted, is_single) {
                Ok(renewal) => self.renewals.push(renewal),
                Err(error) => error_log(
                    Level::Alert,
                    format_args!(
                        "the thread of acme issuer \"{}\" cannot be started ({error})",
                        one.name
                    ),
                ),
            }
        }
        self.is_begun = true;
        self.certificates.retain(|name, _| names.contains(name));
        gone.retain(|name| !has(&self.renewals, name));
        let none = |name| Change::Figures(name, Vec::new());
        gone.into_iter().map(none).collect()
    }

    fn start(
        &mut self,
        issuer: Arc<acme::Issuer>,
        wanted: Vec<(acme::Order, Option<Issued>)>,
        is_single: bool,
    ) -> io::Result<Renewal> {
        if self.post.get().is_none() {
            let queue = match is_single {
                true => None,
                false => {
                    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
                    let bell = Arc::new(rustix::event::eventfd(0, flags)?);
                    let (sender, receiver) = mpsc::sync_channel(CHANGES_MAX);
                    self.queue = Some((receiver, Arc::clone(&bell)));
                    Some((sender, bell))
                }
            };
            let _ = self.post.set(Arc::new(Post { queue }));
        }
        let post = self.post.get().ok_or(io::ErrorKind::NotFound)?;
        let store = Arc::new(Store::new(issuer.state_path.clone()));
        let wanted = (wanted, self.is_begun);
        Renewal::start(issuer, store, wanted, Arc::clone(post) as Arc<dyn Sink>)
    }

    /// Notes a change, for workers to come.
    fn note(&mut self, change: &Change) {
        match change.clone() {
            Change::Issued {
                issuer,
                order,
                chain,
                key,
            } => {
                if let Ok(issued) = Issued::new(chain, Zeroizing::new(key)) {
                    self.certificates.insert((issuer, order), issued);
                }
            }
            Change::Token { token, text } => {
                self.tokens.insert(token, text);
            }
            Change::TokenOver(token) => {
                self.tokens.remove(&token);
            }
            Change::Certificate {
                name,
                certificate,
                key,
            } => {
                self.challenges.insert(name, (certificate, key));
            }
            Change::CertificateOver(name) => {
                self.challenges.remove(&name);
            }
            Change::Figures(issuer, figures) => match figures.is_empty() {
                true => {
                    self.figures.remove(&issuer);
                }
                false => {
                    self.figures.insert(issuer, figures);
                }
            },
        }
    }

    /// All that is known.
    fn all(&self) -> Vec<Change> {
        let certificates = self.certificates.iter();
        let certificates =
            certificates.map(|((issuer, order), issued)| Change::issued(issuer, order, issued));
        let tokens = self.tokens.iter().map(|(token, text)| Change::Token {
            token: token.clone(),
            text: text.clone(),
        });
        let challenges = self.challenges.iter();
        let challenges = challenges.map(|(name, (certificate, key))| Change::Certificate {
            name: name.clone(),
            certificate: certificate.clone(),
            key: key.clone(),
        });
        let figures = self.figures.iter();
        let figures = figures.map(|(issuer, all)| Change::Figures(issuer.clone(), all.clone()));
        certificates
            .chain(tokens)
            .chain(challenges)
            .chain(figures)
            .collect()
    }

    /// The message for a new worker; `None`: there is nothing to tell.
    pub(super) fn whole(&self) -> Option<Vec<u8>> {
        let all = self.all();
        (!all.is_empty()).then(|| packed(UNANSWERED, &all))
    }

    /// Shows all that is known in this process.
    pub(super) fn show_here(&self) {
        for change in self.all() {
            if let Err(sentence) = change.apply() {
                error_log(Level::Error, format_args!("{sentence}"));
            }
        }
    }
}

/// Whether there is a thread for an issuer of this name.
fn has(renewals: &[Renewal], issuer: &str) -> bool {
    renewals
        .iter()
        .any(|renewal| renewal.issuer().name == issuer)
}

/// Leaves out figures behind which newer ones of the same issuer come, or whose issuer has no thread any more.
fn without_old_figures(changes: Vec<Sent>, is_known: impl Fn(&str) -> bool) -> Vec<Sent> {
    let mut told = BTreeSet::new();
    let mut kept: Vec<Sent> = changes
        .into_iter()
        .rev()
        .filter(|(change, _)| match change {
            Change::Figures(issuer, _) => is_known(issuer) && told.insert(issuer.clone()),
            _ => true,
        })
        .collect();
    kept.reverse();
    kept
}

fn packed(number: u64, changes: &[Change]) -> Vec<u8> {
    let mut body = Writer::default();
    body.number(number);
    let changes = postcard::to_stdvec(changes).expect("no type of a change refuses a value");
    body.0.extend_from_slice(&changes);
    body.0
}

/// Takes a message of the master, in a worker; the answer to it, where the master waits for one.
///
/// # Errors
/// It is none of the master's.
pub(super) fn take(frame: &Frame) -> Result<Option<Vec<u8>>, &'static str> {
    let unreadable = "the master's certificates cannot be read";
    let mut from = Reader(&frame.body);
    let number = from.number().ok_or(unreadable)?;
    let changes: Vec<Change> = postcard::from_bytes(from.0).map_err(|_| unreadable)?;
    for change in changes {
        if let Err(sentence) = change.apply() {
            error_log(Level::Error, format_args!("{sentence}"));
        }
    }
    let mut answer = Writer::default();
    answer.number(number);
    Ok((number != UNANSWERED).then_some(answer.0))
}

impl Master {
    /// Begins to get certificates for the configuration that is about to be served.
    pub(super) fn begin_acme(&mut self) {
        let is_single = self.current.kept.settings.is_some();
        self.acme.load(&self.current.kept.acme);
        if is_single {
            self.acme.show_here();
        }
        self.set_acme(is_single);
    }

    /// Has threads for what the current configuration declares.
    pub(super) fn set_acme(&mut self, is_single: bool) {
        for change in self.acme.set(&self.current.kept.acme, is_single) {
            self.acme.note(&change);
            self.tell_workers(&change, None);
            if is_single {
                let _ = change.apply();
            }
        }
    }

    /// Tells the serving worker of certificates that a configuration on its way shows and that are on the disk already.
    pub(super) fn prepare_acme(&mut self, declared: &[Declared]) {
        for (issuer, order) in self.acme.load(declared) {
            let name = (issuer, order);
            if let Some(issued) = self.acme.certificates.get(&name) {
                let change = Change::issued(&name.0, &name.1, issued);
                self.tell_workers(&change, None);
            }
        }
    }

    /// Passes changes on. A master that serves no more orders nothing: another one may.
    pub(super) fn pass_acme_on(&mut self) {
        let is_serving = self.purpose == Purpose::Serving;
        if !is_serving {
            self.acme.renewals.clear();
            self.acme.is_stopped = true;
        } else if std::mem::take(&mut self.acme.is_stopped) {
            self.begin_acme();
        }
        let Some((queue, bell)) = &self.acme.queue else {
            return;
        };
        let _ = rustix::io::read(bell, &mut [0; 8]);
        let changes: Vec<Sent> = queue.try_iter().take(CHANGES_MAX).collect();
        let renewals = &self.acme.renewals;
        for (change, done) in without_old_figures(changes, |issuer| has(renewals, issuer)) {
            self.acme.note(&change);
            self.tell_workers(&change, done);
        }
    }

    fn tell_workers(&mut self, change: &Change, done: Option<Sender<()>>) {
        let number = match done {
            None => UNANSWERED,
            Some(_) => {
                self.acme.number += 1;
                self.acme.number
            }
        };
        let body = packed(number, std::slice::from_ref(change));
        let mut told = Vec::new();
        let is_meant = |worker: &&Worker| worker.stage != Stage::Leaving;
        for worker in self.workers.iter().filter(is_meant) {
            if worker.channel.send(word::ACME, &body, &[]).is_ok() {
                told.push(worker.child.id());
            }
        }
        let Some(done) = done else {
            return;
        };
        if told.is_empty() || self.acme.awaited.len() == AWAITED_MAX {
            // A worker to come gets it before it serves.
            let _ = done.send(());
            return;
        }
        self.acme.awaited.push(Awaited {
            number,
            workers: told,
            done,
        });
    }

    /// A worker has taken a change.
    pub(super) fn acme_taken(&mut self, process: u32, number: u64) {
        for awaited in &mut self.acme.awaited {
            if awaited.number == number {
                awaited.workers.retain(|worker| *worker != process);
            }
        }
        self.settle_acme();
    }

    /// Answers to those whose change all workers that live have taken.
    pub(super) fn settle_acme(&mut self) {
        let workers = &self.workers;
        let lives = |process: &u32| workers.iter().any(|worker| worker.child.id() == *process);
        self.acme.awaited.retain(|awaited| {
            let is_open = awaited.workers.iter().any(lives);
            if !is_open {
                let _ = awaited.done.send(());
            }
            is_open
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_figures_of_issuers_that_there_are_are_passed_on() {
        let figures = |issuer: &str| (Change::Figures(issuer.to_owned(), Vec::new()), None);
        let token = || (Change::TokenOver("t".to_owned()), None);
        let all = vec![figures("a"), token(), figures("b"), figures("a"), token()];
        let kept = without_old_figures(all, |issuer| issuer != "b");
        let kinds = kept.iter().map(|(change, _)| match change {
            Change::Figures(issuer, _) => issuer.as_str(),
            _ => "token",
        });
        assert_eq!(kinds.collect::<Vec<_>>(), ["token", "a", "token"]);
    }
}
