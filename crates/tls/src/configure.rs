//! Values of a server's directives made into what its handshakes use.
//!
//! Not here: directives, inheritance, reading files (`keys`). Blocking is nobody's: this is arithmetic and takes some
//! microseconds. Invariant: what is made never changes; certificates and keys for tickets change inside of their own types.

use crate::Error;
use crate::certificates::{Certificates, Pair};
use crate::provider;
use crate::sessions::{Context, Sessions, Tickets, cache, tickets};
use crate::suites::conf_command::Commands;
use crate::suites::{self, DEFAULT_CIPHERS, Groups, Protocols};
use crate::traffic::{PLAIN_BYTES_MAX, Sizes};
use crate::verify::{AnyClient, AnyServer, Trust};
use crate::x509::certificate::Certificate;
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{DistinguishedName, SupportedCipherSuite};
use std::sync::Arc;
use std::time::Duration;

/// Maximum of bytes that a client may send before its handshake is over.
pub const EARLY_DATA_BYTES_MAX: u32 = 16_384;
/// Size in bytes of the cache that early data needs where no cache is configured.
pub const EARLY_SESSIONS_BYTES: usize = 1 << 20;
/// Tickets sent behind a handshake of TLS 1.3, as OpenSSL does.
const TICKETS: usize = 2;

/// `ssl_verify_client`.
#[derive(Clone, Debug)]
pub struct ClientVerification {
    /// What clients' certificates are judged by.
    pub trust: Arc<Trust>,
    /// Authorities that clients are told of: the certificates of `ssl_client_certificate`.
    pub authorities: Vec<CertificateDer<'static>>,
}

/// Values of a server's directives.
#[derive(Clone)]
pub struct ServerOptions {
    /// `ssl_protocols`.
    pub protocols: Protocols,
    /// `ssl_ciphers`.
    pub ciphers: String,
    /// `ssl_prefer_server_ciphers`.
    pub prefers_server: bool,
    /// `ssl_ecdh_curve`.
    pub groups: String,
    /// `ssl_conf_command`s.
    pub commands: Commands,
    /// `ssl_certificate`, `ssl_certificate_key`.
    pub certificates: Arc<Certificates>,
    /// `ssl_verify_client`, where it is not `off`.
    pub client: Option<ClientVerification>,
    /// `ssl_session_cache`, where it is `builtin` or `shared`.
    pub sessions: Option<Arc<Sessions>>,
    /// `ssl_session_tickets` and their keys, where they are not `off`.
    pub tickets: Option<Arc<Tickets>>,
    /// `ssl_session_timeout`.
    pub timeout: Duration,
    /// In which sessions are taken up again.
    pub context: Context,
    /// Protocols above TLS, the one that is liked best first.
    pub alpn: Vec<Vec<u8>>,
    /// `ssl_early_data`.
    pub has_early_data: bool,
    /// `ssl_buffer_size`, where it is given.
    pub sizes: Sizes,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            protocols: Protocols::default(),
            ciphers: DEFAULT_CIPHERS.to_owned(),
            prefers_server: false,
            groups: "auto".to_owned(),
            commands: Commands::default(),
            certificates: Arc::default(),
            client: None,
            sessions: None,
            tickets: None,
            timeout: Duration::from_secs(300),
            context: Context::default(),
            alpn: Vec::new(),
            has_early_data: false,
            sizes: Sizes::default(),
        }
    }
}

/// What a server's handshakes use.
pub struct Server {
    pub(crate) config: Arc<ServerConfig>,
    /// The same with ChaCha20 first, for clients that like it best (`PrioritizeChaCha`).
    pub(crate) chacha_first: Option<Arc<ServerConfig>>,
    pub(crate) sizes: Sizes,
    pub(crate) certificates: Arc<Certificates>,
    trust: Option<Arc<Trust>>,
    left_out: Vec<String>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("left_out", &self.left_out)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Of values.
    ///
    /// # Errors
    /// nginx's sentence for a value that leaves nothing.
    pub fn new(options: ServerOptions) -> Result<Self, Error> {
        let choice = Choice::new(
            options.protocols,
            &options.ciphers,
            &options.groups,
            &options.commands,
        )?;
        let config = Arc::new(server_config(
            &options,
            choice.provider(false),
            choice.protocols,
        )?);
        let chacha_first = match options.commands.prioritizes_chacha {
            false => None,
            true => Some(Arc::new(server_config(
                &options,
                choice.provider(true),
                choice.protocols,
            )?)),
        };
        Ok(Self {
            config,
            chacha_first,
            sizes: options.sizes,
            certificates: options.certificates,
            trust: options.client.map(|client| client.trust),
            left_out: choice.left_out,
        })
    }

