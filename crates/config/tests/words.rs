//! How bytes become words and blocks: nginx's tokenizer, oddities included.
#![allow(clippy::unwrap_used, reason = "tests")]

use config::{Directive, Error, parse_bytes};
use proptest::prelude::*;

/// The tree in a short form: `name arg,arg{ … }`, with every word between bars.
fn shape(text: &[u8]) -> String {
    fn draw(directives: &[Directive]) -> String {
        let one = |directive: &Directive| {
            let words = std::iter::once(&directive.name).chain(&directive.args);
            let words: Vec<_> = words
                .map(|word| word.bytes().escape_ascii().to_string())
                .collect();
            let block = directive
                .block
                .as_deref()
                .map(|block| format!("{{{}}}", draw(block)));
            format!("|{}|{}", words.join("|"), block.unwrap_or_default())
        };
        directives.iter().map(one).collect::<Vec<_>>().join(" ")
    }
    draw(&parse_bytes(text).unwrap().directives)
}

fn refused(text: &[u8]) -> String {
    parse_bytes(text).unwrap_err().to_string()
}

#[test]
fn words_end_at_white_space_semicolon_and_brace() {
    assert_eq!(shape(b"a b\tc\r\nd;e{f;}g;"), "|a|b|c|d| |e|{|f|} |g|");
    assert_eq!(shape(b""), "");
    assert_eq!(shape(b" \n# only a comment"), "");
    assert_eq!(shape(b"a{b{c;}}"), "|a|{|b|{|c|}}");
}

