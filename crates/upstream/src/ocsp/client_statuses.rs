//! The status of clients' certificates (`ssl_ocsp`).
//!
//! Connections whose clients have the same certificate share one question. Not here: which certificates are asked for.
//! Invariant: an answer is given to every connection that asked, or its question has failed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tls::ocsp::{Asked, AsksStatus, Status, StatusCache, certificate_id, check, request};
use tls::x509::certificate::Certificate;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::fetch::{Failure, Place, fetch};
use super::metrics::{self, Outcome, Purpose};
use super::{NameServers, Responder};
use crate::resolver::thread;

/// Maximum number of connections that wait for one certificate's status.
const WAITERS_MAX: usize = 1024;
/// Time between two looks at whether any connection still waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Told = Result<Status, Arc<str>>;
type Waiters = Vec<oneshot::Sender<Told>>;

/// What answers for one server's clients.
#[derive(Debug)]
pub struct ClientStatuses {
    /// `ssl_ocsp_responder`; `None`: the one that the certificate names.
    pub responder: Option<Arc<Responder>>,
    /// The name servers.
    pub servers: NameServers,
    /// `ssl_ocsp_cache`.
    pub cache: Option<Arc<StatusCache>>,
    /// Whether certificates between a client's and the configured one are asked for, too.
    pub wants_chain: bool,
    /// Questions under way, by what names the certificate.
    asked: Mutex<HashMap<Vec<u8>, Waiters>>,
}

/// A certificate whose status is asked for.
struct Question {
    id: Vec<u8>,
    certificate: Vec<u8>,
    issuer: Vec<u8>,
    responder: Arc<Responder>,
    place: Place,
}

impl ClientStatuses {
    /// For a server.
    #[must_use]
    pub fn new(
        responder: Option<Responder>,
        servers: NameServers,
        cache: Option<Arc<StatusCache>>,
        wants_chain: bool,
    ) -> Self {
        metrics::begin();
        Self {
            responder: responder.map(Arc::new),
            servers,
            cache,
            wants_chain,
            asked: Mutex::default(),
        }
    }

    fn responder_of(&self, certificate: &Certificate<'_>) -> Result<Arc<Responder>, String> {
        if let Some(responder) = &self.responder {
            return Ok(Arc::clone(responder));
        }
        let url = certificate.ocsp_url();
        let url = url.ok_or("no OCSP responder URL in certificate")?;
        let read = Responder::parse(url).map_err(|what| format!("{what} in certificate"));
        read.map(Arc::new)
    }

    /// Adds a connection to those that wait for a certificate; a place, where it is the first one.
    fn wait(
        &self,
        id: &[u8],
        responder: &Responder,
        waiter: oneshot::Sender<Told>,
    ) -> Result<Option<Place>, Failure> {
        let mut asked = self.asked.lock();
        if let Some(waiters) = asked.get_mut(id) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.len() >= WAITERS_MAX {
                return Err(Failure::new("too many certificate status requests").of(responder));
            }
            waiters.push(waiter);
            return Ok(None);
        }
        let place = Place::of_client(responder)?;
        asked.insert(id.to_vec(), vec![waiter]);
        Ok(Some(place))
    }

    async fn run(self: Arc<Self>, question: Question) {
        let Some(told) = self.told(&question).await else {
            return;
        };
        let waiters = self.asked.lock().remove(&question.id);
        for waiter in waiters.into_iter().flatten() {
            let _ = waiter.send(told.clone()); // the connection is over
        }
    }

    /// Forgets a question that no connection waits for any more. In one step: a connection that comes next asks anew.
    fn forget_unawaited(&self, id: &[u8]) -> bool {
        let mut asked = self.asked.lock();
        let is_awaited = |waiters: &Waiters| waiters.iter().any(|waiter| !waiter.is_closed());
        let is_unawaited = !asked.get(id).is_some_and(is_awaited);
        if is_unawaited {
            asked.remove(id);
        }
        is_unawaited
    }

    /// The answer; `None`: no connection waits for it any more.
    async fn told(&self, question: &Question) -> Option<Told> {
        let mut asked = pin!(self.asked_in_turn(question));
        loop {
            match timeout(LOOK_EVERY, &mut asked).await {
                Ok(told) => return told,
                Err(_) if self.forget_unawaited(&question.id) => return None,
                Err(_) => {}
            }
        }
    }

    async fn asked_in_turn(&self, question: &Question) -> Option<Told> {
        let _turn = question.place.turn().await;
        if self.forget_unawaited(&question.id) {
            return None;
        }
        let told = self.fetched(question).await;
        let outcome = told
            .as_ref()
            .map_or(Outcome::Failed, |status| (*status).into());
        metrics::count(Purpose::Client, outcome);
        Some(told.map_err(|failure| failure.to_string().into()))
    }

    async fn fetched(&self, question: &Question) -> Result<Status, Failure> {
        let read =
            |der| Certificate::read(der).ok_or_else(|| Failure::new("unreadable certificate"));
        let (certificate, issuer) = (read(&question.certificate)?, read(&question.issuer)?);
        let asked = request(&certificate, &issuer);
        let response = fetch(&question.responder, &self.servers, &asked).await?;
        let now = wire::loop_clock::unix_seconds();
        let answer = check(&response, &certificate, &issuer, now)
            .map_err(|fault| Failure::new(fault.to_string()).of(&question.responder))?;
        if let Some(cache) = &self.cache {
            cache.keep(&certificate, &issuer, answer, now);
        }
        Ok(answer.status)
    }
}

