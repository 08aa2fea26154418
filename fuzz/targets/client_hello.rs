//! A ClientHello: never a panic, never more than its limit, and the same however its bytes are cut into reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tls::hello::{BUFFER_BYTES_MAX, Progress, read};

fuzz_target!(|input: &[u8]| {
    let whole = read(input);
    if let Ok(Progress::Whole(hello)) = &whole {
        assert!(hello.server_name.as_ref().is_none_or(|name| !name.is_empty()));
        assert!(!hello.ciphers.is_empty() && hello.alpn.iter().all(|name| !name.is_empty()));
        let _ = (hello.cipher_names(), hello.group_names(), hello.signature_scheme_names());
    } else if input.len() > BUFFER_BYTES_MAX {
        assert!(whole.is_err());
    }
    // A beginning says the same as the whole, or that more is needed.
    for end in [input.len() / 3, input.len() / 2, input.len().saturating_sub(1)] {
        let beginning = read(&input[..end]);
        match (&beginning, &whole) {
            (Ok(Progress::Incomplete), _) => {}
            (Err(_), Err(_)) => {}
            (same, whole) => assert_eq!(same, whole),
        }
    }
});
