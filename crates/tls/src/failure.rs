//! Why a connection fails, in OpenSSL's and nginx's words and at nginx's level.
//!
//! Not here: faults of a configuration (`crate::Error`). Invariant: what a client can bring about is of level `info`, as
//! in nginx, but for a few faults that nginx reports as `crit`.

use crate::hello;
use rustls::{CertificateError, Error, InvalidMessage, PeerIncompatible};
use std::borrow::Cow;
use std::fmt;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What clients do.
    Info,
    /// What should not happen.
    Critical,
}

/// Why a connection failed. `Display` is the sentence of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// At which level nginx says it.
    pub level: Level,
    /// What kind of failure it is, for figures.
    pub cause: Cause,
    call: &'static str,
    reason: Option<(u32, Cow<'static, str>)>,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A request of HTTP in clear.
    PlainHttp,
    /// No version, suite, group, signature or protocol in common.
    NothingInCommon,
    /// The peer said no.
    Alert,
    /// Bytes that are not TLS, or not as TLS asks.
    Malformed,
    /// `ssl_reject_handshake`.
    Rejected,
    /// The peer closed the connection.
    Closed,
    /// The peer sends what costs work and brings nothing.
    Flood,
    /// The library.
    Library,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        match &self.reason {
            Some((number, text)) => {
                write!(
                    f,
                    " (SSL: error:{:08X}:SSL routines::{text})",
                    SSL_LIBRARY | number
                )
            }
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// The number of OpenSSL's library `SSL routines` in its error numbers.
const SSL_LIBRARY: u32 = 20 << 23;
const HANDSHAKE: &str = "SSL_do_handshake() failed";
/// OpenSSL's number of an alert that was received is its own and this.
const ALERT_OFFSET: u32 = 1000;

/// OpenSSL's numbers and words.
type Reason = (u32, &'static str);
const HTTP_REQUEST: Reason = (156, "http request");
const PROXY_REQUEST: Reason = (155, "https proxy request");
const WRONG_VERSION: Reason = (267, "wrong version number");
pub(crate) const UNEXPECTED_MESSAGE: Reason = (244, "unexpected message");
const PACKET_TOO_LONG: Reason = (198, "packet length too long");
const MESSAGE_TOO_LONG: Reason = (152, "excessive message size");
const LENGTH_MISMATCH: Reason = (159, "length mismatch");
const NO_SHARED_CIPHER: Reason = (193, "no shared cipher");
const NO_KEY_SHARE: Reason = (101, "no suitable key share");
const NO_SIGNATURE: Reason = (118, "no suitable signature algorithm");
const MISSING_SIGNATURES: Reason = (112, "missing sigalgs extension");
const UNSUPPORTED_PROTOCOL: Reason = (258, "unsupported protocol");
const NO_APPLICATION_PROTOCOL: Reason = (235, "no application protocol");
pub(crate) const BAD_RECORD: Reason = (281, "decryption failed or bad record mac");
pub(crate) const BAD_LENGTH: Reason = (150, "encrypted length too long");
pub(crate) const BAD_TYPE: Reason = (443, "bad record type");
const CERTIFICATE_CALLBACK: Reason = (377, "cert cb error");
const BAD_EXTENSION: Reason = (110, "bad extension");
const BAD_SIGNATURE: Reason = (123, "bad signature");
const INTERNAL: Reason = (68, "internal error");
pub(crate) const TOO_MANY_ALERTS: Reason = (409, "too many warn alerts");
pub(crate) const TOO_MANY_KEY_UPDATES: Reason = (132, "too many key updates");
pub(crate) const EMPTY_RECORDS: Reason = (298, "record too small");
pub(crate) const UNEXPECTED_EOF: Reason = (294, "unexpected eof while reading");

/// Alerts by their numbers (RFC 8446, 6).
const ALERTS: [(u8, &str); 31] = [
    (10, "sslv3 alert unexpected message"),
    (20, "sslv3 alert bad record mac"),
    (21, "tlsv1 alert decryption failed"),
    (22, "tlsv1 alert record overflow"),
    (30, "sslv3 alert decompression failure"),
    (40, "sslv3 alert handshake failure"),
    (41, "sslv3 alert no certificate"),
    (42, "sslv3 alert bad certificate"),
    (43, "sslv3 alert unsupported certificate"),
    (44, "sslv3 alert certificate revoked"),
    (45, "sslv3 alert certificate expired"),
    (46, "sslv3 alert certificate unknown"),
    (47, "sslv3 alert illegal parameter"),
    (48, "tlsv1 alert unknown ca"),
    (49, "tlsv1 alert access denied"),
    (50, "tlsv1 alert decode error"),
    (51, "tlsv1 alert decrypt error"),
    (60, "tlsv1 alert export restriction"),
    (70, "tlsv1 alert protocol version"),
    (71, "tlsv1 alert insufficient security"),
    (80, "tlsv1 alert internal error"),
    (86, "tlsv1 alert inappropriate fallback"),
    (90, "tlsv1 alert user cancelled"),
    (100, "tlsv1 alert no renegotiation"),
    (109, "tlsv13 alert missing extension"),
    (110, "tlsv1 unsupported extension"),
    (111, "tlsv1 certificate unobtainable"),
    (112, "tlsv1 unrecognized name"),
    (113, "tlsv1 bad certificate status response"),
    (116, "tlsv13 alert certificate required"),
    (120, "tlsv1 alert no application protocol"),
];

impl Failure {
    pub(crate) fn new(call: &'static str, cause: Cause, (number, text): Reason) -> Self {
        let level = match cause {
            Cause::Library => Level::Critical,
            _ if number == BAD_SIGNATURE.0 => Level::Critical,
            _ => Level::Info,
        };
        Self {
            level,
            cause,
            call,
            reason: Some((number, Cow::Borrowed(text))),
        }
    }

    /// The end of the connection in the middle of a handshake.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            level: Level::Info,
            cause: Cause::Closed,
            call: "peer closed connection in SSL handshake",
            reason: None,
        }
    }

    /// `ssl_reject_handshake`.
    pub(crate) fn rejected() -> Self {
        Self {
            level: Level::Info,
            cause: Cause::Rejected,
            call: "handshake rejected",
            reason: None,
        }
    }

    /// A client that offers no version of TLS that is spoken here.
    pub(crate) fn too_old() -> Self {
        Self::new(HANDSHAKE, Cause::NothingInCommon, UNSUPPORTED_PROTOCOL)
    }

    /// A certificate that was to be read for this connection, and could not be.
    pub(crate) fn certificate() -> Self {
        let mut failure = Self::new(HANDSHAKE, Cause::Library, CERTIFICATE_CALLBACK);
        failure.level = Level::Info;
        failure
    }

    /// An alert that was received.
    pub(crate) fn alert(call: &'static str, alert: u8) -> Self {
        Self {
            level: Level::Info,
            cause: Cause::Alert,
            call,
            reason: Some((
                ALERT_OFFSET + u32::from(alert),
                Cow::Owned(format!("{}:SSL alert number {alert}", alert_text(alert))),
            )),
        }
    }

    /// Bytes that are no ClientHello.
    pub(crate) fn hello(fault: hello::Fault) -> Self {
        let (cause, reason) = match fault {
            hello::Fault::HttpRequest => (Cause::PlainHttp, HTTP_REQUEST),
            hello::Fault::ProxyRequest => (Cause::PlainHttp, PROXY_REQUEST),
            hello::Fault::NotTls => (Cause::Malformed, WRONG_VERSION),
            hello::Fault::Unexpected => (Cause::Malformed, UNEXPECTED_MESSAGE),
            hello::Fault::RecordTooLong => (Cause::Malformed, PACKET_TOO_LONG),
            hello::Fault::TooLong => (Cause::Malformed, MESSAGE_TOO_LONG),
            hello::Fault::Malformed => (Cause::Malformed, LENGTH_MISMATCH),
        };
        Self::new(HANDSHAKE, cause, reason)
    }

    /// What rustls says of a handshake.
    pub(crate) fn handshake(error: &Error) -> Self {
        if let Error::AlertReceived(alert) = error {
            return Self::alert(HANDSHAKE, u8::from(*alert));
        }
        let (cause, reason) = reason(error);
        let mut failure = Self::new(HANDSHAKE, cause, reason);
        if cause == Cause::Library {
            let text = format!("{}:{error}", INTERNAL.1);
            failure.reason = Some((INTERNAL.0, Cow::Owned(text)));
        }
        failure
    }
}

fn reason(error: &Error) -> (Cause, Reason) {
    match error {
        Error::PeerIncompatible(what) => (Cause::NothingInCommon, incompatible(what)),
        Error::NoApplicationProtocol => (Cause::NothingInCommon, NO_APPLICATION_PROTOCOL),
        // What rustls says where no certificate fits.
        Error::General(text) if text.contains("certificate chain") => {
            (Cause::NothingInCommon, NO_SIGNATURE)
        }
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            (Cause::Malformed, UNEXPECTED_MESSAGE)
        }
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => (Cause::Malformed, WRONG_VERSION),
        Error::InvalidMessage(_) => (Cause::Malformed, LENGTH_MISMATCH),
        Error::PeerSentOversizedRecord => (Cause::Malformed, BAD_LENGTH),
        Error::DecryptError => (Cause::Malformed, BAD_RECORD),
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            (Cause::Malformed, BAD_SIGNATURE)
        }
        Error::InvalidCertificate(_) => (Cause::Malformed, LENGTH_MISMATCH),
        Error::PeerMisbehaved(_) => (Cause::Malformed, BAD_EXTENSION),
        _ => (Cause::Library, INTERNAL),
    }
}

