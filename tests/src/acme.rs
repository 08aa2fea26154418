//! An authority that speaks ACME (RFC 8555), for the server under test: small, and with faults on demand.
//!
//! It checks nonces, URLs and identities of requests, and challenges as a real one does; signatures it does not check (a real
//! authority does: `cargo xtask acme`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::PATIENCE;
use crate::origin::Received;
use crate::tls::TlsClient;
use crate::tls_origin::{Authority, TlsAnswer, TlsOrigin};

/// What the authority does.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Where it looks for tokens.
    pub http_port: u16,
    /// Where it looks for certificates of challenges.
    pub tls_port: u16,
    /// How long certificates are valid, in seconds; 0: 90 days.
    pub valid_seconds: u64,
    /// By how many seconds its clock is ahead of this machine's.
    pub ahead_seconds: i64,
    /// Refuses each second nonce.
    pub refuses_nonces: bool,
    /// The name of a key that accounts have to be bound by.
    pub external_key: Option<String>,
    /// Refuses orders with this problem's type and text.
    pub refuses_orders: Option<(&'static str, &'static str)>,
    /// Says when to renew: from, to, in seconds from 1970.
    pub renewal: Option<(i64, i64)>,
    /// Never answers when it is asked when to renew.
    pub is_silent_about_renewal: bool,
    /// Offers these profiles.
    pub profiles: Vec<&'static str>,
    /// Accounts have to agree to terms.
    pub has_terms: bool,
    /// Accounts are not valid any more.
    pub has_deactivated: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Order {
    names: Vec<Value>,
    is_proven: Vec<bool>,
    error: Option<Value>,
    certificate: Option<String>,
}

#[derive(Default)]
struct State {
    rules: Rules,
    nonces: BTreeSet<String>,
    count: u64,
    /// Thumbprints of keys, and accounts' URLs.
    accounts: BTreeMap<String, String>,
    orders: Vec<Order>,
    /// Payloads of orders, as they came.
    ordered: Vec<Value>,
    contacts: Vec<Value>,
}

/// An authority. Ends with the test's process.
pub struct AcmeAuthority {
    origin: TlsOrigin,
    root: String,
    state: Arc<Mutex<State>>,
}

impl AcmeAuthority {
    /// Starts one at `localhost`.
    pub fn start(rules: Rules) -> AcmeAuthority {
        let authority = Authority::new("test authority");
        let (root, pem) = (authority.pem(), authority.issue("localhost"));
        let state = Arc::new(Mutex::new(State {
            rules,
            ..State::default()
        }));
        let kept = Arc::clone(&state);
        let origin = TlsOrigin::start(&pem, None, move |request| {
            answer(&kept, &authority, request)
        });
        AcmeAuthority {
            origin,
            root,
            state,
        }
    }

    /// The URL of its directory.
    pub fn uri(&self) -> String {
        format!("https://localhost:{}/dir", self.origin.port())
    }

