//! A chunked body: never a panic, the same data however the bytes were cut, never more than the limit, and what was put into chunks comes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use message::Framing;
use wire::http1::body_decoder::{BodyFault, Decoder};

/// Data, bytes used, whether it ended, and the trailers as text; or what was wrong.
type Outcome = Result<(Vec<u8>, usize, bool, String), BodyFault>;

fuzz_target!(|input: &[u8]| {
    let [step, limit, text @ ..] = input else {
        return;
    };
    let (step, limit) = (usize::from(*step).max(1), u64::from(*limit));
    let whole = decode(text, usize::MAX, limit);
    let in_pieces = decode(text, step, limit);
    assert_eq!(in_pieces, whole, "cut into pieces of {step}");
    if let Ok((data, used, is_end, _)) = &whole {
        assert!(limit == 0 || data.len() as u64 <= limit);
        assert!(
            *used == text.len() || *is_end,
            "what is not used stands behind the end"
        );
        assert!(!*is_end || text[..*used].ends_with(b"\r\n"));
    }
    let sent = encode(text, step);
    let back = decode(&sent, step, 0);
    assert_eq!(
        back,
        Ok((
            text.to_vec(),
            sent.len() - b"GET".len(),
            true,
            String::from("[]")
        ))
    );
});

fn decode(text: &[u8], step: usize, limit: u64) -> Outcome {
    let mut decoder = Decoder::new(Framing::Chunked, limit);
    let (mut data, mut used) = (Vec::new(), 0);
    for mut piece in text.chunks(step) {
        while !piece.is_empty() && !decoder.is_end() {
            let decoded = decoder.decode(piece)?;
            assert!(decoded.used > 0, "every call gets on");
            assert!(decoded.data.end <= decoded.used && decoded.used <= piece.len());
            assert_eq!(decoded.is_end, decoder.is_end());
            data.extend_from_slice(&piece[decoded.data.clone()]);
            used += decoded.used;
            piece = &piece[decoded.used..];
        }
    }
    assert_eq!(decoder.received(), data.len() as u64);
    let trailers: Vec<_> = decoder
        .trailers()
        .into_iter()
        .map(|line| (line.name, line.value))
        .collect();
    Ok((data, used, decoder.is_end(), format!("{trailers:?}")))
}

/// The data in chunks of `size` bytes, with the beginning of another request behind it.
fn encode(data: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in data.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\nGET");
    out
}
