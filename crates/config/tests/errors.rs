//! Messages for wrong configurations: nginx's sentence and line first, then the excerpt and the hint.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use config::{Grammar, List, Section, Template, TextSource, load_checked};

config::directives! {
    /// Files.
    pub struct Files in Location {
        /// Root.
        root: Template = "html", [HTTP | SERVER | LOCATION | LOCATION_IF] 1;
        /// Index.
        index: List<config::Words> = "index.html", [HTTP | SERVER | LOCATION] 1..;
        /// Etag.
        etag: config::Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}

config::blocks! {
    /// Blocks.
    fn blocks in Main {
        /// Http.
        "http": [MAIN] 0 => HTTP;
        /// Server.
        "server": [HTTP] 0 => SERVER;
        /// Server of an upstream.
        "server": [UPSTREAM] 1..;
        /// Upstream.
        "upstream": [HTTP] 1 => UPSTREAM;
        /// Location.
        "location": [SERVER | LOCATION] 1..=2 => LOCATION;
        /// If.
        "if": [SERVER] 1.. => SERVER_IF;
        /// If.
        "if": [LOCATION] 1.. => LOCATION_IF;
        /// Types.
        "types": [HTTP | SERVER | LOCATION] 0 => LINES;
    }
}

struct One<'a>(&'a str);

impl TextSource for One<'_> {
    fn read(&mut self, _path: &Path) -> std::io::Result<Vec<u8>> {
        Ok(self.0.as_bytes().to_vec())
    }

    fn glob(&mut self, _pattern: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
        Ok(Vec::new())
    }
}

fn check(text: &str) -> Result<Vec<config::Error>, config::Error> {
    let grammar = Grammar::new(Files::tables().into_iter().chain([blocks()]));
    load_checked(Path::new("/n.conf"), None, &mut One(text), &grammar).map(|(_, warnings)| warnings)
}

fn refused(text: &str) -> (String, String) {
    let error = check(text).unwrap_err();
    (
        error.to_string(),
        error.hint().unwrap_or_default().to_owned(),
    )
}

fn sentence(text: &str) -> String {
    refused(text).0
}

#[test]
fn a_correct_configuration_gives_no_message() {
    let text = "http { root a; types { a/b c; 'x y' z; } upstream u { server a; } server { if ($a) { } location = / {
        location ~ x { if ($a) { root b; } } index a b c; etag off; } } }";
    assert_eq!(check(text).unwrap(), []);
}

#[test]
fn an_unknown_directive_gets_a_suggestion() {
    assert_eq!(
        refused("http {\n  rooot a;\n}"),
        (
            "unknown directive \"rooot\" in /n.conf:2".into(),
            "did you mean \"root\"?".into()
        )
    );
    assert_eq!(refused("banana_split a;").1, "");
    assert_eq!(
        sentence("Http { }"),
        "unknown directive \"Http\" in /n.conf:1"
    );
    assert_eq!(
        sentence("http { \"\" a; }"),
        "unknown directive \"\" in /n.conf:1"
    );
}

#[test]
fn a_misplaced_directive_gets_its_contexts_listed() {
    assert_eq!(
        refused("root a;"),
        (
            "\"root\" directive is not allowed here in /n.conf:1".into(),
            "allowed in: http, server, location, if in location".into()
        )
    );
    assert_eq!(
        sentence("http { server { if ($a) { root b; } } }"),
        "\"root\" directive is not allowed here in /n.conf:1"
    );
    assert_eq!(
        sentence("http { server { server { } } }"),
        "\"server\" directive is not allowed here in /n.conf:1"
    );
    assert_eq!(
        sentence("http { daemon off; }"),
        "\"daemon\" directive is not allowed here in /n.conf:1"
    );
}

#[test]
fn a_block_and_a_semicolon_are_told_apart() {
    assert_eq!(
        sentence("http;"),
        "directive \"http\" has no opening \"{\" in /n.conf:1"
    );
    assert_eq!(
        sentence("http { root a {\n} }"),
        "directive \"root\" is not terminated by \";\" in /n.conf:1"
    );
    assert_eq!(
        sentence("http { types {\n a {\n } } }"),
        "unexpected \"{\" in /n.conf:2"
    );
    assert_eq!(
        sentence("include a { }"),
        "directive \"include\" is not terminated by \";\" in /n.conf:1"
    );
}

#[test]
fn the_number_of_arguments_is_checked_last() {
    assert_eq!(
        refused("http { root; }"),
        (
            "invalid number of arguments in \"root\" directive in /n.conf:1".into(),
            "it takes 1 argument, not 0".into()
        )
    );
    assert_eq!(
        sentence("http { index; }"),
        "invalid number of arguments in \"index\" directive in /n.conf:1"
    );
    assert_eq!(
        sentence("http { etag on off; }"),
        "invalid number of arguments in \"etag\" directive in /n.conf:1"
    );
    assert_eq!(
        sentence("include;"),
        "invalid number of arguments in \"include\" directive in /n.conf:1"
    );
    assert_eq!(
        sentence("root a b;"),
        "\"root\" directive is not allowed here in /n.conf:1"
    );
    assert_eq!(
        sentence("http x;"),
        "directive \"http\" has no opening \"{\" in /n.conf:1"
    );
}

