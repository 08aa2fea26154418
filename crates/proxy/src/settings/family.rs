//! The families of directives that pass requests on: their names, and what goes by them.
//!
//! Not here: the directives (`directives`, `gateways`), and those that the families share (`families`).

use config::Word;
use config::default_paths;
use upstream::Protocol;

use crate::settings::grpc;

/// Prefix of the shared directives where they are declared.
pub(crate) const DECLARED: &str = "proxy_";

/// The families of directives that pass requests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `proxy_pass`: HTTP.
    Proxy,
    /// `fastcgi_pass`.
    Fastcgi,
    /// `uwsgi_pass`.
    Uwsgi,
    /// `scgi_pass`.
    Scgi,
    /// `grpc_pass`: gRPC, over HTTP/2.
    Grpc,
}

impl Family {
    /// The families that share the lines of `proxy_…`.
    pub const OTHERS: [Family; 4] = [Family::Fastcgi, Family::Uwsgi, Family::Scgi, Family::Grpc];

    /// The prefix of its directives.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Proxy => "proxy_",
            Self::Fastcgi => "fastcgi_",
            Self::Uwsgi => "uwsgi_",
            Self::Scgi => "scgi_",
            Self::Grpc => "grpc_",
        }
    }

    /// Whether it is one of the families' directives that name a cache.
    #[must_use]
    pub fn names_cache(directive: &Word) -> bool {
        let mut all = Self::OTHERS.into_iter().chain([Self::Proxy]);
        all.any(|family| {
            directive.bytes().strip_prefix(family.prefix().as_bytes()) == Some(b"cache")
        })
    }

    /// Where its answers are buffered, unless a line says where.
    #[must_use]
    pub const fn temp_path(self) -> &'static str {
        match self {
            // gRPC has no such files.
            Self::Proxy | Self::Grpc => default_paths::PROXY_TEMP,
            Self::Fastcgi => default_paths::FASTCGI_TEMP,
            Self::Uwsgi => default_paths::UWSGI_TEMP,
            Self::Scgi => default_paths::SCGI_TEMP,
        }
    }

    /// The scheme before a server's name in logs, with TLS or without.
    #[must_use]
    pub const fn scheme(self, has_tls: bool) -> &'static str {
        match (self, has_tls) {
            (Self::Proxy, false) => "http://",
            (Self::Proxy, true) => "https://",
            (Self::Fastcgi, _) => "fastcgi://",
            (Self::Uwsgi, false) => "uwsgi://",
            (Self::Uwsgi, true) => "suwsgi://",
            (Self::Scgi, _) => "scgi://",
            (Self::Grpc, false) => "grpc://",
            (Self::Grpc, true) => "grpcs://",
        }
    }

    /// The protocol of its servers.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Proxy => Protocol::Http,
            Self::Fastcgi => Protocol::Fastcgi,
            Self::Uwsgi => Protocol::Uwsgi,
            Self::Scgi => Protocol::Scgi,
            Self::Grpc => Protocol::Http2,
        }
    }

    /// Whether it has the shared directive with this name behind the prefix.
    pub(crate) fn has(self, rest: &[u8]) -> bool {
        let is_tls = || rest.starts_with(b"ssl_");
        self != Self::Grpc || is_tls() || grpc::SHARED.iter().any(|name| name.as_bytes() == rest)
    }

    /// A text about `proxy_…` directives, rewritten for its own.
    #[must_use]
    pub fn renamed(self, text: &str) -> String {
        text.replace(DECLARED, self.prefix())
    }

    /// The declared name of one of its directives; None: it is none of them.
    pub(crate) fn declared(self, name: &[u8]) -> Option<Vec<u8>> {
        let rest = name.strip_prefix(self.prefix().as_bytes())?;
        if !self.has(rest) {
            return None;
        }
        Some([DECLARED.as_bytes(), rest].concat())
    }
}
