//! Where a body ends: lengths, codings, chunks.

use super::*;

#[test]
fn lengths() {
    let line = |value: &str| answer(&format!("Content-Length:{value}"), "abc");
    let inside: Vec<String> = list(NO_BLANKS)
        .iter()
        .map(|byte| format!("3{byte}3"))
        .collect();
    let numbers = "| |+3|-3|-0|0x3|3h|3.0|3e0|03 3|3 3|3\t3|3;|3;a=b|\"3\"|'3'|3_0|\u{b3}|three|3,|,3|3,3|3, 3|3,4|0,3|%33|9223372036854775808|18446744073709551615\
        |18446744073709551619|340282366920938463463374607431768211459|99999999999999999999999999999999999";
    let second = |line: &str| answer(&format!("Content-Length: 3\r\n{line}"), "abc");
    let other = "Content_Length: 30|Content-Lengt: 30|Content-Length2: 30|X-Content-Length: 30";
    Bench::start().run(&[
        class("9110, 5.5: blanks around a length", Passed(200, "abc"), each(around(&BLANKS, "3"), line)).nginx(Any),
        class("9110, 8.6: a decimal number", Passed(200, "abc"), each(list("3|03|0000000000000000000000003"), line)),
        class("9112, 6.3: what is no blank beside a length", Refused, each(around(&list(NO_BLANKS), "3"), line)),
        class("9112, 2.2: a CR is a blank, or an error", Refused, each(["\r3", "\r 3", " \r3 "], line)),
        class("9112, 2.2: CRs before the LF are blanks", Passed(200, "abc"), each(["3\r", "3\r\r", "3 \r"], line)),
        class("9112, 6.3: what is no digit in a length", Refused, each(inside, line)),
        class("9112, 6.3: no number", Refused, each(list(numbers), line)),
        class("9112, 6.3: several lengths", Refused, each(list("Content-Length: 3|content-length: 4|Content-Length: 0|Content-Length:|A: b\r\nContent-Length: 03"), second)),
        class("9110, 5.1: another name says no length", Passed(200, "abc"), each(list(other), second)),
        class("9112, 8: shorter than said", Cut, each(list("4|300|9223372036854775807"), line)),
        class("9112, 6.3: more than said", Passed(200, "abc"), each(list("poison|HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"), |more| second("A: b") + more)),
    ]);
}

const CHUNK: &str = "3\r\nabc\r\n0\r\n\r\n";

const OTHER_CODINGS: &str = "| |,|chunked,|,chunked|chunked,chunked|chunked, chunked|identity|gzip|gzip, chunked|chunked, gzip|identity, chunked|xchunked\
    |chunkedx|chunked;q=1|\"chunked\"|'chunked'|chunk|x chunked|:chunked";

#[test]
fn codings() {
    let line = |value: &str| answer(&format!("Transfer-Encoding:{value}"), CHUNK);
    let inside = list(NO_BLANKS)
        .into_iter()
        .map(|byte| format!("chu{byte}nked"));
    let blanks = around(&list(NO_BLANKS), "chunked");
    Bench::start().run(&[
        class(
            "9110, 5.5: blanks around a coding",
            Passed(200, "abc"),
            each(around(&BLANKS, "chunked"), line),
        )
        .nginx(Any),
        class(
            "9112, 7: a coding in any case",
            Passed(200, "abc"),
            each(list("CHUNKED|Chunked| cHUNKEd"), line),
        ),
        class(
            "9112, 6.3: what is no blank beside a coding",
            Refused,
            each(blanks, line),
        ),
        class(
            "9112, 6.3: what is no letter in a coding",
            Refused,
            each(inside, line),
        ),
        class(
            "9112, 6.3: another coding",
            Refused,
            each(list(OTHER_CODINGS), line),
        ),
        class(
            "9112, 2.2: a CR is a blank, or an error",
            Refused,
            each(list("\rchunked|\r chunked|chu\rnked"), line),
        ),
        class(
            "9112, 2.2: CRs before the LF are blanks",
            Passed(200, "abc"),
            each(list("chunked\r|chunked\r\r|chunked \r"), line),
        ),
    ]);
}