    /// The certificate that signs everything here, as PEM.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Changes its rules.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut lock(&self.state).rules);
    }

    /// The orders so far, as they came.
    pub fn ordered(&self) -> Vec<Value> {
        lock(&self.state).ordered.clone()
    }

    /// The number of accounts.
    pub fn accounts(&self) -> usize {
        lock(&self.state).accounts.len()
    }

    /// The contacts of accounts.
    pub fn contacts(&self) -> Vec<Value> {
        lock(&self.state).contacts.clone()
    }

    /// Makes all accounts invalid.
    pub fn deactivate_accounts(&self) {
        let mut state = lock(&self.state);
        let all: BTreeSet<_> = state.accounts.values().cloned().collect();
        state.rules.has_deactivated = all;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer: status, object, `Location`.
type Reply = (u16, Value, Option<String>);

fn problem(status: u16, kind: &str, detail: &str) -> Reply {
    let kind = format!("urn:ietf:params:acme:error:{kind}");
    (status, json!({"type": kind, "detail": detail}), None)
}

fn answer(state: &Mutex<State>, authority: &Authority, request: &Received) -> TlsAnswer {
    let base = format!("https://{}", request.header("Host").unwrap_or_default());
    let target = request.target().to_owned();
    if let Some(id) = target.strip_prefix("/ari/") {
        assert!(id.contains('.'), "{id}");
        let is_silent = lock(state).rules.is_silent_about_renewal;
        if is_silent {
            loop {
                std::thread::park();
            }
        }
        let renewal = lock(state)
            .rules
            .renewal
            .unwrap_or((4_000_000_000, 4_000_000_001));
        let date = |seconds: i64| rfc3339(seconds);
        let window = json!({"suggestedWindow": {"start": date(renewal.0), "end": date(renewal.1)}});
        return raw(state, 200, &window.to_string(), "Retry-After: 21600\r\n");
    }
    match target.as_str() {
        "/dir" => {
            let rules = lock(state).rules.clone();
            raw(state, 200, &directory(&rules, &base).to_string(), "")
        }
        "/nonce" => raw(state, 200, "", ""),
        _ => {
            let (status, object, location) = match signed(state, request, &base) {
                Ok((payload, account)) => {
                    reply(state, authority, (&target, &base), &payload, &account)
                }
                Err(reply) => reply,
            };
            let location = location.map(|url| format!("Location: {url}\r\n"));
            let text = match &object {
                Value::String(text) => text.clone(),
                object => object.to_string(),
            };
            raw(state, status, &text, &location.unwrap_or_default())
        }
    }
}

fn directory(rules: &Rules, base: &str) -> Value {
    let mut meta = json!({"externalAccountRequired": rules.external_key.is_some()});
    if rules.has_terms {
        meta["termsOfService"] = json!(format!("{base}/terms"));
    }
    let profiles = rules
        .profiles
        .iter()
        .map(|name| ((*name).to_owned(), json!("")));
    meta["profiles"] = Value::Object(profiles.collect());
    let mut directory = json!({
        "newNonce": format!("{base}/nonce"),
        "newAccount": format!("{base}/account"),
        "newOrder": format!("{base}/order"),
        "meta": meta,
    });
    if rules.renewal.is_some() {
        directory["renewalInfo"] = json!(format!("{base}/ari"));
    }
    directory
}

fn raw(state: &Mutex<State>, status: u16, body: &str, lines: &str) -> TlsAnswer {
    let mut state = lock(state);
    state.count += 1;
    let nonce = format!("nonce{}", state.count);
    state.nonces.insert(nonce.clone());
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nReplay-Nonce: {nonce}\r\n{lines}\r\n",
        body.len()
    );
    TlsAnswer::Keep([head.as_bytes(), body.as_bytes()].concat())
}

fn decoded(value: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD
        .decode(value.as_str().expect("base64url"))
        .expect("base64url")
}

/// The payload of a signed request, and its account's URL or its key's thumbprint.
fn signed(state: &Mutex<State>, request: &Received, base: &str) -> Result<(Value, String), Reply> {
    assert_eq!(
        request.header("Content-Type"),
        Some("application/jose+json")
    );
    let whole: Value = serde_json::from_slice(&request.body).expect("JSON");
    let head: Value = serde_json::from_slice(&decoded(&whole["protected"])).expect("JSON");
    assert_eq!(head["url"], json!(format!("{base}{}", request.target())));
    assert!(!decoded(&whole["signature"]).is_empty());
    let mut state = lock(state);
    let nonce = head["nonce"].as_str().expect("a nonce");
    let is_known = state.nonces.remove(nonce);
    state.count += 1;
    if !is_known || (state.rules.refuses_nonces && state.count.is_multiple_of(2)) {
        return Err(problem(400, "badNonce", "not this one"));
    }
    let payload = decoded(&whole["payload"]);
    let payload = match payload.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&payload).expect("JSON"),
    };
    if let Some(kid) = head["kid"].as_str() {
        if !state.accounts.values().any(|url| url == kid) {
            return Err(problem(400, "accountDoesNotExist", "who is that?"));
        }
        if state.rules.has_deactivated.contains(kid) {
            return Err(problem(403, "unauthorized", "the account is deactivated"));
        }
        return Ok((payload, kid.to_owned()));
    }
    assert_eq!(request.target(), "/account");
    let thumbprint = Sha256::digest(head["jwk"].to_string().as_bytes());
    Ok((payload, URL_SAFE_NO_PAD.encode(thumbprint)))
}

