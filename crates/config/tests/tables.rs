//! Directive tables at work: setting, repeating, inheriting, defaults.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use config::{
    Bufs, Directive, DirectiveSlot, Error, Flag, List, Msec, Number, Offset, OrOff, PathText,
    Placed, Scope, Sec, Section, Size, Template, Words, parse_bytes,
};

config::choices! {
    /// Dates.
    pub enum Compare {
        /// Off.
        Off = "off",
        /// Exact.
        Exact = "exact",
    }
}

config::choice_set! {
    /// When the next server is tried.
    pub struct Next: u32 {
        /// Error.
        ERROR = "error",
        /// Timeout.
        TIMEOUT = "timeout",
        /// Off.
        OFF = "off",
    }
}

config::directives! {
    /// Values of every kind.
    pub struct Kinds in Location {
        /// Text.
        root: Template = "html", [HTTP | SERVER | LOCATION] 1;
        /// Flag.
        etag: Flag = "on", [HTTP] FLAG;
        /// Number.
        requests: Number = "1000", [HTTP] 1;
        /// Size.
        buffer: Size = "8k", [HTTP] 1;
        /// Offset.
        body: Offset = "1g", [HTTP] 1;
        /// Milliseconds.
        timeout: Msec = "75s", [HTTP] 1;
        /// Seconds.
        inactive: Sec = "1d", [HTTP] 1;
        /// Buffers.
        buffers: Bufs = "4 8k", [HTTP] 2;
        /// A choice.
        compare: Compare = "exact", [HTTP] 1;
        /// A set.
        next: Next = "error timeout", [HTTP] 1..;
        /// A path.
        file: Option<PathText> = none, [HTTP] 1;
        /// Off or a path.
        log: OrOff<PathText> = "logs/a.log", [HTTP] 1;
        /// A keyword.
        return_ as "return": Option<Words> = none, [HTTP] 1..=2, inherit never;
        /// Replaced as a whole.
        header: List<Words> = none, [HTTP] 2;
        /// Added to.
        note: List<Template> = none, [HTTP] 1, inherit append;
        /// Optional lines.
        page: Option<List<Placed<Template>>> = none, [HTTP] 1;
    }
}

config::directives! {
    /// Another group.
    pub struct Other in Location {
        /// A number.
        other: Number = "1", [HTTP] 1;
    }
}

config::sections! {
    /// Both.
    struct Both {
        /// Kinds.
        kinds: Kinds,
        /// Other.
        other: Other,
    }
}

type Raw = <Both as Section>::Raw;

fn lines(text: &str) -> Vec<Directive> {
    parse_bytes(text.as_bytes()).unwrap().directives
}

fn level(text: &str, scope: &mut Scope) -> Result<Raw, Error> {
    let mut raw = Raw::default();
    for line in lines(text) {
        assert!(
            Both::set(&mut raw, &line, scope)?,
            "{line:?} is of no section"
        );
    }
    Ok(raw)
}

/// The values of the innermost of these levels.
fn settings(levels: &[&str]) -> Both {
    let mut scope = Scope::new();
    let mut raw = level(levels[0], &mut scope).unwrap();
    Both::fill(&mut raw, &mut scope).unwrap();
    for text in &levels[1..] {
        raw = Both::merge(&raw, level(text, &mut scope).unwrap());
    }
    Both::finish(raw, &mut scope).unwrap()
}

fn refused(text: &str) -> String {
    level(text, &mut Scope::new()).unwrap_err().to_string()
}

fn texts(list: &[Template]) -> Vec<String> {
    list.iter()
        .map(|text| String::from_utf8(text.source().to_vec()).unwrap())
        .collect()
}

