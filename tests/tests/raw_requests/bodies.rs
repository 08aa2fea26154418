//! Where a body ends: lengths, codings, chunks, trailers, and requests that end early.

use super::*;

/// As nginx reads it, and as RFC 9112 allows: a bare CR is refused or counts as a blank.
const BARE_CR: &str = "9112, 2.2: a bare CR before the end of a line is a blank";

/// What is no blank around `text`, but for that.
fn beside(text: &str) -> Vec<String> {
    let mut found = around(&list(NO_BLANKS), text);
    found.retain(|value| *value != format!("{text}\r"));
    found
}

#[test]
fn lengths() {
    let line = |value: &str| of_length(&format!("Content-Length:{value}"));
    let inside = list(NO_BLANKS).into_iter().map(|byte| format!("3{byte}3"));
    let numbers = list(
        "| |+3|-3|-0|0x3|3h|3.0|3e0|03 3|3 3|3\t3|3;|3;a=b|\"3\"|'3'|(3)|3_0|\u{b3}|three|NaN|3,|,3|3,3|3, 3|3,4|3 ,3|0,3|%33|=3|:3|3\\",
    );
    let large = list(
        "9223372036854775807|9223372036854775808|18446744073709551615|18446744073709551616|18446744073709551619|4294967299000000000000\
        |340282366920938463463374607431768211459|99999999999999999999999999999999999999999999999999",
    );
    let zeros = ["03", "003", "00000000000000000000000000000003"];
    let pairs = |second: &str| of_length(&format!("Content-Length: 3\r\n{second}"));
    Bench::start().run(&[
        class(
            "9110, 5.5: blanks around a length",
            Passed("abc"),
            each(around(&BLANKS, "3"), line),
        ),
        class(
            "9110, 5.5: tabs around a length",
            Passed("abc"),
            each(around(&TABS, "3"), line),
        )
        .nginx(Open),
        class(
            "9112, 6.3: what is no blank beside a length",
            Refused,
            each(beside("3"), line),
        ),
        class(
            BARE_CR,
            Passed("abc"),
            vec![line("3\r")],
        ),
        class(
            "9112, 6.3: what is no digit in a length",
            Refused,
            each(inside, line),
        ),
        class("9110, 8.6: no number", Refused, each(numbers, line)),
        class("9110, 8.6: no overflow", Refused, each(large, line)),
        class(
            "9110, 8.6: a decimal number",
            Passed("abc"),
            each(zeros, line),
        ),
        class(
            "9112, 6.3: several lengths",
            Refused,
            each(
                list("Content-Length: 3|content-length: 4|Content-Length: 0|Content-Length:|X: y\r\nContent-Length: 03"),
                pairs,
            ),
        ),
        class(
            "9110, 5.1: another name says no length",
            Passed("abc"),
            each(
                list("Content_Length: 30|Content-Lengt: 30|Content-Length2: 30|X-Content-Length: 30|Content.Length: 30"),
                pairs,
            ),
        ),
    ]);
}

fn coded(value: &str) -> String {
    of_coding(&format!("Transfer-Encoding:{value}"))
}

const OTHER_CODINGS: &str = "| |,|chunked,|,chunked|chunked,chunked|chunked, chunked|identity|gzip|gzip, chunked|chunked, gzip|identity, chunked\
    |chunked, identity|xchunked|chunkedx|chunked;q=1|chunked; a=b|\"chunked\"|'chunked'|chunk|x chunked|chunked x|%63hunked|chunked/1|:chunked|=chunked";

