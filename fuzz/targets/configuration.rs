//! A configuration text: never a panic; what is read lies in the text; every word can be asked for a value; every error can be shown.
#![no_main]

use std::sync::LazyLock;

use config::{Directive, Error, Grammar, Scope, Template};
use libfuzzer_sys::fuzz_target;

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| Grammar::new([]));

fuzz_target!(|text: &[u8]| match config::parse_bytes(text) {
    Ok(tree) => {
        let mut scope = Scope::new();
        for directive in &tree.directives {
            check(directive, text.len(), &mut scope);
        }
        match GRAMMAR.check(&tree) {
            Ok(warnings) => warnings.iter().for_each(show),
            Err(error) => show(&error),
        }
    }
    Err(error) => show(&error),
});

fn check(directive: &Directive, length: usize, scope: &mut Scope) {
    for word in std::iter::once(&directive.name).chain(&directive.args) {
        let place = word.place();
        let (start, end) = (place.span.start as usize, place.span.end as usize);
        assert!(start < end && end <= length, "a word lies in the text");
        assert!(
            word.bytes().len() <= end - start,
            "a word is what stands there, less quotes and escapes"
        );
        let _ = config::parse_size(word.bytes());
        let _ = config::parse_offset(word.bytes());
        let _ = config::parse_msec(word.bytes());
        let _ = config::parse_sec(word.bytes());
        match Template::of_word(word, scope) {
            Ok(template) => assert_eq!(template.source(), word.bytes()),
            Err(problem) => show(&directive.error(&problem)),
        }
    }
    for child in directive.children() {
        check(child, length, scope);
    }
}

fn show(error: &Error) {
    assert!(!error.sentence().is_empty());
    assert!(
        error.render(false).contains(error.sentence()),
        "the sentence is shown"
    );
}
