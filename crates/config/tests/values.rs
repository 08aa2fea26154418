//! Sizes, times and templates, as nginx reads them.

#![allow(clippy::unwrap_used, reason = "tests")]

use config::{
    Error, NumberWithin, Scope, Template, TemplatePart, Value, VariableIndex, parse_bytes,
    parse_msec, parse_offset, parse_sec, parse_size,
};
use proptest::prelude::*;

#[test]
fn sizes() {
    for (text, size) in [
        ("0", Some(0)),
        ("17", Some(17)),
        ("8k", Some(8 << 10)),
        ("8K", Some(8 << 10)),
        ("1M", Some(1 << 20)),
        ("1g", None),
        ("", None),
        ("k", None),
        ("1 k", None),
        ("1.5k", None),
        ("+1", None),
        ("-1", None),
        ("1kk", None),
        ("9223372036854775807", Some(i64::MAX as u64)),
        ("9223372036854775808", None),
        ("9007199254740992k", None),
    ] {
        assert_eq!(parse_size(text.as_bytes()), size, "{text}");
    }
    assert_eq!(parse_offset(b"2G"), Some(2 << 30));
    assert_eq!(parse_offset(b"2k"), Some(2 << 10));
    assert_eq!(parse_offset(b"8589934592g"), None);
}

#[test]
fn times() {
    const DAY: u64 = 86_400;
    for (text, sec, msec) in [
        ("0", Some(0), Some(0)),
        ("30", Some(30), Some(30_000)),
        ("30s", Some(30), Some(30_000)),
        ("1h30m", Some(5400), Some(5_400_000)),
        ("1h 30m", Some(5400), Some(5_400_000)),
        ("1d12h", Some(DAY * 3 / 2), Some(DAY * 1500)),
        ("1w 1d", Some(DAY * 8), Some(DAY * 8000)),
        ("2M", Some(DAY * 60), None),
        ("1y 1M", Some(DAY * 395), None),
        ("10ms", None, Some(10)),
        ("1s 10ms", None, Some(1010)),
        ("1m30", Some(90), Some(90_000)),
        ("1m 30", Some(90), Some(90_000)),
        ("5 ", Some(5), Some(5_000)),
        ("30m1h", None, None),
        ("1h1h", None, None),
        ("1x", None, None),
        ("", None, None),
        ("h", None, None),
        (" ", None, None),
        ("-1", None, None),
        ("1 2", Some(3), Some(3000)),
        ("1 2 3", None, None),
        ("9223372036854775807", Some(i64::MAX as u64), None),
        ("9223372036854775808", None, None),
    ] {
        assert_eq!(parse_sec(text.as_bytes()), sec, "{text:?} in seconds");
        assert_eq!(
            parse_msec(text.as_bytes()),
            msec,
            "{text:?} in milliseconds"
        );
    }
}

fn number_within<const LOW: u64, const HIGH: u64>(text: &str) -> Result<u64, String> {
    let line = &parse_bytes(text.as_bytes()).unwrap().directives[0];
    let number = NumberWithin::<LOW, HIGH>::parse(&line.args, &mut Scope::new());
    number
        .map(|number| number.0)
        .map_err(|problem| line.error(&problem).to_string())
}

#[test]
fn numbers_within_bounds() {
    assert_eq!(number_within::<1, 9>("level 9;"), Ok(9));
    assert_eq!(
        number_within::<1, 9>("level 0;").unwrap_err(),
        "value must be between 1 and 9 in nginx.conf:1"
    );
    assert_eq!(
        number_within::<1, { u64::MAX }>("level 0;").unwrap_err(),
        "value must be equal to or greater than 1 in nginx.conf:1"
    );
    assert_eq!(
        number_within::<1, 9>("level x;").unwrap_err(),
        "\"level\" directive invalid number in nginx.conf:1"
    );
}

fn template(text: &str, scope: &mut Scope) -> Result<Template, Error> {
    let tree = parse_bytes(format!("x \"{text}\";").as_bytes()).unwrap();
    let line = &tree.directives[0];
    Template::of_word(&line.args[0], scope).map_err(|problem| line.error(&problem))
}

