//! Certificates and keys as files have them: forms, passwords, faults with nginx's sentences, changes on the disk.
//! The files of `fixtures` are OpenSSL's: a certificate of version 1 and its key under each form of encryption
//! (password `secret`), and a self-signed leaf that is an authority, as `openssl req -x509` makes it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod peer;

use peer::*;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::certificates::{CertificateCache, Certificates, Outcome, Stamp, Watched};
use tls::configure::{Server, ServerOptions};
use tls::keys::{self, Password, passwords};
use tls::x509::certificate::Certificate;
use tls::x509::{distinguished, facts, time};

const V1: &str = include_str!("fixtures/v1.crt");
const V1_KEY: &str = include_str!("fixtures/v1.key");
const CA: &str = include_str!("fixtures/ca.crt");

/// Every form of the same key.
const ENCRYPTED: [&str; 8] = [
    include_str!("fixtures/enc-trad-aes256.key"),
    include_str!("fixtures/enc-trad-des3.key"),
    include_str!("fixtures/enc-p8-aes128.key"),
    include_str!("fixtures/enc-p8-aes192.key"),
    include_str!("fixtures/enc-p8-aes256.key"),
    include_str!("fixtures/enc-p8-des3.key"),
    include_str!("fixtures/enc-p8-sha1.key"),
    include_str!("fixtures/enc-p8-sha512.key"),
];

fn data(text: &str) -> String {
    format!("data:{text}")
}

fn no_file(path: &str) -> io::Result<Vec<u8>> {
    panic!("{path}")
}

fn secrets(list: &str) -> Vec<Password> {
    passwords::read("passwords", list.as_bytes()).unwrap()
}

#[test]
fn a_certificate_of_version_1_serves() {
    let pair = keys::pair(&data(V1), &data(V1_KEY), &[], &no_file).unwrap();
    let options = ServerOptions {
        certificates: Arc::new(Certificates::new(vec![Arc::new(pair)])),
        ..ServerOptions::default()
    };
    let server = Server::new(options).unwrap();
    for versions in [TLS12, TLS13] {
        let mut client = client(client_config(versions, None), "example.org");
        let mut complete = handshake(&server, &mut client, 9999).unwrap();
        talk(&mut complete, &mut client);
    }
}

#[test]
fn passwords_are_tried_in_order() {
    let sec1 = include_str!("fixtures/v1sec1.key");
    keys::pair(&data(V1), &data(sec1), &[], &no_file).unwrap();
    for key in ENCRYPTED {
        let read = |list: &str| keys::pair(&data(V1), &data(key), &secrets(list), &no_file);
        read("secret").unwrap();
        read("wrong\nother\nsecret\n").unwrap();
        let error = read("wrong\n").unwrap_err().to_string();
        assert!(error.contains("bad decrypt"), "{error}");
        let error = keys::pair(&data(V1), &data(key), &[], &no_file).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("PEM_read_bio_PrivateKey() failed"),
            "{error}"
        );
    }
}

#[test]
fn every_kind_of_key_has_its_form() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256, &PKCS_ED25519] {
        self_signed("example.org", algorithm).pair();
    }
}

/// Names of a certificate and a key, and the sentence that comes of them.
const SENTENCES: [(&str, &str, &str); 8] = [
    (
        "cert",
        "key",
        "SSL_CTX_use_PrivateKey(\"key\") failed (SSL: error:05800074:x509 certificate routines::key \
                         values mismatch)",
    ),
    (
        "cert",
        "rsa",
        "SSL_CTX_use_PrivateKey(\"rsa\") failed (SSL: error:05800073:x509 certificate routines::key \
                         type mismatch)",
    ),
    (
        "none",
        "key",
        "cannot load certificate \"none\": BIO_new_file() failed (SSL: error:80000002:system \
                         library::No such file or directory:calling fopen(none, r) error:10000080:BIO routines::no \
                         such file)",
    ),
    (
        "empty",
        "key",
        "cannot load certificate \"empty\": PEM_read_bio_X509_AUX() failed (SSL: \
                          error:0480006C:PEM routines::no start line:Expecting: TRUSTED CERTIFICATE)",
    ),
    (
        "broken",
        "key",
        "cannot load certificate \"broken\": PEM_read_bio_X509_AUX() failed (SSL: \
                           error:04800064:PEM routines::bad base64 decode)",
    ),
    (
        "cert",
        "empty",
        "cannot load certificate key \"empty\": PEM_read_bio_PrivateKey() failed (SSL: \
                           error:1E08010C:DECODER routines::unsupported:No supported data to decode. Input type: PEM)",
    ),
    (
        "cert",
        "engine:a:b",
        "cannot load certificate key \"engine:a:b\": loading \"engine:...\" certificate keys is \
                                not supported",
    ),
    (
        "cert",
        "store:pkcs11:x",
        "cannot load certificate key \"store:pkcs11:x\": loading \"store:...\" certificate \
                                    keys is not supported",
    ),
];

#[test]
fn faults_have_nginxs_sentences() {
    let (one, other) = (
        self_signed("a", &PKCS_ECDSA_P256_SHA256),
        self_signed("b", &PKCS_ECDSA_P256_SHA256),
    );
    let rsa = self_signed("c", &PKCS_RSA_SHA256);
    let missing = |path: &str| match path {
        "cert" => Ok(one.certificate.clone().into_bytes()),
        "key" => Ok(other.key.clone().into_bytes()),
        "rsa" => Ok(rsa.key.clone().into_bytes()),
        "empty" => Ok(Vec::new()),
        "broken" => Ok(one.certificate.replace("MII", "M*I").into_bytes()),
        _ => Err(io::Error::from_raw_os_error(2)),
    };
    for (certificate, key, sentence) in SENTENCES {
        let error = keys::pair(certificate, key, &[], &missing).unwrap_err();
        assert_eq!(error.to_string(), sentence);
    }
    let error = keys::revocations("empty", &missing)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot load CRL \"empty\": PEM_read_bio_X509_CRL() failed"),
        "{error}"
    );
}

