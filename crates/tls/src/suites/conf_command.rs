//! `ssl_conf_command`: OpenSSL's configuration commands, as far as something here obeys them.
//!
//! What is not in the list is an error that names it, never accepted and left undone. Commands and options that ask
//! for what is so anyway (no compression, no renegotiation) are taken.

use crate::Error;
use crate::suites::signature_schemes;
use rustls::SignatureScheme;

/// What commands change. `None` is what the directives say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// `CipherString`.
    pub cipher_string: Option<String>,
    /// `Ciphersuites`: suites of TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `Groups`, `Curves`.
    pub groups: Option<String>,
    /// `MinProtocol`.
    pub min_protocol: Option<String>,
    /// `MaxProtocol`.
    pub max_protocol: Option<String>,
    /// `SignatureAlgorithms`: schemes that signatures may have.
    pub signature_schemes: Option<Vec<SignatureScheme>>,
    /// `NumTickets`: tickets sent behind a handshake of TLS 1.3.
    pub tickets: Option<usize>,
    /// `Certificate`: a further certificate.
    pub certificate: Option<String>,
    /// `PrivateKey`: its key.
    pub private_key: Option<String>,
    /// `Options [-]SessionTicket`.
    pub has_session_tickets: Option<bool>,
    /// `Options [-]ServerPreference`.
    pub prefers_server: Option<bool>,
    /// `Options PrioritizeChaCha`: a client whose first suite is ChaCha20 gets it.
    pub prioritizes_chacha: bool,
}

/// Maximum of tickets that may be asked for.
pub const TICKETS_MAX: usize = 16;
const UNKNOWN: &str = "0A000182:SSL routines::unknown cmd name:cmd=";
const BAD_VALUE: &str = "0A000180:SSL routines::bad value:cmd=";
/// Options that are so in any case, set or not.
const NO_OPS: [&str; 14] = [
    "Bugs",
    "EmptyFragments",
    "NoResumptionOnRenegotiation",
    "DHSingle",
    "ECDHSingle",
    "EncryptThenMac",
    "NoRenegotiation",
    "AllowNoDHEKEX",
    "MiddleboxCompat",
    "AntiReplay",
    "ExtendedMasterSecret",
    "CANames",
    "KTLS",
    "TxCertificateCompression",
];
/// Options that may be taken away, and not be set.
const NEVER: [&str; 4] = [
    "Compression",
    "UnsafeRenegotiation",
    "UnsafeLegacyRenegotiation",
    "UnsafeLegacyServerConnect",
];

impl Commands {
    /// Takes a command and its value.
    ///
    /// # Errors
    /// A command that is not obeyed here, or a value that it does not have.
    pub fn take(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let text = || Some(value.to_owned());
        match name.to_ascii_lowercase().as_str() {
            "cipherstring" => self.cipher_string = text(),
            "ciphersuites" => self.ciphersuites = text(),
            "groups" | "curves" => self.groups = text(),
            "minprotocol" => self.min_protocol = text(),
            "maxprotocol" => self.max_protocol = text(),
            "certificate" => self.certificate = text(),
            "privatekey" => self.private_key = text(),
            "signaturealgorithms" => {
                let schemes = signature_schemes::read(value);
                let schemes = schemes.filter(|schemes| !schemes.is_empty());
                self.signature_schemes = Some(schemes.ok_or_else(|| bad_value(name, value))?);
            }
            "numtickets" => {
                let tickets = value.parse().ok().filter(|number| *number <= TICKETS_MAX);
                self.tickets = Some(tickets.ok_or_else(|| bad_value(name, value))?);
            }
            "options" => {
                let mut options = value.split(',').map(str::trim);
                options.try_for_each(|option| self.option(name, value, option))?;
            }
            _ => return Err(fault(name, value, format!("{UNKNOWN}{name}"))),
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &str, option: &str) -> Result<(), Error> {
        let is_set = !option.starts_with('-');
        let option = option.trim_start_matches(['+', '-']);
        let is = |known: &str| known.eq_ignore_ascii_case(option);
        if is("SessionTicket") {
            self.has_session_tickets = Some(is_set);
        } else if is("ServerPreference") {
            self.prefers_server = Some(is_set);
        } else if is("PrioritizeChaCha") {
            self.prioritizes_chacha = is_set;
        } else if !NO_OPS.iter().copied().any(is) && (is_set || !NEVER.iter().copied().any(is)) {
            return Err(bad_value(name, value));
        }
        Ok(())
    }
}

fn bad_value(name: &str, value: &str) -> Error {
    fault(name, value, format!("{BAD_VALUE}{name}, value={value}"))
}

fn fault(name: &str, value: &str, reason: String) -> Error {
    Error::Command {
        name: name.to_owned(),
        value: value.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken() {
        let mut commands = Commands::default();
        for (name, value) in [
            ("Ciphersuites", "TLS_AES_128_GCM_SHA256"),
            ("minprotocol", "TLSv1.3"),
            (
                "Options",
                "-SessionTicket,ServerPreference, PrioritizeChaCha,KTLS,-Compression",
            ),
            ("NumTickets", "0"),
        ] {
            commands.take(name, value).unwrap();
        }
        assert_eq!(commands.has_session_tickets, Some(false));
        assert_eq!(commands.prefers_server, Some(true));
        assert!(commands.prioritizes_chacha);
        assert_eq!(commands.tickets, Some(0));
        assert_eq!(commands.min_protocol.as_deref(), Some("TLSv1.3"));
    }

    #[test]
    fn what_is_not_obeyed_is_named() {
        let mut commands = Commands::default();
        let error = commands.take("DHParameters", "a").unwrap_err().to_string();
        assert_eq!(
            error,
            "SSL_CONF_cmd(\"DHParameters\", \"a\") failed (SSL: error:0A000182:SSL routines::unknown cmd \
             name:cmd=DHParameters)"
        );
        for (name, value) in [
            ("Options", "Compression"),
            ("Options", "Foo"),
            ("NumTickets", "17"),
            ("SignatureAlgorithms", "foo"),
        ] {
            assert!(commands.take(name, value).is_err(), "{name} {value}");
        }
    }
}