    /// What is asked for and not offered, for one warning.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// What clients' certificates are judged by.
    #[must_use]
    pub fn trust(&self) -> Option<&Arc<Trust>> {
        self.trust.as_ref()
    }

    /// The names of what is offered: versions, suites, groups; for `-t`.
    #[must_use]
    pub fn offered(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let provider = self.config.crypto_provider();
        let ciphers = provider.cipher_suites.iter();
        let groups = provider.kx_groups.iter();
        (
            ciphers
                .filter_map(|suite| suites::cipher_name(u16::from(suite.suite())))
                .collect(),
            groups
                .filter_map(|group| suites::group_name(u16::from(group.name())))
                .collect(),
        )
    }
}

/// Values of `proxy_ssl_…` directives.
#[derive(Clone)]
pub struct ClientOptions {
    /// `proxy_ssl_protocols`.
    pub protocols: Protocols,
    /// `proxy_ssl_ciphers`.
    pub ciphers: String,
    /// `proxy_ssl_conf_command`s.
    pub commands: Commands,
    /// `proxy_ssl_certificate`, `proxy_ssl_certificate_key`.
    pub certificate: Option<Pair>,
    /// `proxy_ssl_server_name`: whether a server is told its name.
    pub sends_name: bool,
    /// Protocols above TLS.
    pub alpn: Vec<Vec<u8>>,
    /// How large records are.
    pub sizes: Sizes,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            protocols: Protocols::default(),
            ciphers: "DEFAULT".to_owned(),
            commands: Commands::default(),
            certificate: None,
            sends_name: false,
            alpn: Vec::new(),
            sizes: Sizes::Fixed(PLAIN_BYTES_MAX),
        }
    }
}

/// What a client's handshakes use.
pub struct Client {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) sizes: Sizes,
}

impl Client {
    /// Of values.
    ///
    /// # Errors
    /// nginx's sentence for a value that leaves nothing.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        let commands = &options.commands;
        let choice = Choice::new(options.protocols, &options.ciphers, "auto", commands)?;
        let builder = ClientConfig::builder_with_provider(choice.provider(false))
            .with_protocol_versions(&choice.protocols.versions())
            .map_err(|error| Error::Library(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer));
        let mut config = match options.certificate {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let own = CertifiedKey::new(pair.cert.clone(), Arc::clone(&pair.key));
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
        };
        config.alpn_protocols = options.alpn;
        config.enable_sni = options.sends_name;
        config.enable_secret_extraction = true;
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            sizes: options.sizes,
        })
    }
}

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

fn server_config(
    options: &ServerOptions,
    provider: Arc<CryptoProvider>,
    protocols: Protocols,
) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocols.versions())
        .map_err(|error| Error::Library(error.to_string()))?;
    let builder = match &options.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let names = client
                .authorities
                .iter()
                .filter_map(|der| name_of(der))
                .collect();
            builder.with_client_cert_verifier(Arc::new(AnyClient::new(names)))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::clone(&options.certificates) as Arc<_>);
    let prefers = options
        .commands
        .prefers_server
        .unwrap_or(options.prefers_server);
    config.ignore_client_order = prefers || options.commands.prioritizes_chacha;
    config.alpn_protocols.clone_from(&options.alpn);
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = options.commands.tickets.unwrap_or(TICKETS);
    resume(options, &mut config);
    Ok(config)
}

/// How sessions are taken up again. Early data asks for sessions that the server keeps, each taken once: so it cannot
/// be played again.
fn resume(options: &ServerOptions, config: &mut ServerConfig) {
    let context = options.context;
    let mut sessions = options.sessions.clone();
    let has_tickets = options.commands.has_session_tickets.unwrap_or(true);
    let mut tickets = options.tickets.clone().filter(|_| has_tickets);
    if options.has_early_data {
        let own = || Arc::new(Sessions::new(EARLY_SESSIONS_BYTES, options.timeout));
        sessions = Some(sessions.unwrap_or_else(own));
        tickets = None;
        config.max_early_data_size = EARLY_DATA_BYTES_MAX;
    }
    config.session_storage = match sessions {
        Some(sessions) => Arc::new(cache::InContext { sessions, context }),
        None => Arc::new(NoServerSessionStorage {}),
    };
    if let Some(tickets) = tickets {
        config.ticketer = Arc::new(tickets::InContext { tickets, context });
    }
}

/// A certificate's subject, as it is told to clients.
fn name_of(der: &[u8]) -> Option<DistinguishedName> {
    let subject = Certificate::read(der)?.subject;
    Some(DistinguishedName::from(subject.to_vec()))
}
