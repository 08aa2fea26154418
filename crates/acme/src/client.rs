//! The protocol (RFC 8555): a directory, an account, signed requests.
//!
//! Not here: orders ([`order`]), when to order ([`crate::schedule`]). Invariants: a request that a nonce, the network or the
//! authority's load has failed is repeated at most [`TRIES_MAX`] times; each wait has a maximum.

pub(crate) mod order;

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::account::{Identity, SigningKey};
use crate::error::Problem;
use crate::http::{Answer, HttpClient};
use crate::issuer::{AccountKey, Issuer};
use crate::messages::{Account, Directory, NewAccount, RenewalInfo};
use crate::sink::{Level, Sink};
use crate::store::Store;
use crate::{Error, Url};

/// Maximum number of redirects of a request without a signature.
const REDIRECTS_MAX: usize = 10;
/// Maximum number of times that a request is sent.
const TRIES_MAX: u32 = 10;
/// Maximum number of times that it is sent where no answer comes.
const CONNECTIONS_TRIED_MAX: u32 = 3;
/// Wait before a request is sent again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum wait that an authority may ask for within an order; a longer one ends the order.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Wait before it is first asked whether something is done; it doubles.
const POLL_FIRST: Duration = Duration::from_millis(250);
/// Maximum of these waits, where the authority asks for none.
const POLL_MAX: Duration = Duration::from_secs(8);

/// An account with an authority, for some requests in a row.
pub(crate) struct Client<'a> {
    pub(crate) issuer: &'a Issuer,
    store: &'a Store,
    sink: &'a dyn Sink,
    http: HttpClient,
    key: SigningKey,
    directory: Directory,
    nonce: Option<String>,
    /// Its URL, once it is known.
    account: Option<String>,
}

/// When to renew, by the authority (RFC 9773), and for how long that holds.
pub(crate) struct Suggestion {
    /// Seconds since 1970.
    pub(crate) window: (i64, i64),
    pub(crate) ask_again: Duration,
    pub(crate) explanation: Option<String>,
}

impl<'a> Client<'a> {
    /// Reads the authority's directory, and the account's key, or makes one.
    pub(crate) fn new(
        issuer: &'a Issuer,
        store: &'a Store,
        sink: &'a dyn Sink,
    ) -> Result<Self, Error> {
        let mut http = HttpClient::new(issuer)?;
        let key = account_key(issuer, store)?;
        let answer = get(&mut http, &issuer.uri)?;
        let directory = json(&answer).map_err(|error| {
            Error::Answer(format!(
                "{} is no directory ({error})",
                issuer.uri.authority()
            ))
        })?;
        Ok(Self {
            issuer,
            store,
            sink,
            http,
            key,
            directory,
            nonce: None,
            account: None,
        })
    }

    /// Whether the authority says when to renew.
    pub(crate) fn has_renewal_info(&self) -> bool {
        self.directory.renewal_info.is_some()
    }

    /// What the authority says of the renewal of a certificate.
    pub(crate) fn renewal_info(&mut self, certificate: &str) -> Result<Suggestion, Error> {
        let base = self.directory.renewal_info.as_deref().unwrap_or_default();
        let url = format!("{}/{certificate}", base.trim_end_matches('/'));
        let answer = get(&mut self.http, &url_of(&url)?)?;
        let info: RenewalInfo = json(&answer)
            .map_err(|error| Error::Answer(format!("no renewal information ({error})")))?;
        let window = info.suggested_window.seconds();
        let (start, end) = window
            .filter(|(start, end)| start < end)
            .ok_or_else(|| Error::Answer("invalid renewal window".to_owned()))?;
        Ok(Suggestion {
            window: (start, end),
            ask_again: crate::schedule::ask_again(answer.retry_after()),
            explanation: info.explanation_url,
        })
    }

    /// The authority may not know the account any more.
    pub(crate) fn forget_account(&mut self) {
        self.account = None;
    }

