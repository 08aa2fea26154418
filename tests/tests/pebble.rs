//! Certificates by ACME against Pebble, the test authority of Let's Encrypt, with its faults on: `cargo xtask acme`.
//!
//! Needs Pebble and `pebble-challtestsrv` beside it (its name server), and `openssl`; for a wrong clock `faketime`.
#![expect(
    clippy::disallowed_methods,
    reason = "tests have no event loop: a thread per test, blocking sockets and files"
)]

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blackbox::tls::{Certificate, Seen, TlsClient};
use blackbox::{Port, Server, Site, split_reply};
use serde_json::{Value, json};

/// Maximum time for an order: the authority sleeps up to 15 s before it looks at a challenge.
const PATIENCE: Duration = Duration::from_secs(120);

fn pebble() -> PathBuf {
    let path = std::env::var_os("ACME_PEBBLE").expect("cargo xtask acme --pebble PATH");
    PathBuf::from(path)
}

/// The authority and its name server. They end with this value.
struct Pebble {
    children: Vec<Child>,
    port: Port,
    names: Port,
    config: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
}

impl Pebble {
    /// Starts one that looks for proofs at the site's first two ports; `more` are members of its configuration.
    fn start(site: &Site, more: &Value, environment: &[(&'static str, &'static str)]) -> Pebble {
        let own = Certificate::of("localhost");
        own.write(site, "pebble");
        site.secret("ca.crt", &own.certificate);
        let (port, management, names, unused) =
            (Port::take(), Port::take(), Port::take(), Port::take());
        let mut config = json!({
            "listenAddress": format!("127.0.0.1:{}", port.number()),
            "managementListenAddress": format!("127.0.0.1:{}", management.number()),
            "certificate": site.path("pebble.crt"),
            "privateKey": site.path("pebble.key"),
            "httpPort": site.port(0),
            "tlsPort": site.port(1),
            "ocspResponderURL": "",
        });
        for (name, value) in more.as_object().expect("members") {
            config[name] = value.clone();
        }
        let path = site.secret("pebble.json", &json!({"pebble": config}).to_string());
        let mut names_server = Command::new(pebble().with_file_name("pebble-challtestsrv"));
        names_server
            .args([
                "-defaultIPv6",
                "",
                "-defaultIPv4",
                "127.0.0.1",
                "-http01",
                "",
                "-https01",
                "",
            ])
            .args([
                "-tlsalpn01",
                "",
                "-doh",
                "",
                "-dnsserver",
                &format!("127.0.0.1:{}", names.number()),
            ])
            .args(["-management", &format!("127.0.0.1:{}", unused.number())]);
        let mut started = Pebble {
            children: vec![spawned(&mut names_server)],
            port,
            names,
            config: path,
            environment: environment.to_vec(),
        };
        started.run();
        started
    }

    /// Starts the authority itself, and waits until it answers.
    fn run(&mut self) {
        let mut command = Command::new(pebble());
        command
            .args(["-strict", "-config"])
            .arg(&self.config)
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.names.number())])
            .envs(self.environment.iter().copied());
        self.children.push(spawned(&mut command));
        until("Pebble", || self.request("GET", "/dir", None));
    }

    /// Kills the authority and starts it again: it has forgotten everything.
    fn forget(&mut self) {
        let mut authority = self.children.pop().expect("it runs");
        authority.kill().expect("it is ours");
        authority.wait().expect("it is ours");
        self.run();
    }

    fn uri(&self) -> String {
        format!("https://localhost:{}/dir", self.port.number())
    }

    /// A request without a library: head lines and body of the answer.
    fn request(&self, method: &str, path: &str, body: Option<&str>) -> Option<(String, Vec<u8>)> {
        if std::net::TcpStream::connect(("127.0.0.1", self.port.number())).is_err() {
            return None;
        }
        let mut stream = TlsClient::new(None)
            .connect(self.port.number(), "localhost")
            .ok()?;
        let body = body.unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nUser-Agent: test\r\nConnection: close\r\nContent-Type: application/jose+json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port.number(),
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        let (reply, _) = split_reply(&bytes, method == "HEAD", true)?;
        Some((String::from_utf8_lossy(&bytes).into_owned(), reply.body))
    }

    /// Deactivates the account whose key and URL lie in a state directory (RFC 8555, 7.3.6).
    fn deactivate(&self, state: &std::path::Path) {
        let account = std::fs::read_to_string(state.join("account.url")).expect("an account");
        let path = format!("/{}", account.splitn(4, '/').nth(3).expect("a URL"));
        until("the account deactivated", || {
            let (head, _) = self.request("HEAD", "/nonce-plz", None)?;
            let nonce = head
                .lines()
                .find_map(|line| line.strip_prefix("Replay-Nonce: "))?;
            let head = json!({"alg": "ES256", "kid": account, "nonce": nonce, "url": account});
            let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let input = format!(
                "{}.{}",
                encode(head.to_string().as_bytes()),
                encode(br#"{"status":"deactivated"}"#)
            );
            let (head, payload) = input.split_once('.')?;
            let signature = encode(&signature(&state.join("account.key"), &input));
            let body = json!({"protected": head, "payload": payload, "signature": signature});
            let (_, answer) = self.request("POST", &path, Some(&body.to_string()))?;
            println!("the account: {}", String::from_utf8_lossy(&answer));
            let answer: Value = serde_json::from_slice(&answer).ok()?;
            (answer["status"] == "deactivated").then_some(())
        });
    }
}