impl AsksStatus for ClientStatuses {
    fn wants_chain(&self) -> bool {
        self.wants_chain
    }

    fn ask(self: Arc<Self>, certificate: &Certificate<'_>, issuer: &Certificate<'_>) -> Asked {
        let ready = |told: Told| -> Asked { Box::pin(std::future::ready(told)) };
        let refused = |text: String| {
            metrics::count(Purpose::Client, Outcome::Failed);
            ready(Err(text.into()))
        };
        let responder = match self.responder_of(certificate) {
            Ok(responder) => responder,
            Err(sentence) => return refused(format!("{sentence} while SSL handshaking")),
        };
        let now = wire::loop_clock::unix_seconds();
        let known = self.cache.as_ref();
        if let Some(status) = known.and_then(|cache| cache.find(certificate, issuer, now)) {
            metrics::count(Purpose::Client, Outcome::Cached);
            return ready(Ok(status));
        }
        let id = certificate_id(certificate, issuer);
        let (waiter, told) = oneshot::channel();
        match self.wait(&id, &responder, waiter) {
            Err(failure) => return refused(failure.to_string()),
            Ok(None) => {}
            Ok(Some(place)) => {
                let question = Question {
                    id,
                    certificate: certificate.der.to_vec(),
                    issuer: issuer.der.to_vec(),
                    responder,
                    place,
                };
                if !thread::spawn(Arc::clone(&self).run(question)) {
                    self.asked.lock().clear();
                }
            }
        }
        Box::pin(async move {
            let lost = |_| Err("certificate status request was dropped".into());
            told.await.unwrap_or_else(lost)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;

    /// Enough that both threads meet within a step of each other.
    const ROUNDS: usize = 2000;

    /// What a connection is told; its client may have left before.
    fn ask(statuses: &Arc<ClientStatuses>, runtime: &Runtime, is_there: bool) -> Option<Told> {
        let (waiter, mut told) = oneshot::channel();
        if !is_there {
            told.close();
        }
        let responder = Arc::new(Responder::parse("http://127.0.0.1:1/").unwrap());
        if let Some(place) = statuses.wait(b"one", &responder, waiter).unwrap() {
            let question = Question {
                id: b"one".to_vec(),
                certificate: Vec::new(),
                issuer: Vec::new(),
                responder,
                place,
            };
            runtime.block_on(Arc::clone(statuses).run(question));
        }
        is_there.then(|| runtime.block_on(told).unwrap())
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn a_connection_is_not_told_that_none_waits() {
        let _alone = super::super::tests::ASKING.lock();
        let names = NameServers::default();
        let statuses = Arc::new(ClientStatuses::new(None, names, None, false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = runtime();
                for _ in 0..ROUNDS {
                    ask(&statuses, &runtime, false);
                }
            });
            let runtime = runtime();
            for _ in 0..ROUNDS {
                let Some(Err(told)) = ask(&statuses, &runtime, true) else {
                    panic!("there is no certificate");
                };
                assert!(told.contains("unreadable certificate"), "{told}");
            }
        });
        assert!(statuses.asked.lock().is_empty());
    }

    #[test]
    fn a_question_ends_with_the_last_connection_that_waits_for_it() {
        let _alone = super::super::tests::ASKING.lock();
        let names = NameServers::default();
        let statuses = Arc::new(ClientStatuses::new(None, names, None, false));
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let responder = Arc::new(Responder::parse(&url).unwrap());
        let certificate = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let certificate = certificate.cert.der().to_vec();
        let (waiter, told) = oneshot::channel();
        let question = Question {
            id: b"one".to_vec(),
            certificate: certificate.clone(),
            issuer: certificate,
            place: statuses.wait(b"one", &responder, waiter).unwrap().unwrap(),
            responder,
        };
        let accepted = std::thread::spawn(move || {
            let accepted = silent.accept();
            drop(told);
            accepted
        });
        let is_over = runtime().block_on(async {
            let run = Arc::clone(&statuses).run(question);
            timeout(super::super::FETCH_TIME_MAX / 2, run).await.is_ok()
        });
        assert!(is_over && statuses.asked.lock().is_empty());
        drop(accepted.join());
    }
}
