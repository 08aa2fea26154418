//! Certificates made for a test, and clients of rustls in memory.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "each test program uses a part")]

mod any_certificate;
pub mod stapled;

pub use any_certificate::Any;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Error};
use std::io::{Read, Write};
use std::sync::Arc;
use tls::certificates::{Certificates, Pair};
use tls::configure::{Server, ServerOptions};
use tls::handshake::{Complete, Failure, Handshake, NeedsInput};
use tls::keys;

/// A certificate and its key, as PEM.
pub struct Made {
    pub certificate: String,
    pub key: String,
    pub der: CertificateDer<'static>,
}

/// An authority.
pub struct Authority(pub CertifiedIssuer<'static, KeyPair>);

pub fn key(algorithm: &'static SignatureAlgorithm) -> KeyPair {
    if algorithm == &PKCS_RSA_SHA256 {
        return KeyPair::generate_rsa_for(algorithm, RsaKeySize::_2048).unwrap();
    }
    KeyPair::generate_for(algorithm).unwrap()
}

pub fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A self-signed certificate.
pub fn self_signed(name: &str, algorithm: &'static SignatureAlgorithm) -> Made {
    let key = key(algorithm);
    let certificate = params(name).self_signed(&key).unwrap();
    Made {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        der: certificate.der().clone(),
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = key(&PKCS_ECDSA_P256_SHA256);
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// An authority below this one.
    pub fn below(&self, name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = key(&PKCS_ECDSA_P256_SHA256);
        Self(CertifiedIssuer::signed_by(params, key, &self.0).unwrap())
    }

    pub fn issue(&self, params: &CertificateParams) -> Made {
        let key = key(&PKCS_ECDSA_P256_SHA256);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Made {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
        }
    }

    pub fn client(&self, name: &str) -> Made {
        let mut params = params(name);
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ClientAuth);
        self.issue(&params)
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }
}

impl Made {
    pub fn pair(&self) -> Pair {
        let no_file = |_: &str| unreachable!();
        let certificate = format!("data:{}", self.certificate);
        let key = format!("data:{}", self.key);
        Arc::new(keys::pair(&certificate, &key, &[], &no_file).unwrap())
    }

    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        rustls::pki_types::pem::PemObject::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// Options of a server with one certificate.
pub fn options(made: &Made) -> ServerOptions {
    ServerOptions {
        certificates: Arc::new(Certificates::new(vec![made.pair()])),
        ..ServerOptions::default()
    }
}

pub fn server(made: &Made) -> Server {
    Server::new(options(made)).unwrap()
}

pub type Versions = &'static [&'static rustls::SupportedProtocolVersion];
pub const TLS12: Versions = &[&rustls::version::TLS12];
pub const TLS13: Versions = &[&rustls::version::TLS13];

/// A client's configuration, with its own certificate or without.
pub fn client_config(versions: Versions, own: Option<&Made>) -> ClientConfig {
    let builder = ClientConfig::builder_with_protocol_versions(versions)
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(made) => {
            let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&made.private_key());
            let certified = rustls::sign::CertifiedKey::new(vec![made.der.clone()], key.unwrap());
            let resolver = rustls::sign::SingleCertAndKey::from(certified);
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
    };
    config.max_fragment_size = None;
    config
}

pub fn client(config: ClientConfig, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// What the client has to send.
pub fn take(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Gives bytes to the client.
pub fn give(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// Gives bytes to the client, and takes what it makes of them.
pub fn receive(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets().unwrap();
        received.extend(read(client));
    }
    received
}

/// What the client has received.
pub fn read(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut length = 0;
    while let Ok(more @ 1..) = client.reader().read(&mut bytes[length..]) {
        length += more;
    }
    bytes.truncate(length);
    bytes
}

/// Runs a handshake to its end, `cut` bytes of the client at a time.
pub fn handshake(
    server: &Server,
    client: &mut ClientConnection,
    cut: usize,
) -> Result<Box<Complete>, Failure> {
    let mut state = Handshake::NeedsInput(NeedsInput::default());
    let mut outgoing = Vec::new();
    let mut incoming = Vec::new();
    loop {
        state = match state {
            Handshake::NeedsInput(mut needs) => {
                if incoming.is_empty() {
                    incoming = take(client);
                }
                if incoming.is_empty() {
                    return Err(Failure::closed());
                }
                let rest = incoming.split_off(cut.min(incoming.len()));
                needs.receive(&std::mem::replace(&mut incoming, rest));
                needs.step(&mut outgoing)
            }
            Handshake::Accepted(accepted) => accepted.choose(server, None, &mut outgoing),
            Handshake::Complete(mut complete) => {
                give(client, &outgoing).unwrap();
                complete.rest.extend_from_slice(&incoming);
                return Ok(complete);
            }
        }
        .inspect_err(|_| drop(give(client, &outgoing)))?;
        if let Err(error) = give(client, &std::mem::take(&mut outgoing)) {
            let _ = error;
        }
    }
}

/// Opens what has come in one go.
pub fn open(complete: &mut Complete, bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>, bool), Failure> {
    let mut buffer = std::mem::take(&mut complete.rest);
    buffer.extend_from_slice(bytes);
    let mut replies = Vec::new();
    let opened = complete.traffic.open(&mut buffer, &mut replies)?;
    complete.rest = buffer.split_off(opened.consumed);
    buffer.truncate(opened.plain);
    Ok((buffer, replies, opened.is_closed))
}

/// Sends text both ways.
pub fn talk(complete: &mut Complete, client: &mut ClientConnection) {
    client.writer().write_all(b"question").unwrap();
    let bytes = take(client);
    let (question, replies, _) = open(complete, &bytes).unwrap();
    assert_eq!((question.as_slice(), replies.len()), (&b"question"[..], 0));
    let mut out = Vec::new();
    complete
        .traffic
        .seal(&[b"ans", b"", b"wer"], &mut out)
        .unwrap();
    give(client, &out).unwrap();
    assert_eq!(read(client), b"answer");
}
