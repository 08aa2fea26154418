//! A header of the PROXY protocol: never a panic, never longer than what came, and the same whatever comes behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use httpcore::client::proxy_protocol::{HEADER_BYTES_MAX, Parsed, parse};

fuzz_target!(|input: &[u8]| {
    let Parsed::Header(length, said) = parse(input, HEADER_BYTES_MAX) else {
        return;
    };
    assert!(length <= input.len() && length <= HEADER_BYTES_MAX);
    let alone = parse(&input[..length], HEADER_BYTES_MAX);
    if let Some(said) = &said {
        for name in ["alpn", "ssl", "ssl_verify", "ssl_cn", "0xee", "ssl_0x25", "x"] {
            if let Ok(Some(value)) = said.tlv(name.as_bytes()) {
                assert!(value.len() <= length);
            }
        }
    }
    assert_eq!(alone, Parsed::Header(length, said));
});