#[test]
fn unset_values_have_their_defaults() {
    let Kinds {
        root,
        etag,
        requests,
        buffer,
        body,
        timeout,
        inactive,
        buffers,
        compare,
        next,
        file,
        log,
        ..
    } = Arc::unwrap_or_clone(settings(&[""]).kinds);
    assert_eq!(root.literal().unwrap(), "html");
    assert_eq!(
        (etag, requests, buffer, body),
        (true, Number(1000), Size(8192), Offset(1 << 30))
    );
    assert_eq!(
        (timeout, inactive, buffers),
        (
            Msec(75_000),
            Sec(86_400),
            Bufs {
                count: 4,
                size: 8192
            }
        )
    );
    assert_eq!(
        (compare, next),
        (Compare::Exact, Next::ERROR.or(Next::TIMEOUT))
    );
    assert_eq!(file, None);
    assert_eq!(log, OrOff::On(PathText("logs/a.log".into())));
    let kinds = settings(&[""]).kinds;
    assert!(
        kinds.return_.is_none()
            && kinds.header.is_empty()
            && kinds.note.is_empty()
            && kinds.page.is_none()
    );
}

#[test]
fn written_values_are_parsed() {
    let kinds = settings(&["root /srv; etag OFF; requests 5; buffer 1m; body 3; timeout 10ms; inactive 1y; buffers 2 1k;
        compare OFF; next off; file a; log off; return 204; header a b; header c d; note x; page p;"])
    .kinds;
    let kinds = Arc::unwrap_or_clone(kinds);
    assert_eq!(kinds.root.literal().unwrap(), "/srv");
    assert_eq!(
        (kinds.etag, kinds.requests, kinds.buffer, kinds.body),
        (false, Number(5), Size(1 << 20), Offset(3))
    );
    assert_eq!(
        (kinds.timeout, kinds.inactive),
        (Msec(10), Sec(365 * 86_400))
    );
    assert_eq!((kinds.compare, kinds.next), (Compare::Off, Next::OFF));
    assert_eq!(
        (kinds.file, kinds.log),
        (Some(PathText("a".into())), OrOff::Off)
    );
    assert_eq!((kinds.return_.unwrap().len(), kinds.header.len()), (1, 2));
    assert_eq!(kinds.header[1][0], "c");
}

#[test]
fn an_inner_level_has_its_own_value_else_the_outer_one_s() {
    let outer = "root a; etag off; requests 7;";
    let both = settings(&[outer, "requests 8;", "root b; other 2;"]);
    assert_eq!(both.kinds.root.literal().unwrap(), "b");
    assert!(!both.kinds.etag);
    assert_eq!(
        (both.kinds.requests, both.other.other),
        (Number(8), Number(2))
    );
}

#[test]
fn lines_are_replaced_as_a_whole_unless_they_are_added() {
    let outer = "header a 1; header b 2; note a; note b; page p;";
    let kept = settings(&[outer, ""]).kinds;
    assert_eq!(
        (kept.header.len(), kept.page.as_ref().unwrap().len()),
        (2, 1)
    );
    assert_eq!(texts(&kept.note), ["a", "b"]);
    let own = settings(&[outer, "", "header c 3; note c; page q; page r; page s;"]).kinds;
    assert_eq!((own.header.len(), own.page.as_ref().unwrap().len()), (1, 3));
    assert_eq!(texts(&own.note), ["a", "b", "c"]);
}

#[test]
fn inherit_never_is_not_inherited() {
    assert!(settings(&["return 204;", ""]).kinds.return_.is_none());
    assert!(
        settings(&["return 204;", "return 205;"])
            .kinds
            .return_
            .is_some()
    );
}

#[test]
fn a_second_line_is_refused_unless_the_directive_repeats() {
    assert_eq!(
        refused("root a;\nroot b;"),
        "\"root\" directive is duplicate in nginx.conf:2"
    );
    assert_eq!(
        refused("file a; file a;"),
        "\"file\" directive is duplicate in nginx.conf:1"
    );
    assert_eq!(
        refused("log off; log off;"),
        "\"log\" directive is duplicate in nginx.conf:1"
    );
}

#[test]
fn wrong_values_are_refused_in_nginx_s_words() {
    for (text, sentence) in [
        (
            "etag yes;",
            "invalid value \"yes\" in \"etag\" directive, it must be \"on\" or \"off\"",
        ),
        ("requests x;", "\"requests\" directive invalid number"),
        ("requests -1;", "\"requests\" directive invalid number"),
        ("requests '';", "\"requests\" directive invalid number"),
        ("buffer 1g;", "\"buffer\" directive invalid value"),
        ("buffer k;", "\"buffer\" directive invalid value"),
        ("body 1t;", "\"body\" directive invalid value"),
        ("timeout 1y;", "\"timeout\" directive invalid value"),
        ("inactive 1ms;", "\"inactive\" directive invalid value"),
        ("buffers 0 8k;", "\"buffers\" directive invalid value"),
        ("buffers 8 0;", "\"buffers\" directive invalid value"),
        ("compare maybe;", "invalid value \"maybe\""),
        ("next error never;", "invalid value \"never\""),
        ("root $;", "invalid variable name"),
    ] {
        assert_eq!(
            refused(text),
            format!("{sentence} in nginx.conf:1"),
            "{text}"
        );
    }
}

#[test]
fn the_wrong_argument_is_marked() {
    let error = level("next error tiemout;", &mut Scope::new()).unwrap_err();
    assert_eq!(error.hint(), Some("did you mean \"timeout\"?"));
    let span = error.place().unwrap().span;
    assert_eq!((span.start, span.end), (11, 18));
}

#[test]
fn a_word_given_twice_in_a_set_is_a_warning() {
    let mut scope = Scope::new();
    level("next error\n error;", &mut scope).unwrap();
    let warnings = scope.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0]
            .render(false)
            .starts_with("nginx: [warn] duplicate value \"error\" in nginx.conf:2\n")
    );
}

