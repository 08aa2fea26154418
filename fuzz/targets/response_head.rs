//! An upstream's answer: never a panic; the same however the bytes were cut; nothing of a head is two lines; no end without an end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use message::{HeaderId, ResponseHead};
use wire::answer::Event;
use wire::exchange::{AnswerReader, RequestKind};

fuzz_target!(|input: &[u8]| {
    let [step, switches, text @ ..] = input else {
        return;
    };
    let asked = match switches & 3 {
        0 => RequestKind::Head,
        1 => RequestKind::Upgrade,
        _ => RequestKind::Plain,
    };
    let head_bytes_max = if switches & 4 == 0 { 4096 } else { 96 };
    let is_closed = switches & 8 != 0;
    let whole = read([text], asked, head_bytes_max, is_closed);
    let step = usize::from(*step).max(1);
    let cut = read(text.chunks(step), asked, head_bytes_max, is_closed);
    assert_eq!(whole, cut, "cut into pieces of {step}");
});

/// What an answer comes to: its heads, its body, and how it ended.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    asked: RequestKind,
    head_bytes_max: usize,
    is_closed: bool,
) -> String {
    let mut reader = AnswerReader::new(asked, head_bytes_max);
    let (mut heads, mut body, mut unused) = (String::new(), Vec::new(), Vec::new());
    for piece in pieces {
        unused.extend_from_slice(piece);
        loop {
            let Ok((used, event)) = reader.advance(&unused) else {
                return format!("{heads}, {body:?}, refused");
            };
            assert!(used <= unused.len());
            let is_over = matches!(event, Event::Partial | Event::End);
            match event {
                Event::Interim(head) => heads += &summary(&head, head_bytes_max),
                Event::Head(head) => heads += &summary(&head, head_bytes_max),
                Event::Data(range) => body.extend_from_slice(&unused[range]),
                Event::Partial | Event::End => {}
            }
            unused.drain(..used);
            if is_over {
                break;
            }
        }
    }
    let end = (is_closed && !reader.is_ended()).then(|| reader.close());
    assert!(!reader.is_reusable(1) && (reader.is_ended() || !reader.is_reusable(0)));
    let (rest, trailers) = (unused.len(), reader.trailers());
    format!("{heads}, {body:?}, {trailers:?}, {end:?}, {rest}")
}

fn summary(head: &ResponseHead, head_bytes_max: usize) -> String {
    assert!(head.bytes.len() <= head_bytes_max);
    for (name, value, _) in head.iter() {
        assert!(!name.is_empty());
        assert!(!value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
    }
    if !head.is_interim() {
        let framing = [HeaderId::ContentLength, HeaderId::TransferEncoding];
        let lines = framing.iter().flat_map(|id| head.get_each(*id));
        assert!(lines.count() <= 1, "one line says where the body ends");
    }
    format!("{head:?}")
}