    /// Finds the account, or makes it.
    fn register(&mut self) -> Result<String, Error> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let account = match (self.ask_for_account(), &self.issuer.account_key) {
            (Err(Error::Problem(problem)), AccountKey::Made(kind))
                if problem.is_of_account() && self.store.has_account() =>
            {
                let text = format!(
                    "{problem}: the account is given up, and another one made, acme issuer: \"{}\"",
                    self.issuer.name
                );
                self.sink.log(Level::Warn, &text);
                self.key = SigningKey::generate(*kind)?;
                self.store.replace_account_key(&self.key.to_pem()?)?;
                self.ask_for_account()?
            }
            (outcome, _) => outcome?,
        };
        self.account = Some(account.clone());
        Ok(account)
    }

    fn ask_for_account(&mut self) -> Result<String, Error> {
        let url = self.directory.new_account.clone();
        let external = self.issuer.external_account.as_ref();
        if self.directory.meta.external_account_required && external.is_none() {
            let sentence = "external account key required";
            return Err(Error::Configuration(sentence.to_owned()));
        }
        let wanted = NewAccount {
            terms_of_service_agreed: self.issuer.accepts_terms.then_some(true),
            contact: &self.issuer.contacts,
            external_account_binding: external
                .map(|external| self.key.bound(&external.kid, &external.key, &url)),
        };
        let payload = serde_json::to_vec(&wanted).unwrap_or_default();
        let answer = match self.send(&url, &payload, None) {
            Err(Error::Problem(problem)) if !self.issuer.accepts_terms => {
                return Err(self.about_terms(problem));
            }
            outcome => outcome?,
        };
        let account: Account =
            json(&answer).map_err(|error| Error::Answer(format!("no account ({error})")))?;
        if account.status != "valid" {
            let status = account.status.chars().take(20).collect::<String>();
            let sentence = format!("the account is not valid, its status is \"{status}\"");
            return Err(Error::Problem(Problem {
                kind: "urn:ietf:params:acme:error:unauthorized".to_owned(),
                detail: sentence,
                status: 403,
                ..Problem::default()
            }));
        }
        let location = answer.field("location");
        let location = location.and_then(|text| self.issuer.uri.join(text).map(|_| text));
        let location =
            location.ok_or_else(|| Error::Answer("the account has no URL".to_owned()))?;
        if answer.status == 201 {
            let text = format!(
                "account \"{location}\" created, acme issuer: \"{}\"",
                self.issuer.name
            );
            self.sink.log(Level::Notice, &text);
        }
        self.store.write_account_url(location)?;
        Ok(location.to_owned())
    }

    /// A refusal, with where the terms are that are not agreed to.
    fn about_terms(&self, problem: Problem) -> Error {
        match &self.directory.meta.terms_of_service {
            Some(terms) if problem.is("userActionRequired") || !problem.is_of_account() => {
                let terms: String = terms
                    .chars()
                    .filter(|letter| !letter.is_control())
                    .collect();
                Error::Configuration(format!(
                    "{problem}; \"accept_terms_of_service\" agrees to the terms of service, which are at {terms}"
                ))
            }
            _ => Error::Problem(problem),
        }
    }

    /// A request of the account.
    fn post(&mut self, url: &str, payload: &[u8]) -> Result<Answer, Error> {
        let account = self.register()?;
        self.send(url, payload, Some(&account))
    }

    /// The same, and its answer's object.
    fn object<T: DeserializeOwned>(&mut self, url: &str, payload: &[u8]) -> Result<T, Error> {
        let answer = self.post(url, payload)?;
        json(&answer).map_err(|error| Error::Answer(format!("unexpected answer ({error})")))
    }

    /// Sends a signed request until it is answered.
    fn send(&mut self, url: &str, payload: &[u8], account: Option<&str>) -> Result<Answer, Error> {
        let target = url_of(url)?;
        let identity = account.map_or(Identity::Key, Identity::Account);
        let mut connections = 0;
        for _ in 0..TRIES_MAX {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => self.new_nonce()?,
            };
            let body = self.key.signed(&identity, (url, &nonce), payload)?;
            let answer = match self.http.request("POST", &target, Some(&body)) {
                Ok(answer) => answer,
                Err(error) => {
                    connections += 1;
                    if connections == CONNECTIONS_TRIED_MAX {
                        return Err(error);
                    }
                    sleep(RETRY_AFTER);
                    continue;
                }
            };
            self.nonce = answer.field("replay-nonce").map(str::to_owned);
            if (200..300).contains(&answer.status) {
                return Ok(answer);
            }
            let problem = problem(&answer);
            let wait = answer.retry_after();
            match wait {
                _ if problem.is("badNonce") => {}
                Some(wait) if wait > WAIT_MAX => return Err(Error::RateLimited { problem, wait }),
                _ if problem.is("rateLimited") || answer.status == 503 => {
                    sleep(wait.unwrap_or(RETRY_AFTER));
                }
                _ => return Err(Error::Problem(problem)),
            }
        }
        Err(Error::Answer(format!(
            "{} takes no request, in {TRIES_MAX} tries",
            target.authority()
        )))
    }

    fn new_nonce(&mut self) -> Result<String, Error> {
        let url = url_of(&self.directory.new_nonce)?;
        let answer = self.http.request("HEAD", &url, None)?;
        let nonce = answer.field("replay-nonce").map(str::to_owned);
        nonce.ok_or_else(|| Error::Answer("cannot obtain replay nonce".to_owned()))
    }

    /// Asks until it is done, or the time is over; the last answer.
    fn poll<T: DeserializeOwned>(
        &mut self,
        url: &str,
        time_max: Duration,
        is_done: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + time_max;
        let mut wait = POLL_FIRST;
        loop {
            let answer = self.post(url, b"")?;
            let state: T = json(&answer)
                .map_err(|error| Error::Answer(format!("unexpected answer ({error})")))?;
            if is_done(&state) || Instant::now() >= deadline {
                return Ok(state);
            }
            sleep(
                answer
                    .retry_after()
                    .map_or(wait, |asked| asked.clamp(wait.min(RETRY_AFTER), WAIT_MAX)),
            );
            wait = (wait * 2).min(POLL_MAX);
        }
    }
}

