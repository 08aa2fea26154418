//! A name server's answer: never a panic, never more records than it says, and every name could be asked for again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upstream::resolver::dns_message::{self, RecordData, RecordType};

/// A record takes at least so many bytes.
const RECORD_MIN: usize = 11;

fuzz_target!(|input: &[u8]| {
    let Ok(answer) = dns_message::answer(input) else {
        return;
    };
    assert!(answer.records.len() * RECORD_MIN <= input.len());
    for record in &answer.records {
        assert!(i32::try_from(record.ttl).is_ok());
        if let RecordData::Alias(name) | RecordData::Srv { name, .. } = &record.data {
            if let Some(asked) = dns_message::question(1, name, RecordType::A) {
                assert!(asked.len() <= 12 + 255 + 4);
            }
        }
    }
});
