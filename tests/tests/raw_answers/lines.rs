//! Status lines, header lines, and answers that are none.

use super::*;

#[test]
fn status_lines() {
    let line = |text: &str| format!("{text}\r\nContent-Length: 3\r\n\r\nabc");
    let wrong = "HTTP/1.1|HTTP/1.1 |HTTP/1.1 2|HTTP/1.1 20|HTTP/1.1 2000|HTTP/1.1 02000|HTTP/1.1 20 0 OK|HTTP/1.1 -200 OK|HTTP/1.1 +200 OK|HTTP/1.1 0x200 OK\
        |HTTP/1.1 200OK|HTTP/1.1 20O OK|HTTP/1.1 2e2 OK|HTTP/1.1 OK 200|HTTP/1.1 000 OK|HTTP/1.1 099 OK|HTTP/1.1\t200 OK|HTTP/1.1 \t200 OK|HTTP/1.1 200\tOK\
        |HTTP/1.1 \x0b200 OK|HTTP/1.1\x0b200 OK|HTTP/1.1\x00200 OK|HTTP/1.1 200\0 OK|HTTP/1.1_200 OK|HTTP/1.1200 OK|HTTP/1.1 200,200 OK|HTTP/1.1 \u{b2}00 OK\
        |HTTP/1 200 OK|HTTP/1. 200 OK|HTTP/.1 200 OK|HTTP/11 200 OK|HTTP/a.1 200 OK|HTTP/1.a 200 OK|HTTP/-1.1 200 OK|HTTP/1.-1 200 OK|HTTP/0.9 200 OK|HTTP/01.1 200 OK\
        |HTTP/ 1.1 200 OK|HTTP /1.1 200 OK|HTTP/1.1, 200 OK|http/1.1 200 OK|Http/1.1 200 OK|HTTPS/1.1 200 OK|HTTP/1000.1 200 OK|HTTP/4294967297.1 200 OK|ICY 200 OK|200 OK|OK| HTTP/1.1 200 OK|\tHTTP/1.1 200 OK\
        |\r\nHTTP/1.1 200 OK|\nHTTP/1.1 200 OK|\0HTTP/1.1 200 OK|\u{ef}\u{bb}\u{bf}HTTP/1.1 200 OK|x\r\nHTTP/1.1 200 OK|GET / HTTP/1.1|<html>|HTTP/1.1 200 O\rK|HTTP/1.1 200\r OK|HTTP/1.1\r200 OK";
    let fine = "HTTP/1.1 200|HTTP/1.1 200 |HTTP/1.1 200 OK|HTTP/1.1 200 Of course, we can|HTTP/1.1 200 \u{e4}\u{f6}|HTTP/1.0 200 OK|HTTP/1.2 200 OK|HTTP/1.1  200  OK|HTTP/1.1 200 201 OK";
    let versions = "HTTP/2.0 200 OK|HTTP/3.0 200 OK|HTTP/9.9 200 OK|HTTP/1.01 200 OK|HTTP/1.10 200 OK|HTTP/10.1 200 OK|HTTP/999.999 200 OK";
    let controls: Vec<String> = (0..0x20_u32)
        .chain([0x7f])
        .filter_map(char::from_u32)
        .filter(|c| !"\t\r\n".contains(*c))
        .map(|c| format!("HTTP/1.1 200 O{c}K"))
        .collect();
    Bench::start().run(&[
        class("9112, 4: no status line", Refused, each(list(wrong), line)).nginx(Any),
        class(
            "9112, 4: a status line",
            Passed(200, "abc"),
            each(list(fine), line),
        ),
        class(
            "9110, 2.5: other versions are read as HTTP/1",
            Passed(200, "abc"),
            each(list(versions), line),
        ),
        class(
            "9112, 4: control bytes in the reason",
            Passed(200, "abc"),
            each(controls, line),
        ),
        class(
            "9110, 15: a status of a known class",
            Passed(599, "abc"),
            each(["HTTP/1.1 599 X"], line),
        ),
        class(
            "9110, 15: a status of no class",
            Passed(999, "abc"),
            each(["HTTP/1.1 999 X"], line),
        ),
    ]);
}

