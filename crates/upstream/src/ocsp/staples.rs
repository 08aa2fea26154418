//! Stapled responses that are fetched (`ssl_stapling` without a file).
//!
//! Each certificate has a task on the resolver's thread, which asks its responder, puts the answer beside the
//! certificate wherever that is shown, and takes it away when it ends. Not here: when to ask, and what is worth being
//! shown ([`tls::ocsp::Stapling`]). Invariants: a handshake takes what is there and waits for nothing; a configuration
//! that is built while another one serves takes over what that one knows; a task ends with the last configuration that
//! shows its certificate.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use logs::process_log::{Level, error_log};
use parking_lot::Mutex;
use slots::slotted;
use tls::certificates::Certificates;
use tls::ocsp::{Stapling, Status, Verification, request};
use tls::x509::certificate::Certificate;
use tokio::sync::Notify;

use super::fetch::{Failure, Place, fetch};
use super::metrics::{self, Outcome, Purpose};
use super::{NameServers, Responder};
use crate::resolver::thread;

/// Maximum time between two looks at the clock, which may be set.
const LOOK_EVERY: Duration = Duration::from_secs(60);

static KNOWN: LazyLock<Mutex<HashMap<Vec<u8>, Weak<Staple>>>> = LazyLock::new(Mutex::default);

/// A certificate to be stapled.
#[derive(Debug)]
pub struct StapleOrder {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// That of its issuer.
    pub issuer: Vec<u8>,
    /// Its name in the log.
    pub name: String,
    /// Where its status is known.
    pub responder: Responder,
    /// The name servers.
    pub servers: NameServers,
    /// `ssl_stapling_verify`.
    pub verification: Verification,
    /// What stands for that among others.
    pub mark: Vec<u8>,
}

/// The stapled response of one certificate.
#[derive(Debug)]
pub struct Staple {
    certificate: Vec<u8>,
    issuer: Vec<u8>,
    name: String,
    /// That of the last configuration.
    way: Mutex<Way>,
    stapling: Mutex<Stapling>,
    /// Told when something is to be done before its time.
    hurry: Arc<Notify>,
    /// Where the certificate is shown.
    shown: Mutex<Vec<Weak<Certificates>>>,
    is_watched: AtomicBool,
}

/// How a certificate's status is found, and by what it is judged.
#[derive(Clone, Debug)]
struct Way {
    responder: Responder,
    servers: NameServers,
    verification: Arc<Verification>,
}

/// Those of a configuration.
#[derive(Debug, Default)]
pub struct Staples(Vec<Arc<Staple>>);

slotted!(config::made::WHOLE: Staples);

impl Staples {
    /// Adds a certificate, where it is shown; what is known of it is stapled at once.
    pub fn add(&mut self, order: StapleOrder, certificates: &Arc<Certificates>) {
        metrics::begin();
        let staple = Staple::known(order);
        staple.show_in(certificates);
        self.0.push(staple);
    }

    /// Starts the tasks of those that have none yet. The configuration is served from now on.
    ///
    /// # Errors
    /// The thread for that cannot be started.
    pub fn watch(&self) -> io::Result<()> {
        for staple in &self.0 {
            thread::begin()?;
            if !staple.is_watched.swap(true, Ordering::Relaxed) {
                thread::spawn(keep_up(Arc::downgrade(staple)));
            }
        }
        Ok(())
    }
}

async fn keep_up(staple: Weak<Staple>) {
    loop {
        let Some(due) = staple.upgrade() else {
            return;
        };
        let now = wire::loop_clock::unix_seconds();
        if due.stapling.lock().refresh_at(now) <= now {
            due.ask().await;
        }
        due.show();
        let (pause, hurry) = (due.pause(), Arc::clone(&due.hurry));
        drop(due);
        let _ = tokio::time::timeout(pause, hurry.notified()).await;
    }
}

impl Staple {
    fn known(order: StapleOrder) -> Arc<Self> {
        let mut key = order.responder.identity().into_bytes();
        for part in [&order.certificate, &order.issuer, &order.mark] {
            key.extend_from_slice(&part.len().to_be_bytes());
            key.extend_from_slice(part);
        }
        let mut known = KNOWN.lock();
        known.retain(|_, staple| staple.strong_count() > 0);
        let way = Way {
            responder: order.responder,
            servers: order.servers,
            verification: Arc::new(order.verification),
        };
        if let Some(staple) = known.get(&key).and_then(Weak::upgrade) {
            // The responder's addresses and the chain may be others than those that failed.
            *staple.way.lock() = way;
            staple.stapling.lock().hurry();
            staple.hurry.notify_one();
            return staple;
        }
        let staple = Arc::new(Self {
            certificate: order.certificate,
            issuer: order.issuer,
            name: order.name,
            way: Mutex::new(way),
            stapling: Mutex::default(),
            hurry: Arc::default(),
            shown: Mutex::default(),
            is_watched: AtomicBool::new(false),
        });
        known.insert(key, Arc::downgrade(&staple));
        staple
    }

