//! HPACK: never a panic, never beyond the limits, the fields that another implementation reads; and what is encoded is decoded by both.
#![no_main]

use fluke_hpack::decoder::DecoderError;
use libfuzzer_sys::fuzz_target;
use wire::http2::hpack::{BlockLimits, Decoder, HpackFault, encode, huffman};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const LIMITS: BlockLimits = BlockLimits {
    string_max: 1000,
    block_max: 4000,
    dropped_max: 0,
};

// Blocks of one connection, each with its length before it.
fuzz_target!(|input: &[u8]| {
    let mut ours = Decoder::default();
    let mut theirs = fluke_hpack::Decoder::new();
    theirs.set_max_allowed_table_size(4096);
    let mut rest = input;
    while let Some((len, behind)) = rest.split_first() {
        let (block, behind) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = behind;
        let Ok(fields) = decode(&mut ours, block) else {
            break;
        };
        match theirs.decode(block) {
            Err(DecoderError::SizeUpdateAtEnd) => break,
            read => assert_eq!(read.expect("it was accepted here"), fields),
        }
        encode_again(&fields);
    }
    strings(input);
});

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackFault> {
    let mut out = Vec::new();
    let mut fields = Vec::new();
    let mut lines = decoder.block(block, &LIMITS);
    while let Some(line) = lines.next(&mut out)? {
        let part = |span: message::Span| span.of(&out).to_vec();
        fields.push((part(line.name), part(line.value)));
    }
    assert!(out.len() <= LIMITS.block_max);
    Ok(fields)
}

fn encode_again(fields: &Fields) {
    let mut out = Vec::new();
    for (name, value) in fields {
        encode::field(&mut out, name, value);
    }
    let lower: Fields = fields
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    assert_eq!(decode(&mut Decoder::default(), &out).as_ref(), Ok(&lower));
    let read = fluke_hpack::Decoder::new().decode(&out);
    assert_eq!(read.expect("what we wrote"), lower);
}

fn strings(input: &[u8]) {
    let (mut text, mut bytes) = (Vec::new(), Vec::new());
    if huffman::decode(input, &mut text).is_ok() {
        huffman::encode(&text, &mut bytes);
        assert_eq!(bytes, input, "there is one form");
    }
    let (mut text, mut bytes) = (Vec::new(), Vec::new());
    huffman::encode(input, &mut bytes);
    assert_eq!(huffman::decode(&bytes, &mut text), Ok(()));
    assert_eq!(text, input);
}
