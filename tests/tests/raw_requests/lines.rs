//! Request lines, header lines and their ends.

use super::*;

const PLAIN: &str = "POST /c HTTP/1.1\r\nHost: h.test\r\nN: x\r\nContent-Length: 3\r\n\r\n";

/// Requests with each of these lines, at every place of the head.
fn with<T: AsRef<str>>(wanted: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut found = Vec::new();
    for line in wanted {
        for at in 0..=4 {
            let mut lines = list("Host: h.test|A: b|Content-Length: 3|C: d");
            lines.insert(at, line.as_ref());
            found.push(format!(
                "POST /c HTTP/1.1\r\n{}\r\n\r\nabc",
                lines.join("\r\n")
            ));
        }
    }
    found
}

#[test]
fn header_lines() {
    let without_colon =
        "A b|Content-Length 30|Transfer-Encoding chunked|GET /smuggled HTTP/1.1|\x01";
    let odd = "N:|N:x|N:  x  |N: \u{e4}\u{ff}|N: x:y|N::x|N: \"x";
    Bench::start().run(&[
        class(
            "9112, 5: a line without a colon",
            Refused,
            with(list("A|Content-Length|Transfer-Encoding|(|\u{ff}")),
        )
        .nginx(Open),
        class(
            "9112, 5: words without a colon",
            Refused,
            with(list(without_colon)),
        ),
        class("9112, 5: no name", Refused, with(list(":|: x|:Host: x|::"))),
        class(
            "9112, 5.2: folded lines",
            Refused,
            with(list(" |\t| x|\tx: y| Content-Length: 30|  Host: x")),
        ),
        class(
            "9110, 5.5: NUL in values",
            Refused,
            with(list("N: \0|N: x\0|N: x\0y|N:\0x")),
        ),
        class("9110, 5.5: odd values", Passed("abc"), with(list(odd))),
    ]);
}

#[test]
fn bytes_of_header_lines() {
    let names = list("X|Content-Length|Transfer-Encoding|Host");
    let blanks = list(" |\t| \t|\0|\x08|\x0b|\x0c|\r|\x1c|\x1f|\x7f|\x02");
    let before_colon = names
        .iter()
        .flat_map(|name| blanks.iter().map(move |blank| format!("{name}{blank}: 3")));
    let controls = (1..0x20_u8)
        .chain([0x7f])
        .map(char::from)
        .filter(|c| !"\t\r\n".contains(*c));
    let in_names = controls.clone().map(|c| format!("N{c}N: x"));
    let in_values = controls.map(|c| format!("N: x{c}y"));
    let odd = "()<>@,;\\\"/[]?={}\u{80}\u{a0}\u{ff}"
        .chars()
        .flat_map(|c| [format!("{c}: x"), format!("N{c}: x"), format!("{c}N: x")]);
    Bench::start().run(&[
        class(
            "9112, 5.1: a blank before the colon",
            Refused,
            with(before_colon),
        ),
        class(
            "9110, 5.6.2: control bytes in names",
            Refused,
            with(in_names),
        ),
        class(
            "9110, 5.5: control bytes in values are kept",
            Passed("abc"),
            with(in_values),
        ),
        class(
            "9110, 5.6.2: a name that is no token is left out",
            Passed("abc"),
            with(odd),
        ),
    ]);
}

#[test]
fn ends_of_lines() {
    let is_in_line = |(at, _): &(usize, String)| {
        *at > 0 && !PLAIN[at - 1..].starts_with("\r\n") && !PLAIN[*at..].starts_with("\r\n")
    };
    let inside = |byte: &str| {
        at_each_place(PLAIN, byte)
            .into_iter()
            .filter(is_in_line)
            .filter(|(at, _)| PLAIN.as_bytes()[at - 1] != b'\n')
            .map(|(_, head)| head + "abc")
            .collect::<Vec<String>>()
    };
    let before_line: Vec<String> = at_each_place(PLAIN, "\r")
        .into_iter()
        .filter(|(at, _)| {
            // Behind the head it is the body's first byte.
            *at > 0
                && *at < PLAIN.len()
                && PLAIN.as_bytes()[at - 1] == b'\n'
                && !PLAIN[*at..].starts_with("\r\n")
        })
        .map(|(_, head)| head + "abc")
        .collect();
    let ends: Vec<usize> = PLAIN.match_indices("\r\n").map(|(at, _)| at).collect();
    let with_ends = |end: &str| -> Vec<String> {
        (1..1_u32 << ends.len())
            .map(|which| {
                let parts: Vec<&str> = PLAIN.split("\r\n").collect();
                let mut head = String::new();
                for (number, part) in parts[..ends.len()].iter().enumerate() {
                    head += part;
                    head += if which >> number & 1 == 1 {
                        end
                    } else {
                        "\r\n"
                    };
                }
                head + "abc"
            })
            .collect()
    };
    // Where the LF ends the head, the CR is the body's first byte.
    let mut lf_cr = with_ends("\n\r");
    lf_cr.retain(|text| !text.contains("\n\n\r") && !text.contains("\n\r\n\r"));
    let last = |end: &str| vec![format!("{}{end}abc", &PLAIN[..PLAIN.len() - 2])];
    Bench::start().run(&[
        class("9112, 2.2: a CR inside of a line", Refused, inside("\r")),
        class("9112, 2.2: a CR before a line", Refused, before_line),
        class("9110, 5.5: a NUL inside of a line", Refused, inside("\0")),
        class("9112, 5: an LF inside of a line", Refused, inside("\n")).nginx(Open),
        class(
            "9112, 2.2: LF may end a line",
            Passed("abc"),
            with_ends("\n"),
        ),
        class(
            "9112, 2.2: a CR alone ends no line",
            Refused,
            with_ends("\r"),
        ),
        class("9112, 2.2: LF CR ends no line", Refused, lf_cr),
        class(
            "9112, 2.2: another CR at the end of the head",
            Refused,
            [last("\r\r\n"), last("\r\r\r\n"), last(" \r\n")].concat(),
        ),
    ]);
}

