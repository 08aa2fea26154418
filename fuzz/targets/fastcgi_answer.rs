//! An answer in FastCGI's records: never a panic; the same however the bytes were cut; nothing of a head is two lines;
//! no end without an end.
#![no_main]

use std::cell::RefCell;
use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use wire::fastcgi::{RecordReader, StderrNotice};
use wire::answer::Event;
use wire::exchange::AnswerReader;

/// As many bytes of a head as are allowed.
const HEAD_BYTES_MAX: usize = 512;

fuzz_target!(|input: &[u8]| {
    let [step, switches, bytes @ ..] = input else {
        return;
    };
    let whole = read([bytes], *switches);
    let step = usize::from(*step).max(1);
    assert_eq!(whole, read(bytes.chunks(step), *switches), "cut into pieces of {step}");
});

/// What an answer comes to: its head, its body, what was told, and how it ended.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, switches: u8) -> String {
    let told = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&told);
    let keeps_connection = switches & 1 != 0;
    let tell = Box::new(move |one: StderrNotice<'_>| {
        heard.borrow_mut().push(format!("{one:?}"));
        !matches!(one, StderrNotice::Stderr([b'!', ..]))
    });
    let records = RecordReader::new(switches & 2 != 0, HEAD_BYTES_MAX, keeps_connection, tell);
    let mut reader = AnswerReader::of_records(records);
    let (mut heads, mut body, mut unused) = (String::new(), Vec::new(), Vec::new());
    for piece in pieces {
        unused.extend_from_slice(piece);
        loop {
            let Ok((used, event)) = reader.advance(&unused) else {
                return format!("{heads}, {body:?}, {:?}, refused", told.borrow());
            };
            assert!(used <= unused.len());
            let is_over = matches!(event, Event::Partial | Event::End);
            match event {
                Event::Head(head) => {
                    assert!(heads.is_empty(), "a program sends one head");
                    assert!(head.bytes.len() <= HEAD_BYTES_MAX);
                    for (name, value, _) in head.iter() {
                        assert!(!name.is_empty());
                        assert!(!value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
                    }
                    heads = format!("{head:?}");
                }
                Event::Data(range) => {
                    assert!(!range.is_empty() && range.end <= used);
                    body.extend_from_slice(&unused[range]);
                }
                Event::Interim(_) => panic!("a program sends one head"),
                Event::Partial | Event::End => {}
            }
            unused.drain(..used);
            if is_over {
                break;
            }
        }
    }
    assert!(reader.is_ended() || !reader.is_reusable(0));
    assert!(keeps_connection || !reader.is_reusable(0));
    let end = (!reader.is_ended()).then(|| reader.close());
    assert!(end != Some(Ok(())) || reader.has_head());
    format!("{heads}, {body:?}, {:?}, {end:?}", told.borrow())
}
