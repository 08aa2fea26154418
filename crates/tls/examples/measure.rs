//! What handshakes, records and idle connections cost: `cargo run --release -p freewheel-tls --example measure`.
//!
//! Processor time of the server's side alone, of one thread, memory to memory. The figures of docs come from here.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::certificates::Certificates;
use tls::configure::{Client, ClientOptions, Server, ServerOptions};
use tls::handshake::{
    ClientNeedsInput, Complete, Connected, Connecting, Handshake, NeedsInput, PeerSessions,
};
use tls::keys;
use tls::sessions::Tickets;
use tls::suites::Protocols;
use tls::traffic::Sizes;

const HANDSHAKES: usize = 300;
const IDLE: usize = 5000;

fn main() {
    let ecdsa = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
    for (name, key) in [("ECDSA P-256", &ecdsa), ("RSA-2048", &rsa)] {
        let certificates = certificates(key);
        for version in ["TLSv1.3", "TLSv1.2"] {
            for group in ["X25519", "X25519MLKEM768"] {
                handshakes(name, &certificates, version, group);
            }
        }
    }
    let certificates = certificates(&ecdsa);
    records(&certificates);
    idle(&certificates);
}

fn certificates(key: &KeyPair) -> Arc<Certificates> {
    let params = CertificateParams::new(vec!["example.org".to_owned()]).expect("a name");
    let certificate = params.self_signed(key).expect("a certificate");
    let (certificate, key) = (
        format!("data:{}", certificate.pem()),
        format!("data:{}", key.serialize_pem()),
    );
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let pair = keys::pair(&certificate, &key, &[], &no_file).expect("a pair");
    Arc::new(Certificates::new(vec![Arc::new(pair)]))
}

fn server(certificates: &Arc<Certificates>, group: &str) -> Server {
    let tickets = Tickets::random(Duration::from_secs(300)).expect("random bytes");
    Server::new(ServerOptions {
        certificates: Arc::clone(certificates),
        groups: group.to_owned(),
        tickets: Some(Arc::new(tickets)),
        sizes: Sizes::Fixed(16_384),
        ..ServerOptions::default()
    })
    .expect("a server")
}

fn client(version: &str, ciphersuites: &str) -> Client {
    let mut options = ClientOptions {
        protocols: Protocols::read([version]).expect("a version").chosen,
        ..ClientOptions::default()
    };
    options
        .commands
        .take("Ciphersuites", ciphersuites)
        .expect("a command");
    Client::new(options).expect("a client")
}

const ALL: &str = "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/// A whole handshake, what the server's part of it took, and its longest step.
fn connect(
    server: &Server,
    client: &Client,
    sessions: Option<&PeerSessions>,
) -> (Box<Complete>, Box<Connected>, Duration, Duration) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut spent, mut longest) = (Duration::ZERO, Duration::ZERO);
    let needs = ClientNeedsInput::new(client, "example.org", sessions).expect("a client");
    let mut ours = needs.step(&mut to_server).expect("a hello");
    let mut theirs = Handshake::NeedsInput(NeedsInput::default());
    loop {
        let begun = Instant::now();
        theirs = match theirs {
            Handshake::NeedsInput(mut needs) => {
                needs.receive(&to_server);
                to_server.clear();
                needs.step(&mut to_client)
            }
            Handshake::Accepted(accepted) => accepted.choose(server, None, &mut to_client),
            complete => Ok(complete),
        }
        .expect("a handshake");
        let step = begun.elapsed();
        (spent, longest) = (spent + step, longest.max(step));
        ours = match ours {
            Connecting::NeedsInput(mut needs) => {
                needs.receive(&to_client);
                to_client.clear();
                needs.step(&mut to_server).expect("a handshake")
            }
            complete => complete,
        };
        match (theirs, ours) {
            (Handshake::Complete(theirs), Connecting::Complete(mut ours)) => {
                ours.rest.extend_from_slice(&to_client);
                return (theirs, ours, spent, longest);
            }
            (other, another) => (theirs, ours) = (other, another),
        }
    }
}