fn reply(
    state: &Mutex<State>,
    authority: &Authority,
    (target, base): (&str, &str),
    payload: &Value,
    who: &str,
) -> Reply {
    let mut parts = target.trim_start_matches('/').split('/');
    let what = parts.next().unwrap_or_default();
    let mut number = || parts.next().and_then(|text| text.parse::<usize>().ok());
    match (what, number()) {
        ("account", None) => account(&mut lock(state), base, payload, who),
        ("order", None) => new_order(&mut lock(state), base, payload),
        ("order", Some(order)) => (200, order_state(&lock(state), base, order), None),
        ("authorization", Some(order)) => {
            let name = number().expect("a number");
            (200, authorization(&lock(state), base, (order, name)), None)
        }
        ("challenge", Some(order)) => {
            let name = number().expect("a number");
            let http = parts.next() == Some("http-01");
            let thumbprint = {
                let state = lock(state);
                let mut all = state.accounts.iter();
                all.find(|(_, url)| *url == who)
                    .expect("an account")
                    .0
                    .clone()
            };
            prove(state, (order, name), http, &thumbprint);
            (200, authorization(&lock(state), base, (order, name)), None)
        }
        ("finalize", Some(order)) => {
            finalize(&mut lock(state), authority, order, payload);
            (200, order_state(&lock(state), base, order), None)
        }
        ("certificate", Some(order)) => {
            let certificate = lock(state).orders[order].certificate.clone();
            (200, json!(certificate.expect("it is finished")), None)
        }
        _ => problem(404, "malformed", "no such resource"),
    }
}

fn account(state: &mut State, base: &str, payload: &Value, thumbprint: &str) -> Reply {
    if let Some(url) = state.accounts.get(thumbprint).cloned() {
        if state.rules.has_deactivated.contains(&url) {
            return problem(403, "unauthorized", "the account is deactivated");
        }
        return (200, json!({"status": "valid"}), Some(url));
    }
    if let Some(kid) = &state.rules.external_key {
        let head = decoded(&payload["externalAccountBinding"]["protected"]);
        let head: Value = serde_json::from_slice(&head).expect("JSON");
        if head["kid"] != json!(kid) || head["alg"] != json!("HS256") {
            return problem(403, "unauthorized", "the key is unknown");
        }
    }
    if state.rules.has_terms && payload["termsOfServiceAgreed"] != json!(true) {
        return problem(403, "userActionRequired", "agree to the terms");
    }
    state.contacts.push(payload["contact"].clone());
    let url = format!("{base}/account/{}", state.accounts.len());
    state.accounts.insert(thumbprint.to_owned(), url.clone());
    (201, json!({"status": "valid"}), Some(url))
}

fn new_order(state: &mut State, base: &str, payload: &Value) -> Reply {
    state.ordered.push(payload.clone());
    if let Some((kind, detail)) = state.rules.refuses_orders {
        return problem(400, kind, detail);
    }
    let names = payload["identifiers"]
        .as_array()
        .expect("identifiers")
        .clone();
    state.orders.push(Order {
        is_proven: vec![false; names.len()],
        names,
        error: None,
        certificate: None,
    });
    let number = state.orders.len() - 1;
    let location = format!("{base}/order/{number}");
    (201, order_state(state, base, number), Some(location))
}

fn order_state(state: &State, base: &str, number: usize) -> Value {
    let order = &state.orders[number];
    let status = match (&order.error, &order.certificate) {
        (Some(_), _) => "invalid",
        (None, Some(_)) => "valid",
        _ if order.is_proven.iter().all(|is_proven| *is_proven) => "ready",
        _ => "pending",
    };
    let authorizations = 0..order.names.len();
    let authorizations = authorizations.map(|name| format!("{base}/authorization/{number}/{name}"));
    let mut object = json!({
        "status": status,
        "identifiers": order.names,
        "authorizations": authorizations.collect::<Vec<_>>(),
        "finalize": format!("{base}/finalize/{number}"),
    });
    if order.certificate.is_some() {
        object["certificate"] = json!(format!("{base}/certificate/{number}"));
    }
    if let Some(error) = &order.error {
        object["error"] = error.clone();
    }
    object
}

fn token(order: usize, name: usize) -> String {
    format!("token-{order}-{name}")
}

fn authorization(state: &State, base: &str, (number, name): (usize, usize)) -> Value {
    let order = &state.orders[number];
    let status = match (&order.error, order.is_proven[name]) {
        (Some(_), _) => "invalid",
        (None, true) => "valid",
        (None, false) => "pending",
    };
    let challenge = |kind: &str| {
        let mut challenge = json!({
            "type": kind,
            "status": status,
            "url": format!("{base}/challenge/{number}/{name}/{kind}"),
            "token": token(number, name),
        });
        if let Some(error) = &order.error {
            challenge["error"] = error.clone();
        }
        challenge
    };
    json!({
        "status": status,
        "identifier": order.names[name],
        "challenges": [challenge("dns-01"), challenge("http-01"), challenge("tls-alpn-01")],
    })
}