    /// Staples what is known to a server's certificate, now and whenever it changes.
    fn show_in(&self, certificates: &Arc<Certificates>) {
        let mut shown = self.shown.lock();
        shown.retain(|place| place.strong_count() > 0);
        shown.push(Arc::downgrade(certificates));
        self.staple(certificates);
    }

    /// Staples what is known wherever the certificate is shown.
    fn show(&self) {
        let mut shown = self.shown.lock();
        shown.retain(|place| place.strong_count() > 0);
        for certificates in shown.iter().filter_map(Weak::upgrade) {
            self.staple(&certificates);
        }
    }

    fn staple(&self, certificates: &Certificates) {
        let stapling = self.stapling.lock();
        let response = stapling.response(wire::loop_clock::unix_seconds());
        certificates.staple(&self.certificate, response.map(<[u8]>::to_vec));
    }

    /// The time until there is something to do.
    fn pause(&self) -> Duration {
        let stapling = self.stapling.lock();
        let now = wire::loop_clock::unix_seconds();
        let refresh_at = stapling.refresh_at(now);
        let end = stapling.valid_until().map(|until| until + 1);
        let next = end.map_or(refresh_at, |end| end.min(refresh_at));
        let left = next.saturating_sub(now);
        Duration::from_secs(left.max(1).unsigned_abs()).min(LOOK_EVERY)
    }

    async fn ask(&self) {
        let way = self.way.lock().clone();
        let told = self.fetched(&way).await;
        if !Arc::ptr_eq(&way.verification, &self.way.lock().verification) {
            self.stapling.lock().hurry(); // it has changed meanwhile
        }
        let outcome = told
            .as_ref()
            .map_or(Outcome::Failed, |status| (*status).into());
        metrics::count(Purpose::Staple, outcome);
        let sentence = match told {
            Ok(Status::Good) => return,
            Ok(Status::Revoked) => refused("revoked").of(&way.responder),
            Ok(Status::Unknown) => refused("unknown").of(&way.responder),
            Err(failure) => failure,
        };
        let name = &self.name;
        error_log(
            Level::Error,
            format_args!("{sentence}, certificate: \"{name}\""),
        );
    }

    async fn fetched(&self, way: &Way) -> Result<Status, Failure> {
        let fail = |failure| {
            let now = wire::loop_clock::unix_seconds();
            self.stapling.lock().failed(now);
            failure
        };
        let read =
            |der| Certificate::read(der).ok_or_else(|| Failure::new("unreadable certificate"));
        let certificate = read(&self.certificate).map_err(fail)?;
        let issuer = read(&self.issuer).map_err(fail)?;
        let place = Place::of_staple(&way.responder);
        let _turn = place.turn().await;
        let asked = request(&certificate, &issuer);
        let response = fetch(&way.responder, &way.servers, &asked).await;
        let response = response.map_err(fail)?;
        let now = wire::loop_clock::unix_seconds();
        let pair = (&certificate, &issuer);
        let mut stapling = self.stapling.lock();
        let taken = stapling.take(response, pair, &way.verification, now);
        taken.map_err(|fault| Failure::new(fault.to_string()).of(&way.responder))
    }
}

fn refused(status: &str) -> Failure {
    Failure::new(format!(
        "certificate status \"{status}\" in the OCSP response"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_brings_new_addresses_and_certificates_and_asks_again_what_failed() {
        let order = |last: u8| {
            let mut responder = Responder::parse("http://ocsp.test/").unwrap();
            responder
                .settle(&mut |_| vec![[127, 0, 0, last].into()])
                .unwrap();
            StapleOrder {
                certificate: b"a certificate".to_vec(),
                issuer: Vec::new(),
                name: String::new(),
                responder,
                servers: NameServers::default(),
                verification: Verification::Signature(vec![vec![last].into()]),
                mark: Vec::new(),
            }
        };
        let staple = Staple::known(order(1));
        staple.stapling.lock().failed(1000);
        assert!(Arc::ptr_eq(&staple, &Staple::known(order(2))));
        let way = staple.way.lock().clone();
        let addresses: Vec<_> = way.responder.known().iter().map(|at| at.ip()).collect();
        assert_eq!(addresses, [std::net::IpAddr::from([127, 0, 0, 2])]);
        let Verification::Signature(trusted) = &*way.verification else {
            panic!("as ordered");
        };
        assert_eq!(trusted[0].as_ref(), [2]);
        assert_eq!(staple.stapling.lock().refresh_at(1000), 0);
    }
}
