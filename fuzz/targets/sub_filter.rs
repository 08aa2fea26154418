//! A search for several texts in a body that comes in pieces: never a panic, and what a plain search finds.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use modules::after::sub_filter::search::{Part, Patterns, Search};

fuzz_target!(|input: &[u8]| {
    let [step, flags, rest @ ..] = input else {
        return;
    };
    // The patterns stand before the body, one on a line; an empty line ends them.
    let mut lines = rest.split(|byte| *byte == b'\n');
    let list: Vec<&[u8]> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let used: usize = list.iter().map(|line| line.len() + 1).sum();
    let body = rest.get(used + 1..).unwrap_or_default();
    let Some(patterns) = Patterns::new(list.iter().map(|line| Bytes::copy_from_slice(line))) else {
        return;
    };
    let is_once = flags & 1 == 1;
    let mut search = Search::new(Arc::new(patterns), is_once);
    let mut parts = Vec::new();
    for piece in body.chunks(usize::from(*step).max(1)) {
        search.feed(Bytes::copy_from_slice(piece), &mut parts);
    }
    search.end(&mut parts);
    assert_eq!(joined(&parts), plainly(&list, is_once, body));
});

/// A found pattern's number, or a byte of the text.
type Found = Result<u8, usize>;

fn joined(parts: &[Part]) -> Vec<Found> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => all.extend(text.iter().map(|byte| Ok(*byte))),
            Part::Match(number) => all.push(Err(*number)),
        }
    }
    all
}

fn plainly(list: &[&[u8]], is_once: bool, text: &[u8]) -> Vec<Found> {
    let (mut out, mut at) = (Vec::new(), 0);
    let mut done = vec![false; list.len()];
    while at < text.len() {
        let rest = &text[at..];
        let begins = |(number, pattern): &(usize, &&[u8])| {
            let length = pattern.len().min(rest.len());
            !done[*number] && rest[..length].eq_ignore_ascii_case(&pattern[..length])
        };
        match list.iter().enumerate().find(begins) {
            // The text may still become it when the body ends.
            Some((_, pattern)) if pattern.len() > rest.len() => {
                out.extend(rest.iter().map(|byte| Ok(*byte)));
                break;
            }
            Some((number, pattern)) => {
                done[number] = is_once;
                out.push(Err(number));
                at += pattern.len();
            }
            None => {
                out.push(Ok(rest[0]));
                at += 1;
            }
        }
    }
    out
}
