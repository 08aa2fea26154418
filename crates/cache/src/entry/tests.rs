//! Entries encoded and decoded, intact and damaged.

use super::*;
use crate::lifetime::Reuse;
use message::HeaderId;
use proptest::collection::vec;
use proptest::prelude::*;

const FIELDS: &[(&str, &str)] = &[
    ("Content-Type", "text/html"),
    ("ETag", "\"abc\""),
    ("X-Empty", ""),
];

fn lifetime() -> Lifetime {
    Lifetime {
        date: 1_700_000_000,
        expires: 1_700_000_060,
        updating: 30,
        error: 90,
        initial_age: 5,
        reuse: Reuse::NeverStale,
    }
}

fn description<'a>(vary: &'a [u8]) -> Description<'a> {
    Description {
        key: Key::of(b"http://a/b"),
        main: Key::of(b"main"),
        variant: Key::of(b"variant"),
        tag: 77,
        key_text: b"http://a/b",
        vary,
        status: 200,
        status_line: b"200 OK",
        lifetime: lifetime(),
    }
}

fn lines<'a>(
    fields: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)> {
    let line =
        |(name, value): &(&'a str, &'a str)| (name.as_bytes(), value.as_bytes(), HeaderId::Other);
    fields.iter().map(line)
}

/// Encodes as a store does: the front, the body in pieces, the table, and the final prologue over the first.
fn write(fields: &[(&str, &str)], vary: &[u8], body: &[u8], piece: usize) -> Vec<u8> {
    let mut writer = EntryEncoder::new(&description(vary), lines(fields)).unwrap();
    let mut file = writer.front().to_vec();
    for piece in body.chunks(piece.max(1)) {
        writer.body(piece).unwrap();
        file.extend_from_slice(piece);
    }
    let expected = writer.entry_len(writer.body_len());
    let finished = writer.finish();
    file.extend_from_slice(&finished.table);
    assert_eq!(
        file[PROLOGUE_BYTES..finished.front.len()],
        finished.front[PROLOGUE_BYTES..]
    );
    file[..PROLOGUE_BYTES].copy_from_slice(&finished.front[..PROLOGUE_BYTES]);
    assert_eq!(file.len() as u64, finished.entry_len);
    assert_eq!(finished.entry_len, expected);
    file
}

fn read(file: &[u8]) -> Result<Entry, EntryFault> {
    Entry::decode_whole(&Bytes::copy_from_slice(file))
}

#[test]
fn an_entry_describes_itself() {
    let file = write(FIELDS, b"accept", b"hello", 2);
    let entry = read(&file).unwrap();
    assert_eq!(entry.key(), Key::of(b"http://a/b"));
    assert_eq!(entry.main(), Key::of(b"main"));
    assert_eq!(entry.variant(), Some(Key::of(b"variant")));
    assert_eq!(entry.tag(), 77);
    assert_eq!(&entry.key_text()[..], b"http://a/b");
    assert_eq!(&entry.vary()[..], b"accept");
    assert_eq!(entry.lifetime(), &lifetime());
    let head = entry.head();
    assert_eq!(head.status, 200);
    assert_eq!(&head.part(head.status_line)[..], b"200 OK");
    assert_eq!(head.get(HeaderId::ETag), Some(&b"\"abc\""[..]));
    assert_eq!(head.iter().count(), FIELDS.len());
    let body = entry.body();
    assert_eq!(&file[body.start as usize..body.end as usize], b"hello");
    assert_eq!(read(&write(FIELDS, b"", b"", 1)).unwrap().variant(), None);
}

#[test]
fn the_head_is_read_from_as_many_bytes_as_it_has() {
    let file = Bytes::from(write(FIELDS, b"", b"hello", 5));
    let len = file.len() as u64;
    let few = Entry::decode(&file.slice(..10), len).unwrap_err();
    assert_eq!(few, EntryFault::Needs(PROLOGUE_BYTES));
    let Err(EntryFault::Needs(needed)) = Entry::decode(&file.slice(..PROLOGUE_BYTES), len) else {
        panic!("the head is not there");
    };
    assert!(Entry::decode(&file.slice(..needed), len).is_ok());
}

#[test]
fn an_unfinished_entry_is_incomplete() {
    let writer = EntryEncoder::new(&description(b""), lines(FIELDS)).unwrap();
    assert_eq!(read(&writer.front()).unwrap_err(), EntryFault::Incomplete);
}

#[test]
fn foreign_files_are_told_apart() {
    assert_eq!(read(&[5; 600]).unwrap_err(), EntryFault::Foreign);
    assert_eq!(read(&[0; 600]).unwrap_err(), EntryFault::Foreign);
}

#[test]
fn another_version_is_named() {
    let mut file = write(FIELDS, b"", b"hello", 5);
    file[8] = 9;
    let crc = crc32fast::hash(&file[..PROLOGUE_BYTES - 4]);
    file[PROLOGUE_BYTES - 4..PROLOGUE_BYTES].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(read(&file).unwrap_err(), EntryFault::Version(9));
}

#[test]
fn lines_that_would_split_a_response_are_not_stored() {
    for (name, value) in [
        ("a\r\nb", ""),
        ("", "x"),
        ("a:b", "x"),
        ("a", "x\ny"),
        ("a", "\0"),
    ] {
        let writer = EntryEncoder::new(&description(b""), lines(&[(name, value)]));
        assert!(
            matches!(writer, Err(EntryFault::Unstorable(_))),
            "{name:?} {value:?}"
        );
    }
}

