//! Tables: header lines that are stored, and their update by a 304.

use super::*;

#[test]
fn named_fields_are_left_out_and_the_response_stored() {
    // RFC 9111, 5.2.2.4 and 5.2.2.7.
    let head = head(
        "Cache-Control: max-age=60, no-cache=\"X-Secret, x-other\", private=\"X-Third\"\nX-Secret: 1\nX-Kept: 2
         Connection: close, X-Hop\nX-Hop: 3\nKeep-Alive: timeout=5\nAge: 7\nX-Third: 4\nProxy-Authenticate: Basic
         Content-Length: 5\nTransfer-Encoding: chunked",
    );
    let StoreVerdict::Store(storable) = judge(&answer(200, head.lines()), &Rules::nginx()) else {
        panic!("it is fresh");
    };
    let stored = stored_fields(head.lines(), &storable.without);
    let names: Vec<_> = stored
        .map(|(name, _, _)| str::from_utf8(name).unwrap())
        .collect();
    // RFC 9111, 3.1.
    assert_eq!(names, ["Cache-Control", "X-Kept", "Content-Length"]);
}

#[test]
fn a_304_renews_the_fields_that_are_not_about_the_body() {
    // RFC 9111, 3.2 and 4.3.4.
    let stored = head(
        "Content-Type: text/html\nContent-Length: 5\nETag: \"a\"\nX-Twice: 1\nX-Twice: 2\nX-Kept: 1\n\
         Cache-Control: max-age=1",
    );
    let answer_304 = head(
        "content-type: image/png\nContent-Length: 9\nContent-Encoding: gzip\nContent-Range: bytes 0-1/2\nETag: \"a\"\n\
         x-twice: 3
         Cache-Control: max-age=60\nConnection: X-Hop\nX-Hop: 1\nSet-Cookie: a=b\nX-New: 4\nStatus: 304",
    );
    let updated = updated_fields(stored.lines(), answer_304.lines(), &[]);
    let text: Vec<_> = updated
        .iter()
        .map(|(name, value, _)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
        .collect();
    assert_eq!(
        text,
        [
            "Content-Type: text/html",
            "Content-Length: 5",
            "ETag: \\\"a\\\"",
            "X-Kept: 1",
            "x-twice: 3",
            "Cache-Control: max-age=60",
            "X-New: 4",
        ]
    );
    // The new lifetime is that of the updated response.
    let renewed = answer(200, updated.iter().copied());
    let StoreVerdict::Store(storable) = judge(&renewed, &Rules::nginx()) else {
        panic!("it is fresh");
    };
    assert_eq!(storable.lifetime.expires, NOW + 60);
}

#[test]
fn unsafe_requests_invalidate_when_they_succeed() {
    // RFC 9111, 4.4.
    let table: [(&str, u16, bool); 8] = [
        ("POST", 200, true),
        ("PUT", 303, true),
        ("DELETE", 204, true),
        ("M-SEARCH", 200, true),
        ("POST", 500, false),
        ("DELETE", 404, false),
        ("GET", 200, false),
        ("OPTIONS", 200, false),
    ];
    for (method, status, expected) in table {
        assert_eq!(
            invalidates(method.as_bytes(), status),
            expected,
            "{method} {status}"
        );
    }
}