fn incompatible(what: &PeerIncompatible) -> Reason {
    match what {
        PeerIncompatible::NoCipherSuitesInCommon => NO_SHARED_CIPHER,
        PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::KeyShareExtensionRequired
        | PeerIncompatible::NamedGroupsExtensionRequired => NO_KEY_SHARE,
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => NO_SIGNATURE,
        PeerIncompatible::SignatureAlgorithmsExtensionRequired => MISSING_SIGNATURES,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => UNSUPPORTED_PROTOCOL,
        _ => BAD_EXTENSION,
    }
}

/// OpenSSL's words for an alert.
fn alert_text(alert: u8) -> Cow<'static, str> {
    let known = ALERTS.iter().find(|(number, _)| *number == alert);
    known.map_or_else(
        || Cow::Owned(format!("tlsv1 alert unknown {alert}")),
        |(_, text)| Cow::Borrowed(*text),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_nginxs() {
        let failure = Failure::handshake(&PeerIncompatible::NoCipherSuitesInCommon.into());
        assert_eq!(
            failure.to_string(),
            "SSL_do_handshake() failed (SSL: error:0A0000C1:SSL routines::no shared cipher)"
        );
        assert_eq!(
            (failure.level, failure.cause),
            (Level::Info, Cause::NothingInCommon)
        );
        let failure = Failure::hello(hello::Fault::HttpRequest);
        assert_eq!(
            failure.to_string(),
            "SSL_do_handshake() failed (SSL: error:0A00009C:SSL routines::http request)"
        );
        assert_eq!(
            Failure::closed().to_string(),
            "peer closed connection in SSL handshake"
        );
    }

    #[test]
    fn alerts_have_openssls_names() {
        for (alert, text) in [
            (42, "0A000412:SSL routines::sslv3 alert bad certificate"),
            (48, "0A000418:SSL routines::tlsv1 alert unknown ca"),
            (
                40,
                "0A000410:SSL routines::sslv3 alert handshake failure:SSL alert number 40",
            ),
            (70, "0A00042E:SSL routines::tlsv1 alert protocol version"),
            (112, "0A000458:SSL routines::tlsv1 unrecognized name"),
            (20, "0A0003FC:SSL routines::sslv3 alert bad record mac"),
        ] {
            let sentence = Failure::alert(HANDSHAKE, alert).to_string();
            assert!(sentence.contains(text), "{sentence}");
        }
    }
}