/// A request with this line.
fn line(text: &str) -> String {
    format!("{text}\r\nHost: h.test\r\nContent-Length: 3\r\n\r\nabc")
}

#[test]
fn versions() {
    let version = |text: &str| line(&format!("POST /c {text}"));
    let refused = list(
        "HTTP/1.01|HTTP/1.10|HTTP/1.11|HTTP/01.1|HTTP/001.1|HTTP/1.|HTTP/.1|HTTP/1|HTTP/11|HTTP/1.1.|HTTP/1.1.1|HTTP/1,1|HTTP/1.1a\
        |HTTP/1.a|HTTP/a.1|HTTP/1.1\0|HTTP/1.1\x0b|HTTP/1.1\t|HTTP/1.1 x|HTTP/1.1 HTTP/1.1|HTTP/-1.1|HTTP/+1.1|HTTP/1.-1|HTTP/ 1.1\
        |HTTP /1.1|HTTP/1 .1|HTTP/1. 1|HTTP//1.1|HTTP\\1.1|http/1.1|Http/1.1|HTTP1.1|HTTP|HTTPS/1.1|HTTP/0.9|HTTP/0.0|HTTP/00.9\
        |HTTP/2.0|HTTP/2|HTTP/3.0|HTTP/9.9|HTTP/10.1|HTTP/1.65537|HTTP/65537.1|HTTP/4294967297.1|HTTP/18446744073709551617.1|ICY/1.1\
        |SIP/2.0|\u{ff}HTTP/1.1|H\0TTP/1.1|",
    );
    Bench::start().run(&[
        class(
            "9112, 2.3: no version of HTTP/1",
            Refused,
            each(refused, version),
        ),
        class(
            "9110, 2.5: a later minor version",
            Passed("abc"),
            each(["HTTP/1.2", "HTTP/1.9"], version),
        ),
    ]);
}

#[test]
fn targets() {
    let targets: Vec<String> = (0..0x20_u32)
        .chain([0x7f])
        .filter_map(char::from_u32)
        .filter(|c| !"\n".contains(*c))
        .flat_map(|c| {
            [
                format!("POST /{c}c HTTP/1.1"),
                format!("POST /c?{c} HTTP/1.1"),
                format!("POST http://h.test/{c} HTTP/1.1"),
            ]
        })
        .collect();
    let forms = list(
        "POST c HTTP/1.1|POST ?c HTTP/1.1|POST #c HTTP/1.1|POST * HTTP/1.1|POST h.test:80 HTTP/1.1|POST http:/c HTTP/1.1\
        |POST http:///c HTTP/1.1|POST ://h.test/c HTTP/1.1|POST //\\h.test HTTP/1.1 x|POST http://h.test:x/c HTTP/1.1\
        |POST http://h.test:99999/c HTTP/1.1|POST http://a b/c HTTP/1.1|POST /c /d HTTP/1.1|POST  HTTP/1.1|POST HTTP/1.1|POST\
        |/c HTTP/1.1|CONNECT /c HTTP/1.1|CONNECT h.test HTTP/1.1",
    );
    Bench::start().run(&[
        class(
            "9112, 3.2: control bytes in a target",
            Refused,
            each(targets, line),
        ),
        class("9112, 3.2: no target", Refused, each(forms, line)),
    ]);
}

#[test]
fn request_lines() {
    let methods: Vec<String> = (0..0x100_u32)
        .filter_map(char::from_u32)
        .filter(|c| !c.is_ascii_alphanumeric() && !"!#$%&'*+-.^_`|~\r\n ".contains(*c))
        .flat_map(|c| {
            [
                format!("P{c}ST /c HTTP/1.1"),
                format!("{c}POST /c HTTP/1.1"),
            ]
        })
        .collect();
    let between: Vec<String> = list("\t|\x0b|\x0c|\r|\0|\u{a0}| \t|\t ")
        .iter()
        .flat_map(|blank| {
            [
                format!("POST{blank}/c HTTP/1.1"),
                format!("POST /c{blank}HTTP/1.1"),
                format!("POST /c HTTP/1.1{blank}"),
            ]
        })
        .filter(|text| !text.ends_with('\r'))
        .collect();
    let before = list(" |\t|\0|\x0b|x\r\n| \r\n|\t\r\n|\u{ef}\u{bb}\u{bf}");
    Bench::start().run(&[
        class(
            "9112, 3: blanks around the words",
            Passed("abc"),
            each(
                list("POST /c HTTP/1.1 |POST /c HTTP/1.1    |POST  /c  HTTP/1.1|POST    /c HTTP/1.1  "),
                line,
            ),
        ),
        class(
            "9112, 3: what is no blank between the words",
            Refused,
            each(between, line),
        ),
        class(
            "9110, 5.6.2: a method that is no token",
            Refused,
            each(methods, line),
        ),
        class(
            "9112, 2.2: what is no request before the line",
            Refused,
            each(before, |text| format!("{text}{PLAIN}abc")),
        ),
        class(
            "9112, 2.2: empty lines before",
            Passed("abc"),
            each(list("\r\n|\r\n\r\n|\n|\n\r\n"), |text| {
                format!("{text}{PLAIN}abc")
            }),
        ),
    ]);
}
