//! A page with commands: never a panic, the same found in it however it was cut, and never more held than the bounds say.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use modules::after::ssi::condition::Condition;
use modules::after::ssi::parser::{Event, NAME_MAX, PARAMETERS_MAX, Parser};

fuzz_target!(|input: &[u8]| {
    let [step, value_max, page @ ..] = input else {
        return;
    };
    let (step, value_max) = (usize::from(*step).max(1), usize::from(*value_max));
    let whole = found(page, usize::MAX, value_max);
    assert_eq!(found(page, step, value_max), whole, "cut into pieces of {step}");
});

/// What is found, texts put together.
fn found(page: &[u8], step: usize, value_max: usize) -> Vec<Event> {
    let mut parser = Parser::new(value_max);
    let mut events = Vec::new();
    let (mut given, mut text) = (0, Vec::new());
    for piece in page.chunks(step.min(page.len().max(1))) {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(event) = parser.next(&mut piece) {
            if let Event::Text(more) = event {
                assert!(!more.is_empty());
                text.extend_from_slice(&more);
                continue;
            }
            if let Event::Command(command) = &event {
                assert!(command.name.len() <= NAME_MAX);
                assert!(command.parameters.len() <= PARAMETERS_MAX);
                for (name, value) in &command.parameters {
                    assert!(name.len() <= NAME_MAX && value.len() <= value_max);
                    let _ = Condition::parse(value);
                }
            }
            put(&mut text, &mut events, &mut given);
            events.push(event);
        }
        assert!(piece.is_empty(), "every piece is taken");
    }
    text.extend(parser.end().unwrap_or_default());
    put(&mut text, &mut events, &mut given);
    assert!(given <= page.len());
    events
}

fn put(text: &mut Vec<u8>, events: &mut Vec<Event>, given: &mut usize) {
    if !text.is_empty() {
        *given += text.len();
        events.push(Event::Text(std::mem::take(text).into()));
    }
}
