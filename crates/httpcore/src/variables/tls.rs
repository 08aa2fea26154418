//! The variables of TLS, which is not built: none has a value, and the configuration may define them.

use super::table::VariableEntry;

const DOC: &str = "What TLS says of the connection. It is not built, so there is no value.";
const PROTOCOL_DOC: &str = "The version of TLS. It is not built, so there is no value.";

const fn absent(name: &'static str, doc: &'static str) -> VariableEntry {
    VariableEntry::fresh(name, doc, |_, _| false).changeable()
}

/// The variables of TLS.
pub const VARIABLES: &[VariableEntry] = &[
    absent("ssl_alpn_protocol", DOC),
    absent("ssl_cipher", DOC),
    absent("ssl_ciphers", DOC),
    absent("ssl_client_cert", DOC),
    absent("ssl_client_escaped_cert", DOC),
    absent("ssl_client_fingerprint", DOC),
    absent("ssl_client_i_dn", DOC),
    absent("ssl_client_i_dn_legacy", DOC),
    absent("ssl_client_raw_cert", DOC),
    absent("ssl_client_s_dn", DOC),
    absent("ssl_client_s_dn_legacy", DOC),
    absent("ssl_client_serial", DOC),
    absent("ssl_client_sigalg", DOC),
    absent("ssl_client_v_end", DOC),
    absent("ssl_client_v_remain", DOC),
    absent("ssl_client_v_start", DOC),
    absent("ssl_client_verify", DOC),
    absent("ssl_curve", DOC),
    absent("ssl_curves", DOC),
    absent("ssl_early_data", DOC),
    absent("ssl_ech_outer_server_name", DOC),
    absent("ssl_ech_status", DOC),
    absent("ssl_protocol", PROTOCOL_DOC),
    absent("ssl_server_name", DOC),
    absent("ssl_session_id", DOC),
    absent("ssl_session_reused", DOC),
    absent("ssl_sigalg", DOC),
    absent("ssl_sigalgs", DOC),
];