#[test]
fn a_byte_that_would_split_a_line_is_found_at_any_place() {
    let is_stored = |value: &[u8]| {
        let line = std::iter::once((&b"a"[..], value, HeaderId::Other));
        EntryEncoder::new(&description(b""), line).is_ok()
    };
    for (len, at) in (1..26).flat_map(|len| (0..len).map(move |at| (len, at))) {
        let mut value = vec![0xff; len];
        for byte in 0..=u8::MAX {
            value[at] = byte;
            let splits = matches!(byte, b'\r' | b'\n' | 0);
            assert_eq!(is_stored(&value), !splits, "{byte} at {at} of {len}");
        }
    }
}

#[test]
fn blocks_cover_the_body() {
    let body = vec![7; 3 * 65_536 + 1];
    let entry = read(&write(FIELDS, b"", &body, 10_000)).unwrap();
    assert_eq!(entry.blocks(), 4);
    assert_eq!(entry.block(3), entry.body().end - 1..entry.body().end);
    assert_eq!(entry.blocks_of(&(0..1)), 0..1);
    assert_eq!(entry.blocks_of(&(65_535..65_537)), 0..2);
    assert_eq!(entry.blocks_of(&(196_608..u64::MAX)), 3..4);
    assert_eq!(entry.blocks_of(&(5..5)), 0..0);
}

/// A body of a few blocks at most, cheap to make.
fn body() -> impl Strategy<Value = Vec<u8>> {
    (0usize..200_000, any::<u8>()).prop_map(|(len, seed)| {
        (0..len)
            .map(|at| (at as u8).wrapping_mul(31) ^ seed)
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_entry_is_read_back_as_written(
        fields in vec(("[a-zA-Z-]{1,20}", "[ -~]{0,60}"), 0..20),
        vary in "[a-z,-]{0,40}", body in body(), piece in 1usize..100_000,
    ) {
        let lines: Vec<_> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let file = write(&lines, vary.as_bytes(), &body, piece);
        let entry = read(&file).unwrap();
        let got: Vec<_> = entry.head().iter().map(|(n, v, _)| (n, v)).collect();
        let sent: Vec<_> = lines.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(got, sent);
        let range = entry.body();
        prop_assert_eq!(&file[range.start as usize..range.end as usize], &body[..]);
    }

    #[test]
    fn any_flipped_bit_is_found(body in body(), place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut file = write(FIELDS, b"accept", &body, 65_536);
        let at = place.index(file.len());
        file[at] ^= 1u8 << bit;
        prop_assert!(read(&file).is_err());
    }

    #[test]
    fn any_flipped_bit_of_the_front_is_found(at in 0usize..260, bit in 0u8..8) {
        let mut file = write(FIELDS, b"accept", b"hello", 5);
        let at = at.min(file.len() - 1);
        file[at] ^= 1u8 << bit;
        prop_assert!(read(&file).is_err());
    }

    #[test]
    fn any_truncation_or_growth_is_found(body in body(), place in any::<prop::sample::Index>(), more in 1usize..50) {
        let mut file = write(FIELDS, b"", &body, 65_536);
        prop_assert!(read(&file[..place.index(file.len())]).is_err());
        file.resize(file.len() + more, 0);
        prop_assert!(read(&file).is_err());
    }

    #[test]
    fn any_zeroed_part_is_found(body in body(), place in any::<prop::sample::Index>(), len in 1usize..5_000) {
        let mut file = write(FIELDS, b"", &body, 65_536);
        let at = place.index(file.len());
        let end = (at + len).min(file.len());
        let was = file[at..end].to_vec();
        file[at..end].fill(0);
        prop_assert!(was.iter().all(|byte| *byte == 0) || read(&file).is_err());
    }

    #[test]
    fn any_bytes_do_not_panic(mut bytes in vec(any::<u8>(), 0..600), is_ours in any::<bool>()) {
        if is_ours && bytes.len() >= PROLOGUE_BYTES {
            // Past the checksum: numbers that a hostile writer could make us read.
            let good = write(FIELDS, b"", b"", 1);
            bytes[..12].copy_from_slice(&good[..12]);
            bytes[10] = 1;
            let crc = crc32fast::hash(&bytes[..PROLOGUE_BYTES - 4]);
            bytes[PROLOGUE_BYTES - 4..PROLOGUE_BYTES].copy_from_slice(&crc.to_le_bytes());
        }
        let _ = read(&bytes);
    }

    #[test]
    fn any_head_with_a_right_checksum_does_not_panic(head in vec(any::<u8>(), 0..300)) {
        let len = head.len() as u32;
        let prologue = Prologue { is_complete: true, block_shift: BLOCK_SHIFT, status: 200, tag: 0, head_len: len,
            body_offset: PROLOGUE_BYTES as u32 + len, body_len: 0, head_crc: 0, table_crc: 0,
            key: Key::of(b""), main: Key::of(b""),
            variant: Key::of(b""), lifetime: lifetime() };
        let _ = read(&front(prologue, head));
    }
}

fn front(prologue: Prologue, mut head: Vec<u8>) -> Bytes {
    head.splice(..0, [0; PROLOGUE_BYTES]);
    super::encoder::front(prologue, head)
}

/// Bytes whose owner wants the memory back.
struct Lent {
    bytes: Vec<u8>,
    _held: std::sync::Arc<()>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[test]
fn a_decoded_entry_does_not_keep_its_body_in_memory() {
    let held = std::sync::Arc::new(());
    let file = write(FIELDS, b"", &[7; 60_000], 4096);
    let bytes = Bytes::from_owner(Lent {
        bytes: file,
        _held: held.clone(),
    });
    let entry = Entry::decode(&bytes, bytes.len() as u64).unwrap();
    drop(bytes);
    assert_eq!(std::sync::Arc::strong_count(&held), 1);
    assert_eq!(entry.key_text(), "http://a/b");
}