#[test]
fn several_lines_that_say_where_a_body_ends() {
    let beside = |value: &str| {
        answer(
            &format!("Content-Length: 13\r\nTransfer-Encoding:{value}"),
            CHUNK,
        )
    };
    let behind = |second: &str| answer(&format!("Transfer-Encoding: chunked\r\n{second}"), CHUNK);
    let length = "Content-Length: 13|A: b\r\ncontent-length: 0";
    let coding = "Transfer-Encoding: chunked|transfer-encoding: identity|Transfer-Encoding:";
    Bench::start().run(&[
        class(
            "9112, 6.3: another coding beside a length",
            Refused,
            each(list(OTHER_CODINGS), beside),
        ),
        class(
            "9112, 6.3: a coding beside a length",
            Refused,
            each(list("chunked| CHUNKED"), beside),
        ),
        class(
            "9112, 6.3: a length behind a coding",
            Refused,
            each(list(length), behind),
        ),
        class(
            "9112, 6.1: chunked once",
            Refused,
            each(list(coding), behind),
        ),
    ]);
}

fn chunked(body: &str) -> String {
    answer("Transfer-Encoding: chunked", body)
}

/// A size line, and what should follow it.
fn size(text: &str) -> String {
    chunked(&format!("{text}\r\nabc\r\n0\r\n\r\n"))
}

/// The last size line.
fn last(text: &str) -> String {
    chunked(&format!("3\r\nabc\r\n{text}\r\n\r\n"))
}

/// A size line behind a chunk that is as it should be.
fn late(text: &str) -> String {
    let whole = "x".repeat(0x100);
    chunked(&format!("100\r\n{whole}\r\n{text}\r\nabc\r\n0\r\n\r\n"))
}

#[test]
fn chunks() {
    let trailers = "T: x\r\n|T: x\r\nU: y\r\n|Content-Length: 30\r\n|Transfer-Encoding: x\r\n|poison\r\n|: x\r\n| x: y\r\n|T : x\r\n|T: \0\r\n\
        |N(: x\r\n|HTTP/1.1 200 OK\r\n";
    let extensions: Vec<String> =
        list("|;a|;a=b|;a=\"b\"|;a=\"b;c\"|;a;b| ;a=b|\t;a=b| ; a = b|;| ")
            .into_iter()
            .flat_map(|text| [size(&format!("3{text}")), last(&format!("0{text}"))])
            .collect();
    let behind = |lines: &str| chunked(&format!("3\r\nabc\r\n0\r\n{lines}\r\n"));
    let more = list("poison|HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
    Bench::start().run(&[
        class(
            "9112, 7.1.1: extensions are read over",
            Passed(200, "abc"),
            extensions,
        ),
        class(
            "9112, 7.1: a size",
            Passed(200, "abc"),
            each(list("3|03|00000000000000000000000000000003"), size),
        ),
        class(
            "9112, 7.1.2: trailers",
            Passed(200, "abc"),
            each(list(trailers), behind),
        )
        .nginx(Any),
        class(
            "9112, 7.1: more than the chunks",
            Passed(200, "abc"),
            each(more, |more| size("3") + more),
        ),
    ]);
}

#[test]
fn broken_chunks() {
    let wrong = "| 3|\t3|+3|-3|-0|0x3|0X3|3h|x3|g|3_0|3.0|3,3|3:|\"3\"|\u{b3}|3\u{ff}|3\u{a0}|\x003|3\0|3\x0b|\x0b3|3\x7f|3\r|3\r;a|3;a\0|3;a\r;b|;a|3 3|3 x\
        |3;a\nb|3;\x08|2|4|1|8000000000000000|ffffffffffffffff|fffffffffffffffd|10000000000000003|100000000000000000000000000000003|7fffffffffffffff\
        |80000000000000000000000000000000000000003";
    let mut ended = Vec::new();
    for end in list("\n|\r|\r\r\n|\n\r|\0|| \n") {
        for which in 0..3 {
            let end = |at: usize| if at == which { end } else { "\r\n" };
            ended.push(chunked(&format!("3{}abc{}0{}\r\n", end(0), end(1), end(2))));
        }
    }
    let whole = size("3;a");
    let head = whole.find("\r\n\r\n").expect("a head") + 4;
    let cut = (head..whole.len()).map(|end| whole[..end].to_owned());
    Bench::start().run(&[
        class("9112, 7.1: no size", Cut, each(list(wrong), size)).nginx(Any),
        class("9112, 7.1: no size, late", Cut, each(list(wrong), late)).nginx(Any),
        class(
            "9112, 7.1: no last size",
            Cut,
            each(list("00x|+0|-0|0x0| 0|0 0|0\0|0\x0b"), last),
        )
        .nginx(Any),
        class("9112, 7.1: the ends of lines", Cut, ended).nginx(Any),
        class("9112, 8: chunks that break off", Cut, cut.collect()).nginx(Any),
    ]);
}
