//! What is negotiated about: versions, suites and groups out of directives and commands, for both sides.

use crate::Error;
use crate::provider;
use crate::suites::conf_command::Commands;
use crate::suites::{self, Groups, Protocols};
use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// What is negotiated about, for servers and for clients.
pub(crate) struct Choice {
    pub(crate) protocols: Protocols,
    suites: Vec<SupportedCipherSuite>,
    groups: Groups,
    pub(crate) left_out: Vec<String>,
}

impl Choice {
    pub(crate) fn new(
        protocols: Protocols,
        ciphers: &str,
        groups: &str,
        commands: &Commands,
    ) -> Result<Self, Error> {
        let protocols = bounded(protocols, commands)?;
        let ciphers = commands.cipher_string.as_deref().unwrap_or(ciphers);
        let groups = suites::groups::read(commands.groups.as_deref().unwrap_or(groups))?;
        let older = suites::ciphers(ciphers)?;
        let mut chosen = Vec::new();
        if protocols.has_tls13 {
            chosen.extend(suites::ciphersuites(commands.ciphersuites.as_deref()));
        }
        if protocols.has_tls12 {
            chosen.extend(older);
        }
        if chosen.is_empty() {
            let names = commands.ciphersuites.clone().unwrap_or_default();
            return Err(Error::NoCipher(names));
        }
        let has = |is_tls13| {
            let mut suites = chosen.iter();
            suites.any(|suite| suite.tls13().is_some() == is_tls13)
        };
        Ok(Self {
            protocols: Protocols {
                has_tls12: has(false),
                has_tls13: has(true),
            },
            suites: chosen,
            groups: groups.chosen,
            left_out: groups.left_out,
        })
    }

    pub(crate) fn provider(&self, is_chacha_first: bool) -> Arc<CryptoProvider> {
        let mut suites = self.suites.clone();
        if is_chacha_first {
            suites.sort_by_key(|suite| !is_chacha(u16::from(suite.suite())));
        }
        Arc::new(CryptoProvider {
            cipher_suites: suites,
            kx_groups: self.groups.clone(),
            ..provider::provider().clone()
        })
    }
}

pub(crate) fn is_chacha(id: u16) -> bool {
    matches!(id, 0x1303 | 0xcca8 | 0xcca9 | 0xccaa)
}

/// The versions that stay within `MinProtocol` and `MaxProtocol`.
fn bounded(protocols: Protocols, commands: &Commands) -> Result<Protocols, Error> {
    let command = |name: &str,
                   value: &Option<String>,
                   bound: fn(Protocols, &str) -> Option<Protocols>,
                   of| {
        let Some(value) = value else {
            return Ok(of);
        };
        bound(of, value).ok_or_else(|| Error::Command {
            name: name.to_owned(),
            value: value.clone(),
            reason: format!("0A000180:SSL routines::bad value:cmd={name}, value={value}"),
        })
    };
    let protocols = command(
        "MinProtocol",
        &commands.min_protocol,
        Protocols::at_least,
        protocols,
    )?;
    let protocols = command(
        "MaxProtocol",
        &commands.max_protocol,
        Protocols::at_most,
        protocols,
    )?;
    if protocols.versions().is_empty() {
        return Err(Error::NoProtocol("of these commands".to_owned()));
    }
    Ok(protocols)
}