#[test]
fn a_certificate_tells_its_facts() {
    let chain = keys::chain(&data(CA), &no_file).unwrap();
    let certificate = Certificate::read(&chain[0]).unwrap();
    assert_eq!(certificate.version, 3);
    assert_eq!(
        distinguished::rfc2253(certificate.subject),
        "CN=ca leaf,O=Gr\\C3\\B6\\C3\\9Fe,C=DE"
    );
    assert_eq!(
        distinguished::legacy(certificate.issuer),
        "/C=DE/O=Gr\\xC3\\xB6\\xC3\\x9Fe/CN=ca leaf"
    );
    assert_eq!(facts::pem(&chain[0]), CA);
    assert_eq!(facts::fingerprint(&chain[0]).len(), 40);
    assert_eq!(facts::serial(&certificate).len(), 40);
    assert!(time::text(certificate.not_before).ends_with(" 2026 GMT"));
    let v1 = keys::chain(&data(V1), &no_file).unwrap();
    assert_eq!(Certificate::read(&v1[0]).unwrap().version, 1);
}

#[test]
fn certificates_cut_anywhere_are_refused() {
    for text in [V1, CA] {
        let der = keys::chain(&data(text), &no_file).unwrap().remove(0);
        for end in 0..der.len() {
            assert!(Certificate::read(&der[..end]).is_none());
        }
        let longer = [&der[..], &[0]].concat();
        assert!(Certificate::read(&longer).is_none());
    }
}

/// Files that change.
struct Files(RefCell<HashMap<String, (String, Stamp)>>);

impl Files {
    fn write(&self, path: &str, text: &str) {
        let mut files = self.0.borrow_mut();
        let inode = files.len() as u64;
        let changed_ns = files.get(path).map_or(0, |(_, stamp)| stamp.changed_ns + 1);
        let size = text.len() as u64;
        let stamp = Stamp {
            changed_ns,
            inode,
            size,
        };
        files.insert(path.to_owned(), (text.to_owned(), stamp));
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let files = self.0.borrow();
        let file = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(file.0.clone().into_bytes())
    }

    fn stamp(&self, path: &str) -> Option<Stamp> {
        self.0.borrow().get(path).map(|(_, stamp)| *stamp)
    }
}

#[test]
fn files_that_change_together_are_taken() {
    let (old, new) = (
        self_signed("old", &PKCS_ECDSA_P256_SHA256),
        self_signed("new", &PKCS_ECDSA_P256_SHA256),
    );
    let files = Files(RefCell::default());
    files.write("cert", &old.certificate);
    files.write("key", &old.key);
    let (read, stamp) = (
        |path: &str| files.read(path),
        |path: &str| files.stamp(path),
    );
    let pair = Arc::new(keys::pair("cert", "key", &[], &read).unwrap());
    let certificates = Certificates::new(vec![Arc::clone(&pair)]);
    let mut watched = Watched::new("cert", "key", Vec::new(), pair, &stamp);
    let shown = || certificates.pairs()[0].cert[0].clone();
    assert_eq!(
        watched.check(&certificates, &stamp, &read),
        Outcome::Unchanged
    );
    files.write("cert", &new.certificate);
    let Outcome::Kept(error) = watched.check(&certificates, &stamp, &read) else {
        panic!("taken without its key");
    };
    assert!(error.to_string().contains("key values mismatch"));
    assert_eq!(shown(), old.der);
    assert_eq!(
        watched.check(&certificates, &stamp, &read),
        Outcome::Unchanged
    );
    assert!(certificates.staple(&old.der, Some(vec![1])));
    files.write("key", &new.key);
    assert_eq!(
        watched.check(&certificates, &stamp, &read),
        Outcome::Replaced
    );
    assert_eq!(shown(), new.der);
}

#[test]
fn named_certificates_are_kept_for_a_while() {
    let made = self_signed("a", &PKCS_ECDSA_P256_SHA256);
    let files = Files(RefCell::default());
    let (read, stamp) = (
        |path: &str| files.read(path),
        |path: &str| files.stamp(path),
    );
    for name in ["a", "b", "c"] {
        files.write(&format!("{name}.crt"), &made.certificate);
        files.write(&format!("{name}.key"), &made.key);
    }
    let (second, begun) = (Duration::from_secs(1), Instant::now());
    let cache = CertificateCache::new(4, 100 * second, 10 * second);
    let fetch = |name: &str, after: u32| {
        let names = (format!("{name}.crt"), format!("{name}.key"));
        let now = begun + after * second;
        cache
            .fetch((&names.0, &names.1), &[], (&stamp, &read), now)
            .unwrap()
    };
    let first = fetch("a", 0);
    assert!(cache.find("a.crt", "a.key", begun + 10 * second).is_some());
    assert!(cache.find("a.crt", "a.key", begun + 11 * second).is_none());
    assert!(Arc::ptr_eq(&first, &fetch("a", 11)));
    files.write("a.crt", &made.certificate);
    assert!(!Arc::ptr_eq(&first, &fetch("a", 12)));
    fetch("b", 13);
    fetch("c", 14);
    assert_eq!(cache.len(), 2);
    assert!(cache.find("a.crt", "a.key", begun + 14 * second).is_none());
    fetch("c", 200);
    assert_eq!(cache.len(), 1);
    assert!(
        cache
            .fetch(("x", "y"), &[], (&stamp, &read), begun)
            .is_err()
    );
}
