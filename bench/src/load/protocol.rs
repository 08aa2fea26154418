//! What the connections of this run speak: said once, before the first of them.

use std::sync::OnceLock;

/// What connections speak.
#[derive(Debug, Clone, Copy, Default)]
pub struct Protocol {
    /// TLS below it.
    pub is_tls: bool,
    /// HTTP/2, one stream at a time, instead of HTTP/1.1.
    pub is_http2: bool,
}

static PROTOCOL: OnceLock<Protocol> = OnceLock::new();

/// Takes `--tls` and `--http2` off the front of the arguments; the rest of them.
pub fn take(arguments: &[String]) -> &[String] {
    let mut protocol = Protocol::default();
    let mut rest = arguments;
    while let [first, more @ ..] = rest {
        match first.as_str() {
            "--tls" => protocol.is_tls = true,
            "--http2" => protocol.is_http2 = true,
            _ => break,
        }
        rest = more;
    }
    PROTOCOL.get_or_init(|| protocol);
    rest
}

/// What they speak.
pub fn get() -> Protocol {
    PROTOCOL.get().copied().unwrap_or_default()
}