#[test]
fn codings() {
    let inside = list(NO_BLANKS)
        .into_iter()
        .map(|byte| format!("chu{byte}nked"));
    Bench::start().run(&[
        class(
            "9110, 5.5: blanks around a coding",
            Passed("abc"),
            each(around(&BLANKS, "chunked"), coded),
        ),
        class(
            "9110, 5.5: tabs around a coding",
            Passed("abc"),
            each(around(&TABS, "chunked"), coded),
        )
        .nginx(Open),
        class(
            "9112, 7: a coding in any case",
            Passed("abc"),
            each(list("CHUNKED|Chunked| cHUNKEd"), coded),
        ),
        class(
            "9112, 6.1: what is no blank beside a coding",
            Refused,
            each(beside("chunked"), coded),
        ),
        class(BARE_CR, Passed("abc"), vec![coded("chunked\r")]),
        class(
            "9112, 6.1: what is no letter in a coding",
            Refused,
            each(inside, coded),
        ),
        class(
            "9112, 6.1: another coding",
            Refused,
            each(list(OTHER_CODINGS), coded),
        ),
    ]);
}

#[test]
fn several_lines_that_say_where_a_body_ends() {
    let beside =
        |value: &str| of_coding(&format!("Content-Length: 13\r\nTransfer-Encoding:{value}"));
    let two = |second: &str| of_coding(&format!("Transfer-Encoding: chunked\r\n{second}"));
    let twice = "Transfer-Encoding: chunked|Transfer-Encoding: identity|Transfer-Encoding:|X: y\r\ntransfer-encoding: x";
    let both = "Content-Length: 13\r\nTransfer-Encoding: chunked|Transfer-Encoding: chunked\r\nContent-Length: 13\
        |Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 0|Content-Length: 3\r\nX: y\r\ntransfer-ENCODING: CHUNKED";
    let old = |line: &str| of_coding(line).replacen("HTTP/1.1", "HTTP/1.0", 1);
    let coding = "Transfer-Encoding: chunked|Connection: keep-alive\r\nTransfer-Encoding: chunked|Transfer-Encoding: chunked\r\nContent-Length: 3";
    let named = "Connection: transfer-encoding|Connection: Transfer-Encoding, host|Connection: host, content-length, x";
    Bench::start().run(&[
        class(
            "9112, 6.3: another coding beside a length",
            Refused,
            each(list(OTHER_CODINGS), beside),
        ),
        class("9112, 6.1: chunked once", Refused, each(list(twice), two)),
        class(
            "9112, 6.3: a coding and a length",
            Refused,
            each(list(both), of_coding),
        ),
        class(
            "9112, 6.1: a coding in HTTP/1.0",
            Refused,
            each(list(coding), old),
        ),
        class(
            "9110, 7.6.1: nobody takes these lines away",
            Passed("abc"),
            each(list(named), two),
        ),
    ]);
}

/// A size line, and what should follow it.
fn size(text: &str) -> String {
    chunked(&format!("{text}\r\nabc\r\n0\r\n\r\n"))
}

/// The last size line.
fn last(text: &str) -> String {
    chunked(&format!("3\r\nabc\r\n{text}\r\n\r\n"))
}

#[test]
fn sizes_of_chunks() {
    let zeros = list("03|003|0000000000000003|00000000000000000000000000000003");
    let wrong = list(
        "| 3|\t3|+3|-3|-0|0x3|0X3|3h|x3|g|3_0|3.0|3,3|3:|3=|\"3\"|\u{b3}|3\u{ff}|3\u{a0}|\x003|3\0|3\x0b|3\x0c|\x0b3|3\x08|3\x7f|3\r\
        |3\r;a|3;\r|3;a\0|3;a\r;b|;a|=3|3 3|3 x|3\t3|3 \x0b|3;a\nb",
    );
    let large = list(
        "8000000000000000|ffffffffffffffff|fffffffffffffffd|10000000000000003|100000000000000000000000000000003\
        |ffffffff00000000000000003|7fffffffffffffff|80000000000000000000000000000000000000000000000000000000000000003",
    );
    let extensions =
        list("|;a|;a=b|;a=\"b\"|;a=\"b;c\"|;a;b|;a=b;c=d| ;a=b|\t;a=b| ; a = b|;a=\u{e4}|;|;;|;a=");
    let fine: Vec<String> = extensions
        .iter()
        .flat_map(|text| [size(&format!("3{text}")), last(&format!("0{text}"))])
        .collect();
    Bench::start().run_both(vec![
        class("9112, 7.1.1: extensions are read over", Passed("abc"), fine),
        class(
            "9112, 7.1: a size in hexadecimal digits",
            Passed("abc"),
            each(zeros, size),
        ),
        class("9112, 7.1: no size", Refused, each(wrong, size)).nginx(Open),
        class(
            "9112, 7.1: no last size",
            Refused,
            each(list("00x|+0|-0|0x0| 0|0 0|0\0|0\x0b"), last),
        )
        .nginx(Open),
        class("9112, 7.1: no overflow", Refused, each(large, size)),
        class(
            "9112, 7.1.1: control bytes in extensions",
            Refused,
            each(list("3;\x0b|3;a\x01|3;a=\x7f|3;a=\"\x08\""), size),
        )
        .nginx(Open),
    ]);
}