#[test]
fn a_template_without_variables_is_a_literal() {
    let mut scope = Scope::new();
    for text in ["", "plain", "a}b{c", "100%"] {
        let template = template(text, &mut scope).unwrap();
        assert_eq!(template.literal().unwrap(), text);
        assert_eq!(template.parts().len(), usize::from(!text.is_empty()));
    }
    assert!(scope.variables().is_empty());
}

#[test]
fn variables_and_captures_are_found() {
    let mut scope = Scope::new();
    let template = template("a$uri-${Host}b$1$10$0$URI", &mut scope).unwrap();
    let literal = |text: &'static str| TemplatePart::Literal(text.into());
    let variable = |number| TemplatePart::Variable(VariableIndex(number));
    assert_eq!(
        template.parts(),
        [
            literal("a"),
            variable(0),
            literal("-"),
            variable(1),
            literal("b"),
            TemplatePart::Capture(1),
            TemplatePart::Capture(1),
            literal("0"),
            variable(2),
            variable(0)
        ]
    );
    assert!(template.literal().is_none() && template.has_captures());
    let names: Vec<&str> = scope
        .variables()
        .iter()
        .map(|variable| variable.name.as_str())
        .collect();
    assert_eq!(names, ["uri", "host", "0"]);
}

#[test]
fn a_wrong_reference_is_refused_in_nginx_s_words() {
    for (text, sentence) in [
        ("a$", "invalid variable name"),
        ("$ a", "invalid variable name"),
        ("${}", "invalid variable name"),
        ("${", "invalid variable name"),
        ("$$", "invalid variable name"),
        ("$-", "invalid variable name"),
        (
            "${abc",
            "the closing bracket in \"abc\" variable is missing",
        ),
        (
            "${ab-c}",
            "the closing bracket in \"ab\" variable is missing",
        ),
    ] {
        let error = template(text, &mut Scope::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{sentence} in nginx.conf:1"),
            "{text}"
        );
    }
}

#[test]
fn an_unknown_name_is_reported_at_its_first_use() {
    let mut scope = Scope::new();
    for text in ["$uri", "$nope", "$nope$never"] {
        template(text, &mut scope).unwrap();
    }
    let error = scope
        .check(|name| name == "uri", |_| Some("uri"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown \"nope\" variable in nginx.conf:1"
    );
    assert_eq!(error.hint(), Some("did you mean \"$uri\"?"));
    assert!(scope.check(|_| true, |_| None).is_ok());
    assert_eq!(scope.find("NOPE"), Some(VariableIndex(1)));
    assert_eq!(scope.name_of(VariableIndex(1)), "nope");
}

proptest! {
    #[test]
    fn a_template_s_literals_and_names_are_all_of_its_text(text in "([a-z ]|\\$[a-z]|\\$\\{[a-z]+\\}|\\$[1-9]){0,20}") {
        let mut scope = Scope::new();
        let template = template(&text, &mut scope).unwrap();
        let mut plain = String::new();
        for part in template.parts() {
            match part {
                TemplatePart::Literal(bytes) => plain.push_str(std::str::from_utf8(bytes).unwrap()),
                TemplatePart::Variable(index) => plain.push_str(scope.name_of(*index)),
                TemplatePart::Capture(number) => plain.push_str(&number.to_string()),
            }
        }
        prop_assert_eq!(plain, text.replace(['$', '{', '}'], ""));
    }

    #[test]
    fn any_word_is_a_number_or_is_not(text in prop::collection::vec(any::<u8>(), 0..30)) {
        let sizes = (parse_size(&text), parse_offset(&text), parse_sec(&text), parse_msec(&text));
        let starts_with_digit = text.first().is_some_and(u8::is_ascii_digit);
        if sizes.0.is_some() || sizes.1.is_some() {
            prop_assert!(starts_with_digit);
        }
    }
}