/// A signature of ECDSA on P-256 in JSON's form: both numbers, 32 bytes each.
fn signature(key: &std::path::Path, input: &str) -> Vec<u8> {
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-sign"])
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl can be run");
    let mut stdin = openssl.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let der = openssl.wait_with_output().expect("it ends").stdout;
    // SEQUENCE { INTEGER, INTEGER }, all shorter than 128 bytes.
    let (length, rest) = (usize::from(der[3]), &der[4..]);
    let (first, rest) = rest.split_at(length);
    let numbers = [first, &rest[2..]];
    let padded = numbers.map(|number| {
        let digits = &number[number.len().saturating_sub(32)..];
        [vec![0; 32 - digits.len()], digits.to_vec()].concat()
    });
    padded.concat()
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawned(command: &mut Command) -> Child {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
        .spawn()
        .expect("Pebble and pebble-challtestsrv can be run")
}

fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    blackbox::until(what, PATIENCE, look)
}

/// The text for `http`: servers at 80 and 443, with certificates of these words.
fn http(pebble: &Pebble, issuer: &str, certificates: &[&str]) -> String {
    let mut text = format!(
        "resolver 127.0.0.1:{} ipv6=off;
         acme_issuer main {{ uri {}; ssl_trusted_certificate ca.crt; state_path %DIR%/state;
             accept_terms_of_service; {issuer} }}
         server {{ listen 127.0.0.1:%PORT%; return 301 https://$host/; }}",
        pebble.names.number(),
        pebble.uri()
    );
    for words in certificates {
        let name = words.split(' ').next().unwrap_or_default();
        text.push_str(&format!(
            "server {{ listen 127.0.0.1:%PORT1% ssl; server_name {name}; acme_certificate main {words};
                 ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; return 200 $host; }}\n"
        ));
    }
    text
}

fn shown(server: &Server, name: &str) -> Seen {
    let port = server.site().port(1);
    until(name, || TlsClient::new(None).get(port, name, "/").ok())
}

fn has(certificate: &[u8], name: &str) -> bool {
    certificate
        .windows(name.len())
        .any(|window| window == name.as_bytes())
}

const FAULTS: &[(&str, &str)] = &[
    ("PEBBLE_WFE_NONCEREJECT", "30"),
    ("PEBBLE_WFE_AUTHZREUSE", "50"),
];

#[test]
#[ignore = "needs Pebble: cargo xtask acme"]
fn first_certificates_by_both_challenges_of_both_kinds_of_keys() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let site = Site::new();
        let pebble = Pebble::start(&site, &json!({}), FAULTS);
        let words = [
            "one.test a.test b.test",
            "two.test key=rsa",
            "three.test key=ecdsa:384",
        ];
        let issuer = format!("challenge {challenge};");
        let server = Server::start_on(site, "", &http(&pebble, &issuer, &words));
        for name in ["one.test", "two.test", "three.test"] {
            let seen = shown(&server, name);
            assert!(has(&seen.certificate, name), "{challenge} {name}");
            println!("{challenge}: {name}");
        }
        assert!(has(&shown(&server, "one.test").certificate, "b.test"));
    }
}

