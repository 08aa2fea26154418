//! An upstream that is reached over TLS by way of a variable: one warning when the configuration is read, since each
//! such request is answered 500 as long as TLS to servers is not built.
//!
//! Not here: URLs that are written out (`url`); they are refused. Invariant: nothing is decided here, since the value of
//! a variable is known only when a request is passed on.

use std::collections::HashSet;

use config::{Directive, Error, Problem, Tree, known};

const HTTPS: &[u8] = b"https://";

/// The warning at the first `proxy_pass` that may lead to an HTTPS server; `blocks` define variables (`map`).
#[must_use]
pub fn warning(tree: &Tree, blocks: &[&str]) -> Option<Error> {
    let mut secure = HashSet::new();
    tree.each(&mut |directive| {
        secure.extend(makes_https(directive, blocks));
    });
    let mut first = None;
    tree.each(&mut |directive| {
        if first.is_none() && directive.name == "proxy_pass" && may_ask(directive, &secure) {
            let problem = Problem::new("https protocol requires SSL support").at(0);
            let told = known::missing::of("http_proxy", "proxy_ssl_");
            let hint = told.map_or_else(String::new, |missing| missing.sentence());
            let hint = format!("a request that goes to https:// here is answered by 500; {hint}");
            first = Some(directive.warning(&problem.hint_that(hint)));
        }
    });
    first
}

/// The variable that is assigned such a URL here.
fn makes_https(directive: &Directive, blocks: &[&str]) -> Option<Vec<u8>> {
    let value = |directive: &Directive, at: usize| {
        directive
            .args
            .get(at)
            .is_some_and(|word| is_https(word.bytes()))
    };
    let is_block = blocks.iter().any(|name| directive.name == **name);
    let variable = match is_block {
        true if directive.children().iter().any(|line| value(line, 0)) => directive.args.last(),
        false if directive.name == "set" && value(directive, 1) => directive.args.first(),
        _ => None,
    };
    variable_of(variable?.bytes())
}

fn may_ask(pass: &Directive, secure: &HashSet<Vec<u8>>) -> bool {
    let Some(url) = pass.args.first().map(|word| word.bytes()) else {
        return false;
    };
    is_https(url) || variable_of(url).is_some_and(|name| secure.contains(&name))
}

fn is_https(text: &[u8]) -> bool {
    let start = text.get(..HTTPS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(HTTPS))
}

/// The variable at the start of a text, in lower case.
fn variable_of(text: &[u8]) -> Option<Vec<u8>> {
    let name = text.strip_prefix(b"$")?;
    let name = name.strip_prefix(b"{").unwrap_or(name);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let end = name
        .iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(name.len());
    Some(name[..end].to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Option<usize> {
        let tree = config::parse_bytes(text.as_bytes()).expect("parses");
        let warning = warning(&tree, &["map"])?;
        assert_eq!(warning.sentence(), "https protocol requires SSL support");
        warning
            .place()
            .map(|place| place.text.line_of(place.span.start))
    }

    #[test]
    fn one_warning_where_https_comes_by_a_variable() {
        for (text, expected) in [
            ("set $x https://a;\nproxy_pass $x;\nproxy_pass $x;", Some(2)),
            ("proxy_pass ${X}/b;\nset $x HTTPS://a;", Some(1)),
            (
                "map $uri $m { default http://a; /b https://b; }\nproxy_pass $m;",
                Some(2),
            ),
            ("a { set $y https://a; b {\nproxy_pass $y$uri; } }", Some(2)),
            ("\nproxy_pass https://$host;", Some(2)),
            (
                "set $x http://a; proxy_pass $x; proxy_pass http://$host;",
                None,
            ),
            ("set $x https://a; proxy_pass $xy; return 302 $x;", None),
        ] {
            assert_eq!(line(text), expected, "{text}");
        }
    }
}
