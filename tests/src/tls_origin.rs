//! A server with TLS behind the server under test, and the certificates that it shows.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PublicKeyData,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::origin::{Received, read};

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Authority {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        Authority(CertifiedIssuer::self_signed(params, key).expect("it signs"))
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name.
    pub fn issue(&self, name: &str) -> Pem {
        self.sign(&params(name))
    }

    /// One that was good until 2020.
    pub fn issue_expired(&self, name: &str) -> Pem {
        let mut params = params(name);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(&params)
    }

    /// A certificate for names and addresses with another's key: valid from so many seconds later than now, for so many.
    ///
    /// # Panics
    /// A name is none.
    pub fn issue_for(
        &self,
        names: &[String],
        key: &impl PublicKeyData,
        (later, seconds): (i64, u64),
    ) -> String {
        let mut params = CertificateParams::new(names.to_vec()).expect("they are names");
        let part = std::time::Duration::from_secs(later.unsigned_abs());
        let now = std::time::SystemTime::now();
        let begin = if later < 0 { now - part } else { now + part };
        params.not_before = begin.into();
        params.not_after = (begin + std::time::Duration::from_secs(seconds)).into();
        params.use_authority_key_identifier_extension = true;
        params.signed_by(key, &self.0).expect("it signs").pem()
    }

    fn sign(&self, params: &CertificateParams) -> Pem {
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.signed_by(&key, &self.0).expect("it signs");
        Pem {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("it is a name");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// What an origin with TLS does with a request.
pub enum TlsAnswer {
    /// Sends this and waits for the next request.
    Keep(Vec<u8>),
    /// Sends this and closes, as TLS asks for.
    Close(Vec<u8>),
    /// Sends this and closes the connection without a word of TLS.
    CutOff(Vec<u8>),
    /// Sends this and then whatever comes.
    Echo(Vec<u8>),
}

impl TlsAnswer {
    /// A 200 with a length and this body.
    pub fn ok(body: impl AsRef<[u8]>) -> TlsAnswer {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        TlsAnswer::Keep([head.as_bytes(), body].concat())
    }
}

/// What a handshake has brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shaken {
    /// The name that was asked for.
    pub name: Option<String>,
    /// Whether an old session was taken up.
    pub is_resumed: bool,
    /// Whether a certificate was shown.
    pub has_certificate: bool,
}

/// A server with TLS on a free port, with a thread for each connection. Ends with the test's process.
pub struct TlsOrigin {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    handshakes: Arc<Mutex<Vec<Shaken>>>,
}

type Says = dyn Fn(&Received) -> TlsAnswer + Send + Sync;

struct Kept {
    received: Arc<Mutex<Vec<Received>>>,
    handshakes: Arc<Mutex<Vec<Shaken>>>,
    answer: Box<Says>,
}

impl TlsOrigin {
    /// Starts one that shows this certificate; clients need one of `clients`, where there is one.
    pub fn start(
        pem: &Pem,
        clients: Option<&Authority>,
        answer: impl Fn(&Received) -> TlsAnswer + Send + Sync + 'static,
    ) -> TlsOrigin {
        let config = Arc::new(config(pem, clients));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let origin = TlsOrigin {
            port: listener.local_addr().expect("it listens").port(),
            received: Arc::default(),
            handshakes: Arc::default(),
        };
        let kept = Arc::new(Kept {
            received: Arc::clone(&origin.received),
            handshakes: Arc::clone(&origin.handshakes),
            answer: Box::new(answer),
        });
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (config, kept) = (Arc::clone(&config), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream, number, config, &kept));
            }
        });
        origin
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// What it was asked so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no test panics in it").clone()
    }

    /// Its handshakes so far.
    pub fn handshakes(&self) -> Vec<Shaken> {
        self.handshakes
            .lock()
            .expect("no test panics in it")
            .clone()
    }
}

fn config(pem: &Pem, clients: Option<&Authority>) -> ServerConfig {
    let builder = ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(authority.pem().as_bytes());
            roots.add(root.expect("it is PEM")).expect("it is a root");
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            builder.with_client_cert_verifier(verifier.expect("there is a root"))
        }
    };
    let certificate = CertificateDer::from_pem_slice(pem.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).expect("it is PEM");
    let chain = vec![certificate.expect("it is PEM")];
    builder.with_single_cert(chain, key).expect("they fit")
}

fn serve(stream: TcpStream, connection: usize, config: Arc<ServerConfig>, kept: &Kept) {
    let _ = stream.set_nodelay(true);
    let tls = ServerConnection::new(config).expect("the configuration is sound");
    let mut stream = StreamOwned::new(tls, stream);
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            return;
        }
    }
    kept.handshakes
        .lock()
        .expect("no test panics in it")
        .push(Shaken {
            name: stream.conn.server_name().map(str::to_owned),
            is_resumed: stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            has_certificate: stream.conn.peer_certificates().is_some(),
        });
    let mut ahead = Vec::new();
    while let Some((head, body)) = read(&mut stream, &mut ahead) {
        let request = Received {
            head,
            body,
            connection,
        };
        let answer = (kept.answer)(&request);
        kept.received
            .lock()
            .expect("no test panics in it")
            .push(request);
        match answer {
            TlsAnswer::Keep(bytes) if stream.write_all(&bytes).is_ok() => {}
            TlsAnswer::Keep(_) => return,
            TlsAnswer::CutOff(bytes) => return drop(stream.write_all(&bytes)),
            TlsAnswer::Close(bytes) => {
                let _ = stream.write_all(&bytes);
                stream.conn.send_close_notify();
                return drop(stream.flush());
            }
            TlsAnswer::Echo(bytes) => return echo(&mut stream, &bytes, &ahead),
        }
    }
}

fn echo(stream: &mut (impl Read + Write), first: &[u8], ahead: &[u8]) {
    let mut buffer = vec![0; 65_536];
    let mut outcome = stream
        .write_all(first)
        .and_then(|()| stream.write_all(ahead));
    while outcome.is_ok() {
        outcome = match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => stream.write_all(&buffer[..count]),
        };
    }
}
