//! Values of a server's directives, made into what its handshakes use.

use crate::Error;
use crate::certificates::{COMPRESSORS, Certificates};
use crate::configure::choice::Choice;
use crate::sessions::{Context, Sessions, Tickets, cache, tickets};
use crate::suites::conf_command::Commands;
use crate::suites::{self, DEFAULT_CIPHERS, Protocols};
use crate::traffic::Sizes;
use crate::verify::{AnyClient, Trust};
use crate::x509::certificate::Certificate;
use rustls::DistinguishedName;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ServerConfig};
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
    /// `ssl_session_tickets` and their keys, where neither that nor a command says that there are none.
    pub tickets: Option<Arc<Tickets>>,
    /// `ssl_session_timeout`.
    pub timeout: Duration,
    /// In which sessions are taken up again.
    pub context: Context,
    /// Protocols above TLS, the one that is liked best first.
    pub alpn: Vec<Vec<u8>>,
    /// `ssl_certificate_compression`.
    pub compresses_certificates: bool,
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
            compresses_certificates: false,
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
    /// In which sessions are taken up again.
    context: Context,
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
            context: options.context,
            left_out: choice.left_out,
        })
    }

    /// The same with other protocols above TLS: those of another address.
    #[must_use]
    pub fn with_alpn(&self, alpn: &[Vec<u8>]) -> Self {
        self.with(|config| config.alpn_protocols = alpn.to_vec())
    }

    /// The same with the cache, if there is one, and the tickets' keys of another server. It takes up no session of that
    /// one, and has tickets only if it had them.
    #[must_use]
    pub fn resuming_by(&self, sessions: Option<&Arc<Sessions>>, tickets: &Arc<Tickets>) -> Self {
        let context = self.context;
        self.with(|config| {
            if let Some(sessions) = sessions.cloned() {
                config.session_storage = Arc::new(cache::InContext { sessions, context });
            }
            if config.ticketer.enabled() {
                let tickets = Arc::clone(tickets);
                config.ticketer = Arc::new(tickets::InContext { tickets, context });
            }
        })
    }

    fn with(&self, change: impl Fn(&mut ServerConfig)) -> Self {
        let changed = |config: &Arc<ServerConfig>| {
            let mut config = ServerConfig::clone(config);
            change(&mut config);
            Arc::new(config)
        };
        Self {
            config: changed(&self.config),
            chacha_first: self.chacha_first.as_ref().map(changed),
            sizes: self.sizes,
            certificates: Arc::clone(&self.certificates),
            trust: self.trust.clone(),
            context: self.context,
            left_out: self.left_out.clone(),
        }
    }

    /// The certificates that it shows.
    #[must_use]
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
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
    if options.compresses_certificates {
        config.cert_compressors = COMPRESSORS.to_vec();
    }
    resume(options, &mut config);
    Ok(config)
}

/// How sessions are taken up again. Early data asks for sessions that the server keeps, each taken once: so it cannot
/// be played again.
fn resume(options: &ServerOptions, config: &mut ServerConfig) {
    let context = options.context;
    let mut sessions = options.sessions.clone();
    let mut tickets = options.tickets.clone();
    if options.has_early_data {
        let own = || Arc::new(Sessions::new(EARLY_SESSIONS_BYTES, options.timeout));
        sessions = Some(sessions.unwrap_or_else(own));
        tickets = None;
        config.max_early_data_size = EARLY_DATA_BYTES_MAX;
        config.send_half_rtt_data = true;
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