fn handshakes(name: &str, certificates: &Arc<Certificates>, version: &str, group: &str) {
    let (server, client) = (server(certificates, group), client(version, ALL));
    if version == "TLSv1.2" && group != "X25519" {
        return;
    }
    let runs = (0..HANDSHAKES).map(|_| connect(&server, &client, None));
    let (mut full, mut longest): (Vec<_>, Vec<_>) =
        runs.map(|(_, _, spent, longest)| (spent, longest)).unzip();
    let sessions = PeerSessions::default();
    let mut resumed = Vec::new();
    for _ in 0..HANDSHAKES {
        let (theirs, mut ours, spent, _) = connect(&server, &client, Some(&sessions));
        let mut rest = std::mem::take(&mut ours.rest);
        ours.traffic
            .open(&mut rest, &mut Vec::new())
            .expect("tickets");
        if theirs.facts.is_resumed {
            resumed.push(spent);
        }
    }
    println!(
        "{name}, {version}, {group}: full {:.0} us (longest step {:.0}, p99 {:.0}), resumed {:.0} us; of {} and {}",
        quantile(&mut full, 50),
        quantile(&mut longest, 50),
        quantile(&mut longest, 99),
        quantile(&mut resumed, 50),
        full.len(),
        resumed.len(),
    );
}

fn quantile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let time = times.get(times.len() * percent / 100);
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

fn records(certificates: &Arc<Certificates>) {
    let server = server(certificates, "X25519");
    for suite in ALL.split(':') {
        for size in [1024, 16_384, 262_144] {
            let (mut theirs, mut ours, ..) = connect(&server, &client("TLSv1.3", suite), None);
            let plain = vec![7; size];
            let mut out = Vec::with_capacity(theirs.traffic.sealed_bytes(size));
            let rounds = (1 << 30) / size;
            let begun = Instant::now();
            for _ in 0..rounds {
                out.clear();
                theirs.traffic.seal(&[&plain], &mut out).expect("sealed");
            }
            let sealing = begun.elapsed();
            let mut opening = Duration::ZERO;
            for _ in 0..rounds {
                out.clear();
                ours.traffic.seal(&[&plain], &mut out).expect("sealed");
                let begun = Instant::now();
                theirs
                    .traffic
                    .open(&mut out, &mut Vec::new())
                    .expect("opened");
                opening += begun.elapsed();
            }
            let gigabytes = (rounds * size) as f64 / 1e9;
            println!(
                "{suite}, {size} bytes: sealing {:.1} GB/s, opening {:.1} GB/s",
                gigabytes / sealing.as_secs_f64(),
                gigabytes / opening.as_secs_f64(),
            );
        }
    }
}

/// Memory of connections that wait, one version in a process: what one frees, the other would find.
fn idle(certificates: &Arc<Certificates>) {
    let version = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "TLSv1.3".to_owned());
    let (server, client) = (server(certificates, "X25519"), client(&version, ALL));
    let warm: Vec<_> = (0..500).map(|_| connect(&server, &client, None)).collect();
    let before = resident();
    let kept: Vec<_> = (0..IDLE)
        .map(|_| connect(&server, &client, None).0.traffic)
        .collect();
    let alone = resident().saturating_sub(before) / IDLE;
    let before = resident();
    let whole: Vec<_> = (0..IDLE)
        .map(|_| connect(&server, &client, None).0)
        .collect();
    let with_facts = resident().saturating_sub(before) / IDLE;
    println!(
        "{version}: idle connection {alone} bytes, {with_facts} with what was negotiated and offered"
    );
    let before = resident();
    let open: Vec<_> = (0..IDLE).map(|_| half_open(&server, &client)).collect();
    let half_open = resident().saturating_sub(before) / IDLE;
    println!("{version}: half-open handshake {half_open} bytes");
    drop((warm, kept, whole, open));
}

/// A handshake whose client has been answered and says nothing.
fn half_open(server: &Server, client: &Client) -> Handshake {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let ours = ClientNeedsInput::new(client, "example.org", None).expect("a client");
    ours.step(&mut to_server).map(drop).expect("a hello");
    let mut needs = NeedsInput::default();
    needs.receive(&to_server);
    match needs.step(&mut to_client).expect("a hello") {
        Handshake::Accepted(accepted) => accepted
            .choose(server, None, &mut to_client)
            .expect("a flight"),
        other => other,
    }
}

/// Bytes of memory that the process holds.
#[expect(clippy::disallowed_methods, reason = "a tool that measures")]
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
