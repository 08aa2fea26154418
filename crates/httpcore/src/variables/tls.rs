//! The variables of TLS: what was negotiated with the client, what it offered, and its certificate.
//!
//! Not here: the texts themselves (crate `tls`). Invariant: without TLS none has a value; the configuration may define
//! them, as in nginx.

use logs::wall_clock::Moment;
use tls::x509::certificate::Certificate;
use tls::x509::{distinguished, facts, time};

use crate::request::Request;
use crate::tls::ClientTls;

use super::append::{number, put_if_any};
use super::table::{Append, VariableEntry};

const fn entry(name: &'static str, doc: &'static str, append: Append) -> VariableEntry {
    VariableEntry::fresh(name, doc, append).changeable()
}

/// The variables of TLS.
pub const VARIABLES: &[VariableEntry] = &[
    entry(
        "ssl_alpn_protocol",
        "The protocol that was chosen by ALPN.",
        |request, out| {
            text(request, out, |tls| {
                tls.facts.alpn.as_deref().unwrap_or_default().to_vec()
            })
        },
    ),
    entry("ssl_cipher", "The cipher suite.", |request, out| {
        text(request, out, |tls| tls.facts.cipher_name())
    }),
    entry(
        "ssl_ciphers",
        "The cipher suites that the client offered, by their names, else their numbers.",
        |request, out| text(request, out, |tls| tls.hello.cipher_names()),
    ),
    entry(
        "ssl_client_cert",
        "The client's certificate as PEM, its lines but the first with a tab in front (obsolete).",
        |request, out| of_der(request, out, facts::folded_pem),
    ),
    entry(
        "ssl_client_escaped_cert",
        "The client's certificate as PEM, escaped as in a URL.",
        |request, out| of_der(request, out, facts::escaped_pem),
    ),
    entry(
        "ssl_client_fingerprint",
        "The SHA-1 of the client's certificate.",
        |request, out| of_der(request, out, facts::fingerprint),
    ),
    entry(
        "ssl_client_i_dn",
        "The issuer of the client's certificate (RFC 2253).",
        |request, out| of_certificate(request, out, |one| distinguished::rfc2253(one.issuer)),
    ),
    entry(
        "ssl_client_i_dn_legacy",
        "The issuer of the client's certificate, in the form that nginx had before 1.11.6.",
        |request, out| of_certificate(request, out, |one| distinguished::legacy(one.issuer)),
    ),
    entry(
        "ssl_client_raw_cert",
        "The client's certificate as PEM.",
        |request, out| of_der(request, out, facts::pem),
    ),
    entry(
        "ssl_client_s_dn",
        "The subject of the client's certificate (RFC 2253).",
        |request, out| of_certificate(request, out, |one| distinguished::rfc2253(one.subject)),
    ),
    entry(
        "ssl_client_s_dn_legacy",
        "The subject of the client's certificate, in the form that nginx had before 1.11.6.",
        |request, out| of_certificate(request, out, |one| distinguished::legacy(one.subject)),
    ),
    entry(
        "ssl_client_serial",
        "The serial number of the client's certificate.",
        |request, out| of_certificate(request, out, facts::serial),
    ),
    entry(
        "ssl_client_sigalg",
        "The signature scheme of the client's signature.",
        |request, out| text(request, out, |tls| tls.facts.client_signature_scheme_name()),
    ),
    entry(
        "ssl_client_v_end",
        "The time when the client's certificate ends.",
        |request, out| of_certificate(request, out, |one| time::text(one.not_after)),
    ),
    entry(
        "ssl_client_v_remain",
        "The number of whole days until the client's certificate ends.",
        days_left,
    ),
    entry(
        "ssl_client_v_start",
        "The time when the client's certificate begins.",
        |request, out| of_certificate(request, out, |one| time::text(one.not_before)),
    ),
    entry(
        "ssl_client_verify",
        "`SUCCESS`, `FAILED:` and the reason, or `NONE` if the client showed no certificate.",
        |request, out| text(request, out, |tls| tls.verdict.get().to_string()),
    ),
    entry(
        "ssl_curve",
        "The group of the key exchange.",
        |request, out| text(request, out, |tls| tls.facts.group_name()),
    ),
    entry(
        "ssl_curves",
        "The groups that the client offered, by their names, else their numbers.",
        |request, out| text(request, out, |tls| tls.hello.group_names()),
    ),
    entry(
        "ssl_early_data",
        "`1` as long as the handshake is not over, for a request that came before.",
        |request, out| {
            text(
                request,
                out,
                |tls| if tls.is_early.get() { "1" } else { "" },
            )
        },
    ),
    entry(
        "ssl_ech_outer_server_name",
        "Has no value: there is no Encrypted Client Hello.",
        |_, _| false,
    ),
    entry(
        "ssl_ech_status",
        "Has no value: there is no Encrypted Client Hello.",
        |_, _| false,
    ),
    entry("ssl_protocol", "The version of TLS.", |request, out| {
        text(request, out, |tls| tls.facts.protocol_name())
    }),
    entry(
        "ssl_server_name",
        "The name of the server that the client asked for in its handshake (SNI).",
        |request, out| {
            text(request, out, |tls| {
                tls.facts
                    .server_name
                    .as_deref()
                    .unwrap_or_default()
                    .to_vec()
            })
        },
    ),
    entry("ssl_session_id", "The session's id.", |request, out| {
        text(request, out, |tls| tls.facts.session_id_digits())
    }),
    entry(
        "ssl_session_reused",
        "`r` if an old session was taken up, else `.`.",
        |request, out| text(request, out, |tls| tls.facts.reused()),
    ),
    entry(
        "ssl_sigalg",
        "The signature scheme of the server's signature.",
        |request, out| text(request, out, |tls| tls.facts.signature_scheme_name()),
    ),
    entry(
        "ssl_sigalgs",
        "The signature schemes that the client offered, by their names, else their numbers.",
        |request, out| text(request, out, |tls| tls.hello.signature_scheme_names()),
    ),
];

/// A text of the connection; an empty one is none.
fn text<T: AsRef<[u8]>>(
    request: &Request,
    out: &mut Vec<u8>,
    value: impl Fn(&ClientTls) -> T,
) -> bool {
    let tls = request.client.tls();
    tls.is_some_and(|tls| put_if_any(value(tls).as_ref(), out))
}

/// A text of the bytes of the client's certificate; an empty one is none.
fn of_der(request: &Request, out: &mut Vec<u8>, value: impl Fn(&[u8]) -> String) -> bool {
    let tls = request.client.tls();
    let der = tls.and_then(|tls| tls.facts.certificates.first());
    der.is_some_and(|der| put_if_any(value(der).as_bytes(), out))
}

/// A text of the client's certificate.
fn of_certificate(
    request: &Request,
    out: &mut Vec<u8>,
    value: impl Fn(&Certificate<'_>) -> String,
) -> bool {
    of_der(request, out, |der| {
        Certificate::read(der).map_or_else(String::new, |certificate| value(&certificate))
    })
}

fn days_left(request: &Request, out: &mut Vec<u8>) -> bool {
    let now = Moment::now().second();
    let tls = request.client.tls();
    let der = tls.and_then(|tls| tls.facts.certificates.first());
    let certificate = der.and_then(|der| Certificate::read(der));
    certificate.is_some_and(|certificate| {
        let days = time::days_left(certificate.not_after, now);
        number(days.unsigned_abs(), out)
    })
}