#[test]
fn quotes_hold_what_would_end_a_word() {
    assert_eq!(shape(br#"a "b c;{}#" 'd "e"';"#), r#"|a|b c;{}#|d \"e\"|"#);
    assert_eq!(shape(b"a \"\" '';"), "|a|||");
    assert_eq!(shape(b"\"a b\" c;"), "|a b|c|");
    assert_eq!(shape(b"a \"b\nc\";"), r"|a|b\nc|");
    assert_eq!(shape(b"a \"b\"{c;}"), "|a|b|{|c|}");
}

#[test]
fn a_quote_inside_a_word_is_an_ordinary_byte() {
    assert_eq!(shape(br#"a b"c d'e f";"#), r#"|a|b\"c|d\'e|f\"|"#);
}

#[test]
fn a_closing_parenthesis_may_follow_a_quote() {
    assert_eq!(shape(br#"if ($a = "b") {c;}"#), "|if|($a|=|b|)|{|c|}");
}

#[test]
fn six_escapes_are_replaced_and_every_other_backslash_stays() {
    assert_eq!(shape(br#"a \"\'\\ \t\r\n;"#), r#"|a|\"\'\\|\t\r\n|"#);
    assert_eq!(shape(br#"a "\"\'\\\t\r\n";"#), r#"|a|\"\'\\\t\r\n|"#);
    assert_eq!(
        shape(br"a b\ c\;d\{e \.php$ \d;"),
        r"|a|b\\ c\\;d\\{e|\\.php$|\\d|"
    );
    assert_eq!(shape(br"\include x;"), r"|\\include|x|");
    assert_eq!(shape(br"a \#b;"), r"|a|\\#b|");
}

#[test]
fn a_brace_behind_a_dollar_opens_no_block() {
    assert_eq!(shape(b"a ${b}c d${e}f;"), "|a|${b}c|d${e}f|");
    assert_eq!(shape(b"a ${{b;"), "|a|${{b|");
    assert_eq!(shape(b"a $b{c;}"), "|a|$b|{|c|}");
    assert_eq!(shape(br"a $\{b;"), r"|a|$\\{b|");
}

#[test]
fn a_closing_brace_or_hash_inside_a_word_belongs_to_it() {
    assert_eq!(shape(b"a b}c d#e;"), "|a|b}c|d#e|");
    assert_eq!(shape(b"a #b;\nc;"), "|a|c|");
    assert_eq!(shape(b"a{b};}"), "|a|{|b}|}");
}

#[test]
fn bytes_that_are_not_utf8_are_kept() {
    assert_eq!(shape(b"a \xff\x00\xc3;"), r"|a|\xff\x00\xc3|");
    let tree = parse_bytes(b"a \xff;").unwrap();
    assert_eq!(&tree.directives[0].args[0].bytes()[..], b"\xff");
}

#[test]
fn wrong_punctuation_is_refused_in_nginx_s_words() {
    for (text, sentence) in [
        (&b";"[..], "unexpected \";\" in nginx.conf:1"),
        (b"a;\n;", "unexpected \";\" in nginx.conf:2"),
        (b"{", "unexpected \"{\" in nginx.conf:1"),
        (b"}", "unexpected \"}\" in nginx.conf:1"),
        (b"a {\n b }", "unexpected \"}\" in nginx.conf:2"),
        (b"a { }\n}", "unexpected \"}\" in nginx.conf:2"),
        (b"a \"b\"c;", "unexpected \"c\" in nginx.conf:1"),
        (b"a 'b'\"c\";", "unexpected \"\"\" in nginx.conf:1"),
        (b"a \"b\"};", "unexpected \"}\" in nginx.conf:1"),
        (
            b"a",
            "unexpected end of file, expecting \";\" or \"}\" in nginx.conf:1",
        ),
        (
            b"a \n\n",
            "unexpected end of file, expecting \";\" or \"}\" in nginx.conf:3",
        ),
        (
            b"a 'b;\n}\n",
            "unexpected end of file, expecting \";\" or \"}\" in nginx.conf:3",
        ),
        (
            b"a b\\",
            "unexpected end of file, expecting \";\" or \"}\" in nginx.conf:1",
        ),
        (
            b"a \"b\"",
            "unexpected end of file, expecting \";\" or \"}\" in nginx.conf:1",
        ),
        (
            b"a {\n b;\n",
            "unexpected end of file, expecting \"}\" in nginx.conf:3",
        ),
    ] {
        assert_eq!(
            refused(text),
            sentence,
            "{:?}",
            text.escape_ascii().to_string()
        );
    }
}

#[test]
fn a_word_is_bounded_as_nginx_bounds_it() {
    let word = |length: usize, quote: &str| format!("a;\nb {quote}{}{quote}", "x".repeat(length));
    let length = |text: String| {
        parse_bytes(text.as_bytes()).unwrap().directives[1].args[0]
            .bytes()
            .len()
    };
    let started = "too long parameter \"xxxxxxxxxx...\" started in nginx.conf:2";
    assert_eq!(length(word(4095, "") + ";"), 4095);
    assert_eq!(refused((word(4096, "") + ";").as_bytes()), started);
    assert_eq!(length(word(4094, "") + " ;"), 4094);
    assert_eq!(refused((word(4095, "") + " ;").as_bytes()), started);
    assert_eq!(length(word(4094, "'") + ";"), 4094);
    assert_eq!(refused((word(4095, "'") + ";").as_bytes()), started);
    assert_eq!(
        refused((word(4096, "'") + ";").as_bytes()),
        "too long parameter, probably missing terminating \"'\" character in nginx.conf:2"
    );
    assert_eq!(
        shape(format!("#{}\na;", "x".repeat(9000)).as_bytes()),
        "|a|"
    );
    assert_eq!(
        shape(format!("a{}b;", " ".repeat(9000)).as_bytes()),
        "|a|b|"
    );
}

#[test]
fn blocks_are_bounded_in_depth() {
    let nested = |depth: usize| [b"a{".repeat(depth), b"}".repeat(depth)].concat();
    assert!(parse_bytes(&nested(config::BLOCKS_DEEP_MAX)).is_ok());
    assert_eq!(
        refused(&nested(config::BLOCKS_DEEP_MAX + 1)),
        "too deep blocks, there may be 100 in nginx.conf:1"
    );
}

#[test]
fn words_of_a_directive_are_bounded() {
    let line = |words: usize| [b"a ".repeat(words), b";".to_vec()].concat();
    assert!(parse_bytes(&line(config::WORDS_MAX)).is_ok());
    assert!(refused(&line(config::WORDS_MAX + 1)).starts_with("too many words in one directive"));
}

/// Writes words so that the tokenizer reads the same words again.
fn written(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words {
        out.push(b'"');
        for byte in word {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        out.extend_from_slice(b"\" ");
    }
    out.push(b';');
    out
}

/// Bytes that the grammar is made of, and some others.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b' '),
        Just(b'\n'),
        Just(b';'),
        Just(b'{'),
        Just(b'}'),
        Just(b'"'),
        Just(b'\''),
        Just(b'\\'),
        Just(b'$'),
        Just(b'#'),
        Just(b')'),
        Just(b't'),
        any::<u8>()
    ];
    prop::collection::vec(piece, 0..200)
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_with_a_place(text in soup()) {
        if let Err(error) = parse_bytes(&text) {
            let error: Error = error;
            let place = error.place().unwrap();
            prop_assert!(place.span.end as usize <= text.len().max(place.span.start as usize));
            let shown = error.render(false);
            let first = shown.lines().next().unwrap();
            prop_assert!(first.starts_with("nginx: [emerg] "));
        }
    }

    #[test]
    fn quoted_words_come_back_as_they_were(
        words in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..5),
    ) {
        prop_assume!(words[0] != b"include");
        let tree = parse_bytes(&written(&words)).unwrap();
        let line = &tree.directives[0];
        let read: Vec<Vec<u8>> =
            std::iter::once(&line.name).chain(&line.args).map(|word| word.bytes().to_vec()).collect();
        prop_assert_eq!(read, words);
    }

    #[test]
    fn a_word_s_place_holds_its_bytes(text in soup()) {
        if let Ok(tree) = parse_bytes(&text) {
            for line in &tree.directives {
                let place = line.name.place();
                let marked = &text[place.span.start as usize..place.span.end as usize];
                let quotes = 2 * usize::from(line.name.is_quoted());
                prop_assert!(marked.len() >= line.name.bytes().len() + quotes);
            }
        }
    }
}
