//! An HTTP/2 connection of either role: never a panic, the same events and output however the bytes were cut, never more streams than announced.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::http2::hpack::encode;
use wire::http2::session::{INPUT_MAX, PREFACE};
use wire::http2::{Event, Role, Session, SessionConfig};

/// Maximum number of streams.
const STREAMS: u32 = 4;

fuzz_target!(|input: &[u8]| {
    let [role, step, text @ ..] = input else {
        return;
    };
    let role = if role % 2 == 0 { Role::Server } else { Role::Client };
    let whole = run(role, text, usize::MAX);
    let in_pieces = run(role, text, usize::from(*step).max(1));
    assert_eq!(in_pieces, whole, "cut into pieces of {step}");
});

/// What the session said, with data joined, and what it wrote.
fn run(role: Role, text: &[u8], step: usize) -> (Vec<String>, Vec<u8>) {
    let config = SessionConfig {
        streams_max: STREAMS,
        ..SessionConfig::default()
    };
    let mut session = match role {
        Role::Server => Session::server(config),
        Role::Client => Session::client(config),
    };
    let mut text = text.to_vec();
    match role {
        Role::Server => {
            text.splice(0..0, PREFACE.iter().copied());
        }
        Role::Client => {
            text.splice(0..0, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
            for method in [&b"GET"[..], b"HEAD", b"POST"] {
                let opened = session.open(method, true, |out| encode::field(out, b":method", method));
                opened.expect("three of four");
            }
        }
    }
    let mut said = Vec::new();
    let mut unused = Vec::new();
    for piece in text.chunks(step) {
        unused.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let (used, event) = session.receive(&unused[at..], 0, &mut |_| None);
            at += used;
            match event {
                Event::Partial => break,
                Event::TurnEnds => session.begin_turn(0),
                event => take(&mut session, event, &mut said),
            }
            assert!(session.live() <= STREAMS as usize);
        }
        unused.drain(..at);
        assert!(unused.len() < INPUT_MAX, "a whole frame was not taken");
    }
    (said, session.output().to_vec())
}

fn take(session: &mut Session, event: Event<'_>, said: &mut Vec<String>) {
    match event {
        Event::Data(key, data, is_end) => {
            // Data is not returned, so that the room given does not depend on the pieces.
            let before = format!("data {}", key.id());
            if said.last() != Some(&before) && !data.is_empty() {
                said.push(before);
            }
            if is_end {
                said.push(format!("end {}", key.id()));
            }
        }
        Event::Request(key, head, is_end) => {
            assert!(head.bytes.windows(4).any(|end| end == b"\r\n\r\n"));
            for (name, value, _) in head.iter() {
                let has_end = |text: &[u8]| text.iter().any(|c| matches!(c, b'\r' | b'\n' | 0));
                assert!(!name.is_empty() && !has_end(name) && !has_end(value));
                assert!(!name.contains(&b':'));
            }
            said.push(format!("{key:?} {head:?} {is_end}"));
            if is_end {
                let answered = session.respond(key, true, |out| encode::status(out, 200));
                answered.expect("it is open");
            }
        }
        event => said.push(format!("{event:?}")),
    }
}