#[test]
fn slots_know_the_line_that_set_them() {
    let mut scope = Scope::new();
    let mut outer = level("\nroot a;", &mut scope).unwrap();
    Both::fill(&mut outer, &mut scope).unwrap();
    let kinds = outer.kinds.get().unwrap();
    let place = |slot: &DirectiveSlot<Template>| slot.place.as_ref().unwrap().to_string();
    assert_eq!(place(&kinds.root), "nginx.conf:2");
    assert!(kinds.etag.place.is_none() && kinds.etag.value == Some(true));
    let inner = Both::merge(&outer, level("\n\npage x;", &mut scope).unwrap());
    let kinds = inner.kinds.get().unwrap();
    assert_eq!(place(&kinds.root), "nginx.conf:2");
    let page = kinds.page.value.clone().unwrap().unwrap();
    assert_eq!(
        page[0].error("no such page").to_string(),
        "no such page in nginx.conf:3"
    );
}

#[test]
fn levels_without_lines_of_a_group_share_its_values() {
    let mut scope = Scope::new();
    let mut outer = level("root a; return 204;", &mut scope).unwrap();
    Both::fill(&mut outer, &mut scope).unwrap();
    let mut inner = |text: &str| {
        let raw = Both::merge(&outer, level(text, &mut scope).unwrap());
        // What they say later is theirs alone.
        let innermost = Both::merge(&raw, level("etag off;", &mut scope).unwrap());
        let both = [raw, innermost].map(|raw| Both::finish(raw, &mut scope).unwrap());
        both.map(|both| (both.kinds, both.other))
    };
    let ([one, one_inside], [two, _], [three, _]) = (inner(""), inner(""), inner("other 2;"));
    assert!(Arc::ptr_eq(&one.0, &two.0) && Arc::ptr_eq(&one.0, &three.0));
    assert!(Arc::ptr_eq(&one.1, &two.1) && !Arc::ptr_eq(&one.1, &three.1));
    assert!(Arc::ptr_eq(&one.1, &one_inside.1) && !Arc::ptr_eq(&one.0, &one_inside.0));
    assert!(one.0.etag && !one_inside.0.etag && one_inside.0.root.literal().unwrap() == "a");
    assert!(one.0.return_.is_none(), "it is never inherited");
    assert_eq!(three.1.other, Number(2));
}

#[test]
fn a_directive_of_no_section_is_left_to_others() {
    let mut raw = Raw::default();
    assert!(!Both::set(&mut raw, &lines("listen 80;")[0], &mut Scope::new()).unwrap());
}

#[test]
fn every_default_of_a_table_is_accepted_by_its_own_type() {
    let mut raw = Raw::default();
    Both::fill(&mut raw, &mut Scope::new()).unwrap();
    assert_eq!(
        Both::tables()
            .iter()
            .map(|table| table.entries.len())
            .sum::<usize>(),
        17
    );
}