#[test]
#[ignore = "needs Pebble: cargo xtask acme"]
fn an_account_is_bound_and_one_without_a_key_is_refused() {
    let site = Site::new();
    let keys = json!({"externalAccountBindingRequired": true, "externalAccountMACKeys": {
        "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"}});
    let pebble = Pebble::start(&site, &keys, &[("PEBBLE_VA_NOSLEEP", "1")]);
    let server = Server::start_on(site, "", &http(&pebble, "", &["one.test"]));
    server.wait_for(
        "external account key required while updating certificate",
        "a refusal",
    );
    let key = "external_account_key kid-1 data:zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W;";
    server.reload(&http(&pebble, key, &["one.test"]));
    assert!(has(&shown(&server, "one.test").certificate, "one.test"));
}

#[test]
#[ignore = "needs Pebble: cargo xtask acme"]
fn a_short_life_is_renewed_and_orders_stay_apart() {
    let site = Site::new();
    let short =
        json!({"certificateValidityPeriod": 40, "profiles": {"default": {"validityPeriod": 40}}});
    let pebble = Pebble::start(
        &site,
        &short,
        &[("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "30")],
    );
    let server = Server::start_on(site, "", &http(&pebble, "", &["one.test"]));
    let first = shown(&server, "one.test").certificate;
    let begun = Instant::now();
    until("another certificate", || {
        (shown(&server, "one.test").certificate != first).then_some(())
    });
    println!("renewed after {:?}", begun.elapsed());
    let orders = server.error_log().matches("certificate issued").count();
    assert!(
        orders as u64 <= 2 + begun.elapsed().as_secs() / 10,
        "{orders} orders"
    );
}

#[test]
#[ignore = "needs Pebble: cargo xtask acme"]
fn accounts_that_are_deactivated_or_forgotten_are_made_anew() {
    let site = Site::new();
    let mut pebble = Pebble::start(&site, &json!({}), &[("PEBBLE_VA_NOSLEEP", "1")]);
    let server = Server::start_on(site, "", &http(&pebble, "", &["one.test"]));
    shown(&server, "one.test");
    pebble.deactivate(&server.site().path("state"));
    server.reload(&http(&pebble, "", &["one.test", "two.test"]));
    assert!(has(&shown(&server, "two.test").certificate, "two.test"));
    server.wait_for(
        "the account is given up, and another one made",
        "a line about the account",
    );
    // The authority has lost everything: the next order begins with an account again.
    pebble.forget();
    server.reload(&http(&pebble, "", &["one.test", "two.test", "three.test"]));
    assert!(has(&shown(&server, "three.test").certificate, "three.test"));
}

/// The library of `faketime`.
fn faketime() -> String {
    let said = Command::new("faketime").args(["-f", "+1d", "env"]).output();
    let said = String::from_utf8(said.expect("faketime can be run").stdout).expect("text");
    let mut lines = said.lines();
    let preload = lines.find_map(|line| line.strip_prefix("LD_PRELOAD="));
    preload.expect("a library").to_owned()
}

#[test]
#[ignore = "needs Pebble: cargo xtask acme"]
fn a_wrong_clock_causes_no_storm() {
    for offset in ["+200d", "-200d"] {
        let site = Site::new();
        let pebble = Pebble::start(&site, &json!({}), &[("PEBBLE_VA_NOSLEEP", "1")]);
        let text = http(&pebble, "", &["one.test"]);
        let site = site
            .with_environment("LD_PRELOAD", &faketime())
            .with_environment("FAKETIME", offset);
        let server = Server::start_on(site, "", &text);
        shown(&server, "one.test");
        server.wait_for("the certificate is due as soon as it came", "a warning");
        std::thread::sleep(Duration::from_secs(25));
        assert_eq!(
            server.error_log().matches("certificate issued").count(),
            1,
            "{offset}"
        );
        println!("clock {offset}: one order");
    }
}
