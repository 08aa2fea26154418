//! What is negotiated about: versions, suites and groups out of directives and commands, for both sides.

use crate::Error;
use crate::error::no_group;
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
        let groups = match &commands.groups {
            None => suites::groups::read(groups)?,
            Some(list) => {
                suites::groups::read(list).map_err(|error| by_command(error, "Groups", list))?
            }
        };
        let older = suites::ciphers(ciphers).map_err(|error| match &commands.cipher_string {
            None => error,
            Some(string) => by_command(error, "CipherString", string),
        })?;
        let mut chosen = Vec::new();
        if protocols.has_tls13 {
            let names = commands.ciphersuites.as_deref();
            let found = suites::ciphersuites(names);
            if let (Some(names), true) = (names, found.is_empty()) {
                let error = Error::NoCipher(names.to_owned());
                return Err(by_command(error, "Ciphersuites", names));
            }
            chosen.extend(found);
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

/// The error of a directive as that of a command.
fn by_command(error: Error, name: &str, value: &str) -> Error {
    let bad_value = format!("0A000180:SSL routines::bad value:cmd={name}, value={value}");
    let reason = match error {
        Error::NoGroup { name, .. } => no_group(&name),
        Error::CipherWord(_) => "0A000118:SSL routines::invalid command".to_owned(),
        _ => "0A0000B9:SSL routines::no cipher match".to_owned(),
    };
    Error::Command {
        name: name.to_owned(),
        value: value.to_owned(),
        reason: format!("{reason} error:{bad_value}"),
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
