//! What asks OCSP responders, made of the directives of TLS and of the name servers of a server: `ssl_ocsp` and
//! `ssl_stapling`.
//!
//! Not here: files and handshakes ([`httpcore::tls`]), asking ([`upstream::ocsp`]). Invariant: where a certificate cannot
//! be stapled one warning says why, in nginx's words.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use config::{Error, Placed, Scope, Template};
use httpcore::tls::directives::Ocsp;
use httpcore::tls::{Making, ServerTls, TlsSettings, making};
use tls::certificates::Pair;
use tls::keys::CertificateDer;
use tls::ocsp::{AsksStatus, Verification};
use tls::verify::{CHAIN_MAX, Trust};
use tls::x509::certificate::Certificate;
use upstream::ocsp::{ClientStatuses, NameServers, Responder, StapleOrder, Staples};

/// The surroundings of a server.
pub(super) struct Around<'a, 'b> {
    /// What its TLS was made by.
    pub making: &'a mut Making<'b>,
    /// Its name servers.
    pub servers: NameServers,
    /// Looks names up while the configuration is built.
    pub resolve: &'a mut dyn FnMut(&str) -> Vec<IpAddr>,
    /// Where warnings go to.
    pub scope: &'a mut Scope,
}

impl Around<'_, '_> {
    /// Adds to a server's TLS what asks for the status of clients' certificates, and has its own stapled.
    ///
    /// # Errors
    /// nginx's sentence, at the place of the directive.
    pub(super) fn settle(
        mut self,
        tls: &mut ServerTls,
        settings: &TlsSettings,
        staples: &mut Staples,
    ) -> Result<(), Error> {
        ask_for_clients(tls, settings, &mut self)?;
        staple(tls, settings, &mut self, staples);
        Ok(())
    }
}

/// Adds to a server's TLS what asks for the status of clients' certificates.
///
/// # Errors
/// nginx's sentence, at the place of the directive.
fn ask_for_clients(
    tls: &mut ServerTls,
    settings: &TlsSettings,
    around: &mut Around<'_, '_>,
) -> Result<(), Error> {
    let wants_chain = match settings.ssl_ocsp.value {
        Ocsp::Off => return Ok(()),
        Ocsp::On => true,
        Ocsp::Leaf => false,
    };
    let cache = making::status_cache(settings);
    let responder = match named(settings.ssl_ocsp_responder.as_ref()) {
        None => None,
        Some(line) => {
            let read = Responder::parse(&String::from_utf8_lossy(&line.value));
            let read = read.and_then(|mut responder| {
                responder.settle(around.resolve)?;
                Ok(responder)
            });
            let told = |what| line.error(format!("{what} in \"ssl_ocsp_responder\""));
            Some(read.map_err(told)?)
        }
    };
    let servers = around.servers.clone();
    let statuses = ClientStatuses::new(responder, servers, cache, wants_chain);
    tls.statuses = Some(Arc::new(statuses) as Arc<dyn AsksStatus>);
    Ok(())
}

/// The address that a directive names: as in nginx an empty one is none, which takes back that of the level above.
fn named(line: Option<&Placed<Bytes>>) -> Option<&Placed<Bytes>> {
    line.filter(|line| !line.value.is_empty())
}

/// Has a server's certificates stapled with responses that are fetched.
fn staple(
    tls: &ServerTls,
    settings: &TlsSettings,
    around: &mut Around<'_, '_>,
    staples: &mut Staples,
) {
    if !settings.ssl_stapling.value {
        return;
    }
    if tls.named.is_some() {
        let sentence = "\"ssl_stapling\" ignored, the names of certificates have variables";
        around.scope.warn(settings.ssl_stapling.error(sentence));
        return;
    }
    let file = settings.ssl_stapling_file.as_ref();
    let has_file = file.is_some_and(|line| line.value.is_named());
    let Some(handshakes) = tls.handshakes.as_ref().filter(|_| !has_file) else {
        return;
    };
    let trusted = around.making.trusted(settings);
    for pair in handshakes.certificates().pairs() {
        let name = name_of(&pair, settings);
        match order(&pair, &name, settings, &trusted, around) {
            Ok(order) => staples.add(order, handshakes.certificates()),
            Err(why) => {
                let sentence = format!("\"ssl_stapling\" ignored, {why} \"{name}\"");
                around.scope.warn(settings.ssl_stapling.error(sentence));
            }
        }
    }
}

/// The name by which a certificate is told of: its first name, since several lines may lead to it.
fn name_of(pair: &Pair, settings: &TlsSettings) -> String {
    if let [line] = &settings.ssl_certificate[..] {
        let line: &Placed<Template> = line;
        let source = String::from_utf8_lossy(line.value.source());
        if !source.starts_with("data:") {
            return source.into_owned();
        }
    }
    let first = pair.cert.first().and_then(|der| Certificate::read(der));
    first.map_or_else(String::new, |first| {
        httpcore::tls::certificate_metrics::first_name(&first)
    })
}

/// What is asked for a certificate; else why it cannot be asked for, up to the certificate's name.
fn order(
    pair: &Pair,
    name: &str,
    settings: &TlsSettings,
    trusted: &[CertificateDer<'static>],
    around: &mut Around<'_, '_>,
) -> Result<StapleOrder, String> {
    let no_issuer = || "issuer certificate not found for certificate".to_owned();
    let der = pair.cert.first().ok_or_else(no_issuer)?;
    let certificate = Certificate::read(der).ok_or_else(no_issuer)?;
    let others = pair.cert[1..].iter().chain(trusted).cloned();
    let issuer = Trust::new(others, Vec::new(), CHAIN_MAX).issuer_of(&certificate, &[]);
    let issuer = issuer.ok_or_else(no_issuer)?;
    let asked = named(settings.ssl_stapling_responder.as_ref());
    let asked = asked.map(|line| String::from_utf8_lossy(&line.value).into_owned());
    let url = asked.as_deref().or(certificate.ocsp_url());
    let url = url.ok_or("no OCSP responder URL in the certificate")?;
    let told = |what| format!("{what} in the certificate");
    let mut responder = Responder::parse(url).map_err(told)?;
    responder.settle(around.resolve).map_err(told)?;
    let verification = match settings.ssl_stapling_verify {
        false => Verification::Signature(trusted.to_vec()),
        true => Verification::Chain {
            trust: Trust::new(trusted.iter().cloned(), Vec::new(), CHAIN_MAX),
            chain: pair.cert.clone(),
        },
    };
    let mark = trusted.iter().flat_map(|der| der.iter().copied());
    let mark = mark.chain([u8::from(settings.ssl_stapling_verify)]);
    Ok(StapleOrder {
        certificate: der.to_vec(),
        issuer: issuer.to_vec(),
        name: name.to_owned(),
        responder,
        servers: around.servers.clone(),
        verification,
        mark: mark.collect(),
    })
}