#[test]
fn a_missing_semicolon_is_found_before_the_swallowed_line() {
    let error = check("http {\n    root a\n    index b;\n}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid number of arguments in \"root\" directive in /n.conf:3"
    );
    assert_eq!(
        error.hint(),
        Some("is a \";\" missing before \"index\", at the end of line 2?")
    );
    assert_eq!(error.place().unwrap().to_string(), "/n.conf:3");
    let (_, hint) = refused("http {\n    root a\n    server {\n }\n}");
    assert_eq!(
        hint,
        "is a \";\" missing before \"server\", at the end of line 2?"
    );
}

#[test]
fn the_line_is_that_of_the_directive_s_end_as_in_nginx() {
    assert_eq!(
        sentence("http {\n root\n  a\n  b\n  ;\n}"),
        "invalid number of arguments in \"root\" directive in /n.conf:5"
    );
    assert_eq!(
        sentence("http\n{\n rooot\n a;\n}"),
        "unknown directive \"rooot\" in /n.conf:4"
    );
}

#[test]
fn the_first_error_in_the_text_is_reported() {
    assert_eq!(
        sentence("http { rooot a;"),
        "unknown directive \"rooot\" in /n.conf:1"
    );
    assert_eq!(
        sentence("http { root a; "),
        "unexpected end of file, expecting \"}\" in /n.conf:1"
    );
    assert_eq!(
        sentence("http { root a b; } }"),
        "invalid number of arguments in \"root\" directive in /n.conf:1"
    );
    assert_eq!(
        sentence("http { root a; } } rooot;"),
        "unexpected \"}\" in /n.conf:1"
    );
}

#[test]
fn a_directive_of_nginx_that_is_not_built_is_refused_as_such() {
    assert_eq!(
        sentence("http { server { location / { fastcgi_pass a; } } }"),
        "\"fastcgi_pass\" directive of nginx is not built yet in /n.conf:1"
    );
    assert_eq!(
        sentence("http { perl_modules a; }"),
        "\"perl_modules\" directive of nginx is not supported in /n.conf:1"
    );
    assert_eq!(
        sentence("http { fastcgi_pass; }"),
        "\"fastcgi_pass\" directive is not allowed here in /n.conf:1"
    );
}

#[test]
fn a_switch_that_is_not_built_may_be_off() {
    assert_eq!(check("http { gzip off; }").unwrap(), []);
    for text in ["gzip on;", "auth_basic off;", "gzip off off;"] {
        assert!(check(&format!("http {{ {text} }}")).is_err(), "{text}");
    }
}

#[test]
fn a_directive_whose_purpose_is_met_gives_no_warning() {
    let text =
        "http { types_hash_max_size 1; gzip_buffers 16 8k; server { postpone_output 1460; } }";
    assert_eq!(check(text).unwrap(), []);
    assert_eq!(
        sentence("http { types_hash_max_size; }"),
        "invalid number of arguments in \"types_hash_max_size\" directive in /n.conf:1"
    );
}

#[test]
fn a_directive_that_is_ignored_gives_one_warning() {
    let warnings =
        check("http {\n http2_push_preload on;\n server { http2_push_preload on; } }").unwrap();
    let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with("\"http2_push_preload\" directive is ignored: "),
        "{lines:?}"
    );
    assert!(lines[0].ends_with(" in /n.conf:2"), "{lines:?}");
    assert!(warnings[0].render(false).starts_with("freewheel: [warn] "));
}

#[test]
fn the_excerpt_marks_the_word_and_the_hint_stands_below() {
    let shown = check("http {\n    rooot /srv;\n}")
        .unwrap_err()
        .render(false);
    assert_eq!(
        shown,
        "nginx: [emerg] unknown directive \"rooot\" in /n.conf:2\n  \
           |\n\
         2 |     rooot /srv;\n  \
           |     ^^^^^\n  \
           |\n  \
           = help: did you mean \"root\"?\n"
    );
}

#[test]
fn an_excerpt_of_a_very_long_line_stays_short() {
    let text = format!(
        "http {{ server {{ }} {} rooot {}; }}",
        " ".repeat(9000),
        "y ".repeat(9000)
    );
    let shown = check(&text).unwrap_err().render(false);
    assert!(
        shown.contains("rooot") && shown.contains("^^^^^"),
        "{shown}"
    );
    assert!(shown.len() < 2000, "{}", shown.len());
}

#[test]
fn an_excerpt_of_bytes_that_are_not_utf8_is_still_drawn() {
    let error = config::parse_bytes(b"\xff\xfe \"\xff\"x;").unwrap_err();
    assert!(error.render(false).contains("unexpected \"x\""));
    assert!(error.render(true).contains("unexpected \"x\""));
}

config::blocks! {
    /// As nginx has them, but for two.
    fn nearly_nginx in Main {
        /// As nginx.
        "daemon": [MAIN] FLAG;
        /// As nginx, in one of its two modules.
        "map": [HTTP] 2 => LINES;
        /// Too many places.
        "pid": [MAIN | HTTP] 1;
        /// Too few arguments.
        "user": [MAIN] 1;
        /// Not of nginx.
        "loop_watch": [MAIN] 1;
    }
}

#[test]
fn differences_from_nginx_are_listed() {
    let found = config::differences(&[nearly_nginx()]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], "pid: nginx has it in main, we in main, http");
    assert!(found[1].starts_with("user: nginx takes "), "{found:?}");
}