/// Chunks, each of whose line ends is another one once.
fn ended() -> Vec<String> {
    let mut found = Vec::new();
    for end in list("\n|\r|\r\r\n|\n\r|\0|| \n|\x0b\r\n") {
        for which in 0..3 {
            let end = |at: usize| if at == which { end } else { "\r\n" };
            found.push(chunked(&format!("3{}abc{}0{}\r\n", end(0), end(1), end(2))));
        }
        if !end.is_empty() {
            found.push(chunked(&format!("3\r\nabc\r\n0\r\n{end}")));
        }
    }
    found
}

#[test]
fn ends_of_chunks() {
    let data = list(
        "2\r\nabc\r\n0\r\n\r\n|4\r\nabc\r\n0\r\n\r\n|1\r\nabc\r\n0\r\n\r\n|3\r\nabc0\r\n\r\n|3\r\nabc\r\n\r\n0\r\n\r\n\
        |3\r\nabcd\r\n0\r\n\r\n",
    );
    Bench::start().run_both(vec![
        class("9112, 7.1: the ends of lines", Refused, ended()),
        class(
            "9112, 7.1: data as long as its size",
            Refused,
            each(data, chunked),
        )
        .nginx(Open),
    ]);
}

#[test]
fn trailers() {
    let behind = |lines: &str| chunked(&format!("3\r\nabc\r\n0\r\n{lines}\r\n"));
    let fine = list(
        "T: x\r\n|T: x\r\nU: y\r\n|T:\r\n|T: \u{e4}\r\n|Content-Length: 30\r\n|Transfer-Encoding: chunked\r\n|Host: other\r\n\
        |Connection: close\r\n|Expect: 100-continue\r\n|N(: x\r\n|N_N: x\r\n|\u{ff}: x\r\n",
    );
    let wrong = list(
        "T\r\n|T x\r\n|: x\r\n| T: x\r\n|\tT: x\r\n|T : x\r\n|T: x\r\n folded\r\n|T: \0\r\n|T\0: x\r\n|T: x\ry\r\n|T: x\n|T: x\r\n\n\
        |\x01: x\r\n|GET /smuggled HTTP/1.1\r\n|T: x\r\nU\r\n",
    );
    Bench::start().run(&[
        class(
            "9110, 6.5.1: trailers are no headers",
            Passed("abc"),
            each(fine, behind),
        ),
        class(
            "9112, 7.1.2: what is no trailer",
            Refused,
            each(wrong, behind),
        )
        .nginx(Open),
    ]);
}

#[test]
fn a_request_that_ends_early_is_none() {
    let requests = [
        post("Content-Length: 3", "abc"),
        chunked("3;x\r\nabc\r\n0\r\nT: x\r\n\r\n"),
    ];
    let bench = Bench::start();
    for request in requests
        .iter()
        .flat_map(|request| [request.clone(), request.replacen("/c ", "/now/c ", 1)])
    {
        for end in 1..request.len() {
            let (statuses, text) = bench.ask(&bytes_of(&request[..end]), usize::MAX, true);
            let passed = bench.origin.take();
            assert!(passed.is_empty(), "{:?}: {passed:?}", &request[..end]);
            assert!(
                statuses.iter().all(|status| *status == 400),
                "{:?}: {text}",
                &request[..end]
            );
        }
    }
}
