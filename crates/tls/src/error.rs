//! The errors of a configuration, each with nginx's sentence. What fails in a connection is `handshake::Failure`.

use std::io;

/// Why values of a configuration cannot be used. `Display` is nginx's sentence, without file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file, or text, of certificates, keys or revocations cannot be read.
    #[error("cannot load {kind} \"{name}\": {fault}")]
    Load {
        /// What was to be read.
        kind: Kind,
        /// The path or text, as it was given.
        name: String,
        /// Why not.
        fault: Fault,
    },
    /// A file cannot be opened or read.
    #[error("{call}() \"{path}\" failed ({system})")]
    File {
        /// The system call.
        call: &'static str,
        /// The path.
        path: String,
        /// Number and text of the system's error.
        system: String,
    },
    /// A key that is not its certificate's.
    #[error("SSL_CTX_use_PrivateKey(\"{name}\") failed (SSL: error:{reason})")]
    KeyMismatch {
        /// The key, as it was given.
        name: String,
        /// OpenSSL's number and text.
        reason: &'static str,
    },
    /// A certificate whose kind of key has no signature here.
    #[error(
        "SSL_CTX_use_certificate(\"{0}\") failed (SSL: error:0A0000F7:SSL routines::unknown certificate type)"
    )]
    CertificateType(String),
    /// A line of a password file that is too long.
    #[error("too long line in \"{0}\"")]
    PasswordLine(String),
    /// A file with a key for session tickets of another size.
    #[error("\"{0}\" must be 48 or 80 bytes")]
    TicketKeySize(String),
    /// A file of parameters that cannot be opened or read.
    #[error("{call}(\"{path}\") failed (SSL: {reason})")]
    Parameters {
        /// OpenSSL's function.
        call: &'static str,
        /// The path.
        path: String,
        /// OpenSSL's numbers and texts.
        reason: String,
    },
    /// A file with an OCSP response that cannot be opened or read.
    #[error("{call}(\"{path}\") failed{reason}")]
    StaplingFile {
        /// OpenSSL's function.
        call: &'static str,
        /// The path.
        path: String,
        /// OpenSSL's numbers and texts in brackets, behind a blank; empty: none.
        reason: String,
    },
    /// No cipher suite is left.
    #[error(
        "SSL_CTX_set_cipher_list(\"{0}\") failed (SSL: error:0A0000B9:SSL routines::no cipher match)"
    )]
    NoCipher(String),
    /// A cipher string with a word that is none.
    #[error(
        "SSL_CTX_set_cipher_list(\"{0}\") failed (SSL: error:0A000118:SSL routines::invalid command)"
    )]
    CipherWord(String),
    /// No protocol version is left.
    #[error("\"ssl_protocols {0}\": none of these is supported, only TLSv1.2 and TLSv1.3 are")]
    NoProtocol(String),
    /// No group is left, or a name is none.
    #[error("SSL_CTX_set1_curves_list(\"{list}\") failed (SSL: error:{reason})", reason = no_group(name))]
    NoGroup {
        /// The list.
        list: String,
        /// The first name that is none; the whole list where none of its names is offered.
        name: String,
    },
    /// A command that is not known, or not offered.
    #[error("SSL_CONF_cmd(\"{name}\", \"{value}\") failed (SSL: error:{reason})")]
    Command {
        /// The command.
        name: String,
        /// Its value.
        value: String,
        /// OpenSSL's number and text.
        reason: String,
    },
    /// What the cryptographic library refused.
    #[error("SSL_CTX_new() failed (SSL: {0})")]
    Library(String),
}

/// What is read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A chain of certificates.
    Certificate,
    /// A private key.
    Key,
    /// Lists of revocations.
    Crl,
}

/// Why it cannot be read: OpenSSL's function and its errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file cannot be opened or read.
    #[error("BIO_new_file() failed (SSL: {0})")]
    Open(String),
    /// No PEM block of the right kind is in it.
    #[error(
        "{function}() failed (SSL: error:0480006C:PEM routines::no start line:Expecting: {label})"
    )]
    NoStartLine {
        /// OpenSSL's function.
        function: &'static str,
        /// The label that it looks for.
        label: &'static str,
    },
    /// A PEM block is broken.
    #[error("{function}() failed (SSL: error:{reason})")]
    Broken {
        /// OpenSSL's function.
        function: &'static str,
        /// OpenSSL's number and text.
        reason: &'static str,
    },
    /// A source that is not supported: `engine:` or `store:`.
    #[error("loading \"{0}...\" certificate keys is not supported")]
    Unsupported(&'static str),
    /// More than may be.
    #[error("more than {0} {1}")]
    TooMany(usize, &'static str),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "certificate key",
            Self::Crl => "CRL",
        })
    }
}

impl Fault {
    /// A file that cannot be opened.
    pub(crate) fn open(path: &str, error: &io::Error) -> Self {
        Self::Open(cannot_open(path, "r", error))
    }
}

/// OpenSSL's errors for a file that cannot be opened in this mode of fopen(3).
pub(crate) fn cannot_open(path: &str, mode: &str, error: &io::Error) -> String {
    let (number, text) = system(error);
    let own = match error.kind() {
        io::ErrorKind::NotFound => "10000080:BIO routines::no such file",
        _ => "10080002:BIO routines::system lib",
    };
    format!("error:8{number:07X}:system library::{text}:calling fopen({path}, {mode}) error:{own}")
}

impl Error {
    /// Whether a key is at fault, or that it is not its certificate's.
    #[must_use]
    pub fn is_about_key(&self) -> bool {
        matches!(
            self,
            Self::KeyMismatch { .. }
                | Self::Load {
                    kind: Kind::Key,
                    ..
                }
        )
    }

    /// A system call that failed on a file.
    #[must_use]
    pub fn file(call: &'static str, path: &str, error: &io::Error) -> Self {
        let (number, text) = system(error);
        Self::File {
            call,
            path: path.to_owned(),
            system: format!("{number}: {text}"),
        }
    }
}

/// OpenSSL's words for a group that is none.
pub(crate) fn no_group(name: &str) -> String {
    format!("0A080106:SSL routines::passed invalid argument:group '{name}' cannot be set")
}

/// Number and text of a system's error, without Rust's own words behind it.
fn system(error: &io::Error) -> (i32, String) {
    let text = error.to_string();
    let bare = text.split(" (os error").next().unwrap_or_default();
    (error.raw_os_error().unwrap_or(0), bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_has_nginxs_sentence() {
        let fault = Fault::open("/a", &io::Error::from_raw_os_error(2));
        let error = Error::Load {
            kind: Kind::Certificate,
            name: "/a".to_owned(),
            fault,
        };
        assert_eq!(
            error.to_string(),
            "cannot load certificate \"/a\": BIO_new_file() failed (SSL: error:80000002:system library::No such file \
             or directory:calling fopen(/a, r) error:10000080:BIO routines::no such file)"
        );
        let denied = Fault::open("/a", &io::Error::from_raw_os_error(13)).to_string();
        assert!(denied.contains("error:8000000D:system library::Permission denied:"));
        let file = Error::file("open", "/a", &io::Error::from_raw_os_error(2));
        assert_eq!(
            file.to_string(),
            "open() \"/a\" failed (2: No such file or directory)"
        );
    }
}
