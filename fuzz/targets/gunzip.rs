//! A gzip body: never a panic, the same however it was cut and however little room there is, every call gets on, and what was
//! compressed comes out.
#![no_main]

use config::{NumberWithin, Size};
use libfuzzer_sys::fuzz_target;
use modules::after::compression::coded::{Coder, FlushMode};
use modules::after::compression::gzip::{Gzip, Window};
use modules::after::compression::gunzip::Inflate;
use modules::after::media_types::MediaTypes;

/// Bytes that are taken out of one input: a small one may be of zeros without end.
const OUT_MAX: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let [step, room, body @ ..] = input else {
        return;
    };
    let (step, room) = (usize::from(*step).max(1), usize::from(*room) + 64);
    let whole = coded(Inflate::new(), body, usize::MAX, OUT_MAX);
    let in_pieces = coded(Inflate::new(), body, step, room);
    match (&whole, &in_pieces) {
        // How much of it came before it broke may differ, and the words.
        (Err(_), Err(_)) => {}
        _ => assert_eq!(in_pieces, whole, "cut into pieces of {step}, with room for {room}"),
    }
    let made = coded(gzip().coder(), body, step, room).expect("anything can be compressed");
    let back = coded(Inflate::new(), &made, room, step + 64);
    assert_eq!(back.as_deref(), Ok(body));
});

/// All that a coder makes of a text that it is given in pieces, with so much room at a time; or what was wrong.
fn coded(mut coder: impl Coder, text: &[u8], step: usize, room: usize) -> Result<Vec<u8>, String> {
    let mut coded = Vec::new();
    for piece in text.chunks(step.min(text.len().max(1))) {
        reach(&mut coder, piece, FlushMode::Take, room, &mut coded)?;
    }
    reach(&mut coder, &[], FlushMode::End, room, &mut coded)?;
    Ok(coded)
}

fn reach(
    coder: &mut impl Coder,
    mut rest: &[u8],
    goal: FlushMode,
    room: usize,
    coded: &mut Vec<u8>,
) -> Result<(), String> {
    loop {
        let mut out = Vec::with_capacity(room);
        let progress = coder.code(rest, goal, &mut out)?;
        assert!(progress.taken <= rest.len() && out.capacity() >= out.len());
        assert!(progress.is_done || progress.taken > 0 || !out.is_empty(), "every call gets on");
        rest = &rest[progress.taken..];
        coded.extend_from_slice(&out);
        if coded.len() > OUT_MAX {
            return Err("more than is looked at".to_owned());
        }
        if progress.is_done {
            assert!(rest.is_empty());
            return Ok(());
        }
    }
}

fn gzip() -> Gzip {
    Gzip {
        gzip: true,
        gzip_comp_level: NumberWithin(1),
        gzip_types: MediaTypes::All,
        gzip_min_length: Size(0),
        gzip_window: Window(9),
    }
}