/// Looks at a challenge's answer.
fn prove(state: &Mutex<State>, (order, name): (usize, usize), is_http: bool, thumbprint: &str) {
    let (identifier, rules) = {
        let state = lock(state);
        (
            state.orders[order].names[name]["value"].clone(),
            state.rules.clone(),
        )
    };
    let identifier = identifier.as_str().expect("a name").to_owned();
    let text = format!("{}.{thumbprint}", token(order, name));
    let seen = match is_http {
        true => by_http(rules.http_port, &identifier, &token(order, name), &text),
        false => by_tls(rules.tls_port, &identifier, &text),
    };
    let mut state = lock(state);
    match seen {
        Ok(()) => state.orders[order].is_proven[name] = true,
        Err(reason) => {
            let (_, error, _) = problem(403, "unauthorized", &reason);
            state.orders[order].error = Some(error);
        }
    }
}

fn by_http(port: u16, host: &str, token: &str, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!(
        "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let is_good =
        answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("\r\n\r\n{text}"));
    match is_good {
        true => Ok(()),
        false => Err(format!("the answer is {:?}", answer.lines().next())),
    }
}

fn by_tls(port: u16, host: &str, text: &str) -> Result<(), String> {
    let client = TlsClient::with_protocol(b"acme-tls/1");
    let mut stream = client.connect(port, host)?;
    while stream.conn.is_handshaking() {
        let step = stream.conn.complete_io(&mut stream.sock);
        step.map_err(|error| error.to_string())?;
    }
    let certificate = stream.conn.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or("no certificate")?.to_vec();
    let digest = Sha256::digest(text.as_bytes());
    let has_digest = certificate
        .windows(digest.len())
        .any(|window| window == &digest[..]);
    match has_digest && stream.conn.alpn_protocol() == Some(b"acme-tls/1") {
        true => Ok(()),
        false => Err("it is another certificate".to_owned()),
    }
}

fn finalize(state: &mut State, authority: &Authority, number: usize, payload: &Value) {
    let request = decoded(&payload["csr"]);
    let key = RequestedKey::of(&request).expect("a request for a certificate");
    let seconds = match state.rules.valid_seconds {
        0 => Duration::from_secs(90 * 24 * 3600).as_secs(),
        seconds => seconds,
    };
    let order = &mut state.orders[number];
    let names = order
        .names
        .iter()
        .map(|name| name["value"].as_str().expect("a name").to_owned());
    let names: Vec<_> = names.collect();
    for name in &names {
        let has_name = request
            .windows(name.len())
            .any(|window| window == name.as_bytes());
        assert!(
            has_name || name.parse::<std::net::IpAddr>().is_ok(),
            "{name}"
        );
    }
    let validity = (state.rules.ahead_seconds, seconds);
    let certificate = authority.issue_for(&names, &key, validity);
    order.certificate = Some(certificate);
}

/// The key that a request for a certificate is signed by.
struct RequestedKey {
    bits: Vec<u8>,
    is_rsa: bool,
}

impl RequestedKey {
    fn of(request: &[u8]) -> Option<Self> {
        let (whole, _) = value(request)?;
        let (info, _) = value(whole)?;
        let (_, rest) = value(info)?; // version
        let (_, rest) = value(rest)?; // subject
        let (key, _) = value(rest)?;
        let (algorithm, bits) = value(key)?;
        let (bits, _) = value(bits)?;
        let (oid, _) = value(algorithm)?;
        Some(Self {
            bits: bits[1..].to_vec(),
            is_rsa: oid == [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1],
        })
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match (self.is_rsa, self.bits.len()) {
            (true, _) => &rcgen::PKCS_RSA_SHA256,
            (false, 97) => &rcgen::PKCS_ECDSA_P384_SHA384,
            (false, 133) => &rcgen::PKCS_ECDSA_P521_SHA512,
            _ => &rcgen::PKCS_ECDSA_P256_SHA256,
        }
    }
}

/// The contents of the first value of DER, and what follows it.
fn value(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let digits = match length & 0x80 {
        0 => 0,
        _ => usize::from(length & 0x7f),
    };
    let (long, rest) = rest.split_at_checked(digits)?;
    let long = long
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let length = if digits > 0 {
        long
    } else {
        usize::from(*length)
    };
    rest.split_at_checked(length)
}

/// A time of RFC 3339.
fn rfc3339(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.expect("a time of today's").to_string()
}
