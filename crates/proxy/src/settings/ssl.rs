//! The directives of TLS to servers: `proxy_ssl_…`, and `uwsgi_ssl_…` and `grpc_ssl_…`, which are the same under
//! other names.
//!
//! Not here: what becomes of their values (`peer_tls`).

use std::sync::OnceLock;

use bytes::Bytes;
use config::{
    Directive, DirectiveEntry, DirectiveTable, Error, Flag, InheritanceLevel, List, Number,
    PathText, Placed, Renamed, Scope, Section, Template, directives, sections,
};

use httpcore::tls::values::{CertificateCache, ConfCommand, ProtocolNames};

use crate::settings::family::Family;

directives! {
    /// Proxying: TLS to upstream servers.
    pub struct ProxySsl in Location {
        /// Sets a file of PEM with the certificate that is shown to servers which ask for one, and behind it those between it
        /// and an authority. May contain variables; then it is read by the worker when a connection is opened. `data:` in
        /// front of PEM takes the text itself. Without variables the master reads it, and relative names start at the
        /// configuration's directory.
        proxy_ssl_certificate: Option<Placed<Template>> = none, [HTTP | SERVER | LOCATION] 1, syntax "file";
        /// Sets a file of PEM with the key of that certificate. `engine:` and `store:` are refused.
        proxy_ssl_certificate_key: Option<Placed<Template>> = none, [HTTP | SERVER | LOCATION] 1, syntax "file";
        /// Keeps certificates and keys whose names have variables.
        proxy_ssl_certificate_cache: CertificateCache = "off", [HTTP | SERVER | LOCATION] 1..=3;
        /// Sets a file with passwords of keys, one a line, which are tried in order.
        proxy_ssl_password_file: Option<Placed<PathText>> = none, [HTTP | SERVER | LOCATION] 1, syntax "file";
        /// Sets the cipher suites of TLS 1.2, in OpenSSL's words. Suites that are not offered here are left out.
        proxy_ssl_ciphers: Placed<Bytes> = "DEFAULT", [HTTP | SERVER | LOCATION] 1, syntax "ciphers";
        /// Carries out a command of OpenSSL's configuration: `Ciphersuites`, `CipherString`, `Groups`, `Curves`, `MinProtocol`,
        /// `MaxProtocol`, `SignatureAlgorithms`, `Options`. Others are refused.
        proxy_ssl_conf_command: List<Placed<ConfCommand>> = none, [HTTP | SERVER | LOCATION] 2;
        /// Sets a file of PEM with revocations of servers' certificates.
        proxy_ssl_crl: Option<Placed<PathText>> = none, [HTTP | SERVER | LOCATION] 1, syntax "file";
        /// Sets the name that a server's certificate must be for (`proxy_ssl_verify`) and that it is told
        /// (`proxy_ssl_server_name`): by default the host of the URL. A port behind it is left out.
        proxy_ssl_name: Option<Placed<Template>> = none, [HTTP | SERVER | LOCATION] 1, syntax "name";
        /// Sets the versions of TLS. Those before 1.2 are not offered: naming them beside others is a warning.
        proxy_ssl_protocols: ProtocolNames = "TLSv1.2 TLSv1.3", [HTTP | SERVER | LOCATION] 1..;
        /// Tells servers the name that is asked for (SNI).
        proxy_ssl_server_name: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Takes sessions of earlier connections up again, so that a new one needs no full handshake.
        proxy_ssl_session_reuse: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets a file of PEM with the certificates that servers' certificates are judged by (`proxy_ssl_verify`).
        proxy_ssl_trusted_certificate: Option<Placed<PathText>> = none, [HTTP | SERVER | LOCATION] 1, syntax "file";
        /// Accepts only servers whose certificate comes from a trusted one, is in time, and is for `proxy_ssl_name`.
        proxy_ssl_verify: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets how many certificates may stand between a server's and a trusted one.
        proxy_ssl_verify_depth: Number = "1", [HTTP | SERVER | LOCATION] 1;
    }
}

sections! {
    /// The same directives under the names of another family.
    pub struct SslPolicy {
        /// [`ProxySsl`].
        pub ssl: ProxySsl,
    }
}

/// The lines of a family.
macro_rules! shared {
    ($($(#[$meta:meta])* $Shared:ident $family:ident)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone)]
            pub struct $Shared(pub SslPolicy);

            config::own!($Shared);

            impl Section for $Shared {
                type Raw = <SslPolicy as Section>::Raw;

                fn tables() -> Vec<&'static DirectiveTable> {
                    static TABLE: OnceLock<&'static DirectiveTable> = OnceLock::new();
                    vec![TABLE.get_or_init(|| Box::leak(Box::new(table(Family::$family))))]
                }

                fn set(raw: &mut Self::Raw, line: &Directive, scope: &mut Scope) -> Result<bool, Error> {
                    let Some(name) = Family::$family.declared(line.name.bytes()) else {
                        return Ok(false);
                    };
                    (raw.ssl).take_in(|raw| ProxySsl::set_as(raw, &name, line, scope))
                }

                fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw {
                    SslPolicy::merge(parent, child)
                }

                fn fill(raw: &mut Self::Raw, scope: &mut Scope) -> Result<(), Error> {
                    SslPolicy::fill(raw, scope)
                }

                fn finish(raw: Self::Raw, scope: &mut Scope) -> Result<Self, Error> {
                    SslPolicy::finish(raw, scope).map(Self)
                }
            }
        )*
    };
}

shared! {
    /// `uwsgi_ssl_…`.
    UwsgiSsl Uwsgi
    /// `grpc_ssl_…`.
    GrpcSsl Grpc
}

/// The directives under a family's names.
fn table(family: Family) -> DirectiveTable {
    let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let protocol = match family {
        Family::Grpc => "gRPC",
        other => other.prefix().trim_end_matches('_'),
    };
    let tables = ProxySsl::tables();
    let entries = tables.iter().flat_map(|table| &table.entries);
    DirectiveTable {
        name: leaked(format!("{family:?}Ssl")),
        doc: leaked(format!(
            "{protocol}: TLS to upstream servers.\n\nEach of these works like its `proxy_ssl_…` counterpart."
        )),
        level: InheritanceLevel::Location,
        entries: entries
            .map(|entry| DirectiveEntry {
                name: leaked(family.renamed(entry.name)),
                doc: leaked(family.renamed(entry.doc)),
                ..entry.clone()
            })
            .collect(),
    }
}