/// Answers with each of these lines, at every place of the head.
fn with<T: AsRef<str>>(wanted: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut found = Vec::new();
    for line in wanted {
        for at in 0..=3 {
            let mut lines = list("A: b|Content-Length: 3|C: d");
            lines.insert(at, line.as_ref());
            found.push(format!(
                "HTTP/1.1 200 OK\r\n{}\r\n\r\nabc",
                lines.join("\r\n")
            ));
        }
    }
    found
}

#[test]
fn header_lines() {
    Bench::start().run(&[
        class(
            "9112, 5: a line without a colon is left out",
            Passed(200, "abc"),
            with(list("poison|(|\u{ff}")),
        )
        .nginx(Any),
        class(
            "9112, 6.3: a length without a colon",
            Refused,
            with(list("Content-Length|Transfer-Encoding")),
        ),
        class(
            "9112, 5: words without a colon",
            Refused,
            with(list("A b|Content-Length 30|HTTQ/1.1 200 OK|\x01")),
        ),
        class("9112, 5: no name", Refused, with(list(":|: x|:A: x|::"))),
        class(
            "9112, 5.2: folded lines",
            Refused,
            with(list(" |\t| x|\tx: y| Content-Length: 30")),
        ),
        class(
            "9110, 5.5: NUL and CR in values",
            Refused,
            with(list("N: \0|N: x\0|N: x\0y|N: x\ry|N: \rx")),
        ),
        class(
            "9112, 2.2: a bare CR ends no line",
            Refused,
            with(list("N: x\rM: y|N\r: x|\rN: x")),
        ),
        class(
            "9112, 2.2: LF may end a line",
            Passed(200, "abc"),
            vec!["HTTP/1.1 200 OK\nContent-Length: 3\n\nabc".into()],
        ),
    ]);
}

#[test]
fn bytes_of_header_lines() {
    let names = list("N|Content-Length|Transfer-Encoding");
    let blanks = list(" |\t|\0|\x0b|\r|\x08|\x7f");
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
        .map(|c| format!("N{c}N: poison"));
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
            Passed(200, "abc"),
            with(in_values),
        ),
        class(
            "9110, 5.6.2: a name that is no token is left out",
            Passed(200, "abc"),
            with(odd),
        )
        .nginx(Any),
    ]);
}

#[test]
fn answers_without_a_body_and_interim_ones() {
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let bodiless = |status: &str| format!("HTTP/1.1 {status}\r\nA: b\r\n\r\n{poison}");
    let fine = answer("Content-Length: 3", "abc");
    let interim = "HTTP/1.1 100 Continue\r\n\r\n|HTTP/1.1 102 Processing\r\nA: b\r\n\r\n|HTTP/1.1 103 Early Hints\r\nLink: </poison>\r\n\r\n|HTTP/1.1 199 X\r\n\r\n\
        |HTTP/1.1 100 Continue\r\nContent-Length: 300\r\n\r\n|HTTP/1.1 100 Continue\r\nTransfer-Encoding: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    // A 101 is passed on, and ends the connection (behaviour/proxy_answers).
    let wrong = "HTTP/1.1 100 Continue\r\n: x\r\n\r\n|HTTP/1.1 100 Continue\r\nA b\r\n\r\n|HTTP/1.1 100 Continue\r\n\r\npoison\r\n\r\n";
    Bench::start().run(&[
        class(
            "9110, 15.3.5: nothing is behind a 204",
            Passed(204, ""),
            vec![bodiless("204 No Content")],
        )
        .nginx(Any),
        class(
            "9110, 15.4.5: nothing is behind a 304",
            Passed(304, ""),
            vec![bodiless("304 Not Modified")],
        )
        .nginx(Any),
        class(
            "9110, 15.2: interim answers are none",
            Passed(200, "abc"),
            each(list(interim), |text| format!("{text}{fine}")),
        )
        .nginx(Any),
        class(
            "9110, 15.2: no interim answers",
            Refused,
            each(list(wrong), |text| format!("{text}{fine}")),
        )
        .nginx(Any),
        class(
            "9112, 8: no answer",
            Refused,
            (0..fine.find("\r\n\r\n").expect("a head") + 4)
                .map(|end| fine[..end].to_owned())
                .collect(),
        )
        .nginx(Any),
    ]);
}
