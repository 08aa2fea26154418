//! A cipher string, and lists of groups and commands: never a panic, and nothing chosen twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use tls::suites::conf_command::Commands;
use tls::suites::{ciphers, ciphersuites, expanded, groups};

fuzz_target!(|input: &str| {
    if let Some(names) = expanded(input) {
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
    if let Ok(suites) = ciphers(input) {
        assert!(!suites.is_empty() && suites.len() <= 6);
    }
    let _ = (groups::read(input), ciphersuites(Some(input)));
    if let Some((name, value)) = input.split_once(' ') {
        let _ = Commands::default().take(name, value);
    }
});