fn account_key(issuer: &Issuer, store: &Store) -> Result<SigningKey, Error> {
    match &issuer.account_key {
        AccountKey::Given(pem) => SigningKey::of_pem(pem)
            .ok_or_else(|| Error::Local("the account's key cannot be used".to_owned())),
        AccountKey::Made(kind) => {
            if let Some(key) = store
                .account_key()?
                .and_then(|pem| SigningKey::of_pem(&pem))
            {
                return Ok(key);
            }
            let key = SigningKey::generate(*kind)?;
            store.write_account_key(&key.to_pem()?)?;
            Ok(key)
        }
    }
}

/// Asks without a signature, and follows redirects.
fn get(http: &mut HttpClient, url: &Url) -> Result<Answer, Error> {
    let mut url = url.clone();
    for _ in 0..REDIRECTS_MAX {
        let answer = http.request("GET", &url, None)?;
        match answer.status {
            200..=299 => return Ok(answer),
            301 | 302 | 303 | 307 | 308 => {
                let next = answer.field("location").and_then(|text| url.join(text));
                url = next.ok_or_else(|| {
                    Error::Answer("redirect failed: missing or invalid URI".to_owned())
                })?;
            }
            429 | 503 if answer.retry_after().is_some_and(|wait| wait > WAIT_MAX) => {
                let wait = answer.retry_after().unwrap_or(WAIT_MAX);
                return Err(Error::RateLimited {
                    problem: problem(&answer),
                    wait,
                });
            }
            _ => return Err(Error::Problem(problem(&answer))),
        }
    }
    Err(Error::Answer(
        "redirect failed: too many redirects".to_owned(),
    ))
}

/// What an authority says of a failure.
fn problem(answer: &Answer) -> Problem {
    let mut problem: Problem = json(answer).unwrap_or_else(|_| Problem {
        detail: "unexpected status code in response".to_owned(),
        ..Problem::default()
    });
    problem.status = answer.status;
    problem
}

fn json<T: DeserializeOwned>(answer: &Answer) -> Result<T, serde_json::Error> {
    serde_json::from_slice(&answer.body)
}

/// A URL that an authority has sent.
fn url_of(text: &str) -> Result<Url, Error> {
    let shown = || {
        text.chars()
            .filter(|letter| !letter.is_control())
            .take(80)
            .collect::<String>()
    };
    Url::parse(text)
        .ok_or_else(|| Error::Answer(format!("the authority names no URL: \"{}\"", shown())))
}
