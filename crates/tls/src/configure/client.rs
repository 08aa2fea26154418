//! Values of the directives of a proxy that speaks TLS to its servers, made into what handshakes use.
//!
//! Not here: whether a server's certificate is accepted (`handshake::verify_server`).

use crate::Error;
use crate::certificates::Pair;
use crate::configure::choice::Choice;
use crate::suites::Protocols;
use crate::suites::conf_command::Commands;
use crate::traffic::{PLAIN_BYTES_MAX, Sizes};
use crate::verify::AnyServer;
use rustls::client::{ClientConfig, Resumption};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::sync::Arc;

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

    /// The same with another certificate: one whose name comes with a connection.
    #[must_use]
    pub fn with_certificate(&self, pair: &Pair) -> Self {
        let own = CertifiedKey::new(pair.cert.clone(), Arc::clone(&pair.key));
        let mut config = ClientConfig::clone(&self.config);
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        Self {
            config: Arc::new(config),
            sizes: self.sizes,
        }
    }
}
