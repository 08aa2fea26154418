//! The directives `ssl_…` of a server.
//!
//! Not here: what becomes of their values ([`super::making`]).

use bytes::Bytes;
use config::{
    Flag, List, Number, OrOff, PathText, Placed, Sec, Size, Template, choices, directives,
};

use super::values::{CertificateCache, ConfCommand, OcspCache, ProtocolNames, SessionCache};

choices! {
    /// Whether clients show a certificate.
    pub enum VerifyClient {
        /// They are not asked for one.
        Off = "off",
        /// They have to show one that is accepted.
        On = "on",
        /// They may show one; it has to be accepted.
        Optional = "optional",
        /// They may show one, of any authority.
        OptionalNoCa = "optional_no_ca",
    }
}

choices! {
    /// For which certificates of a client's chain a responder is asked.
    pub enum Ocsp {
        /// None.
        Off = "off",
        /// All.
        On = "on",
        /// The client's own.
        Leaf = "leaf",
    }
}

directives! {
    /// TLS of clients' connections.
    pub struct TlsSettings in Server {
        /// Sets a file of PEM with the server's certificate and, behind it, the certificates between it and an authority. It may
        /// be repeated for keys of other kinds. `data:` in front of PEM takes the text itself. The master reads it, so that
        /// the worker's user needs no right to it; relative names start at the configuration's directory. A name may have
        /// variables (`$ssl_server_name`): then the worker reads the files in each handshake, in a pool.
        ssl_certificate: List<Placed<Template>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Sets a file of PEM with the key of the certificate; the first one is the first certificate's, and so on. `data:` in
        /// front of PEM takes the text itself. `engine:` and `store:` are refused.
        ssl_certificate_key: List<Placed<Template>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Keeps certificates and keys whose names have variables. A key under a password is not kept.
        ssl_certificate_cache: CertificateCache = "off", [HTTP | SERVER] 1..=3;
        /// Takes certificates and keys whose files have changed within a few seconds, without a reload: new handshakes show the
        /// new ones, and connections go on. A certificate and its key are taken together, once they fit together; else the old
        /// ones stay, and the error log says why. The directive is not in nginx. It has no effect on certificates whose names
        /// have variables, nor with `master_process off`.
        ssl_certificate_watch: Flag = "off", [HTTP | SERVER] FLAG;
        /// Sets a file with passwords of keys, one a line, which are tried in order.
        ssl_password_file: Option<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Sends certificates compressed, with brotli or zlib, to clients that take them so.
        ssl_certificate_compression: Placed<Flag> = "off", [HTTP | SERVER] FLAG;
        /// Is read and checked, and has no effect: no finite-field Diffie-Hellman is offered.
        ssl_dhparam: Option<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Sets the groups of key exchange, separated by colons. `auto` is X25519MLKEM768, X25519, P-256 and P-384.
        ssl_ecdh_curve: Placed<Bytes> = "auto", [HTTP | SERVER] 1, syntax "curve";
        /// Sets the versions of TLS. Those before 1.2 are not offered: naming them beside others is a warning.
        ssl_protocols: ProtocolNames = "TLSv1.2 TLSv1.3", [HTTP | SERVER] 1..;
        /// Sets the cipher suites of TLS 1.2, in OpenSSL's words. Suites that are not offered here are left out.
        ssl_ciphers: Placed<Bytes> = (tls::suites::DEFAULT_CIPHERS), [HTTP | SERVER] 1, syntax "ciphers";
        /// Sets the size of records. Without it they fit into one packet at first, so that a page's first bytes can be used
        /// at once, and grow to 16k.
        ssl_buffer_size: Option<Size> = none, [HTTP | SERVER] 1;
        /// Sets whether clients are asked for a certificate, and whether they have to show one that is accepted. The outcome is
        /// `$ssl_client_verify`.
        ssl_verify_client: Placed<VerifyClient> = "off", [HTTP | SERVER] 1;
        /// Sets how many certificates may stand between a client's and a trusted one.
        ssl_verify_depth: Number = "1", [HTTP | SERVER] 1;
        /// Sets a file with trusted certificates, whose names are sent to clients.
        ssl_client_certificate: Option<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Sets a file with trusted certificates, whose names are not sent to clients.
        ssl_trusted_certificate: Option<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Takes the server's order of cipher suites, not the client's.
        ssl_prefer_server_ciphers: Flag = "off", [HTTP | SERVER] FLAG;
        /// Keeps sessions, so that clients that come back need no full handshake. `shared:name:size` is one cache for all servers
        /// that name it, which outlives reloads.
        ssl_session_cache: SessionCache = "none", [HTTP | SERVER] 1..=2, inherit joined;
        /// Gives sessions to clients, encrypted.
        ssl_session_tickets: Flag = "on", [HTTP | SERVER] FLAG;
        /// Sets a file of 48 or 80 bytes with a key for tickets. It may be repeated: the first one encrypts, all decrypt.
        /// Without it, keys are random and change by themselves.
        ssl_session_ticket_key: List<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Limits the time in which a session is taken up again.
        ssl_session_timeout: Sec = "5m", [HTTP | SERVER] 1;
        /// Sets a file of PEM with revocations of clients' certificates.
        ssl_crl: Option<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Asks OCSP responders whether clients' certificates are revoked: `leaf` about a client's own, `on` about those
        /// between it and a trusted one, too. The handshake's connection waits for the answer, within
        /// `client_header_timeout`; a certificate whose status is not told is not accepted (`$ssl_client_verify`).
        ssl_ocsp: Placed<Ocsp> = "off", [HTTP | SERVER] 1;
        /// Sets the responder that `ssl_ocsp` asks, in place of the one that a certificate names. Names of responders in
        /// certificates are looked up by `resolver`.
        ssl_ocsp_responder: Option<Placed<Bytes>> = none, [HTTP | SERVER] 1, syntax "url";
        /// Keeps what responders say of clients' certificates, for all servers that name the zone. It outlives reloads.
        ssl_ocsp_cache: OrOff<OcspCache> = "off", [HTTP | SERVER] 1;
        /// Sends an OCSP response with certificates: that of `ssl_stapling_file`, else one that is fetched from the
        /// certificate's responder beforehand and again before it ends. No handshake waits for it.
        ssl_stapling: Placed<Flag> = "off", [HTTP | SERVER] FLAG;
        /// Sets a file with the OCSP response to send, in the DER format. It is sent as it is.
        ssl_stapling_file: Option<Placed<PathText>> = none, [HTTP | SERVER] 1, syntax "file";
        /// Sets the responder that responses are fetched from, in place of the one that the certificate names.
        ssl_stapling_responder: Option<Placed<Bytes>> = none, [HTTP | SERVER] 1, syntax "url";
        /// Staples responses that are fetched only if the server's certificate leads to a trusted one
        /// (`ssl_trusted_certificate`), or if its issuer has signed them itself and is sent with it. Without
        /// it the signature may also be that of a trusted certificate.
        ssl_stapling_verify: Flag = "off", [HTTP | SERVER] FLAG;
        /// Takes requests that come before the handshake is over (TLS 1.3). Such a request cannot be played again here, as each
        /// session is taken up once; `$ssl_early_data` marks it. It is answered at once, unless the client is asked for a certificate
        /// (`ssl_verify_client`).
        ssl_early_data: Flag = "off", [HTTP | SERVER] FLAG;
        /// Carries out a command of OpenSSL's configuration: `Ciphersuites`, `CipherString`, `Groups`, `Curves`, `MinProtocol`,
        /// `MaxProtocol`, `SignatureAlgorithms`, `NumTickets`, `Certificate`, `PrivateKey`, `Options`. Others are refused.
        ssl_conf_command: List<Placed<ConfCommand>> = none, [HTTP | SERVER] 2;
        /// Refuses handshakes, with the alert `unrecognized_name`: in the default server, those of clients that ask for no name
        /// of another server.
        ssl_reject_handshake: Flag = "off", [HTTP | SERVER] FLAG;
    }
}
