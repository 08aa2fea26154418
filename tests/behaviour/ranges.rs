//! Ranges of a file.

use blackbox::Server;

fn with_file(http: &str) -> Server {
    let server = Server::start(http);
    server.file("a", "0123456789");
    server
}

#[test]
fn one_range() {
    let server = with_file("server { listen 127.0.0.1:%PORT%; }");
    for (range, status, content_range, body) in [
        ("bytes=0-3", 206, Some("bytes 0-3/10"), "0123"),
        ("bytes=4-", 206, Some("bytes 4-9/10"), "456789"),
        ("bytes=-3", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-30", 206, Some("bytes 0-9/10"), "0123456789"),
        ("bytes=5-500", 206, Some("bytes 5-9/10"), "56789"),
        ("bytes=8-9,20-", 206, Some("bytes 8-9/10"), "89"),
        ("bytes=10-", 416, Some("bytes */10"), ""),
        ("bytes=5-4", 416, Some("bytes */10"), ""),
        ("bytes=x", 416, Some("bytes */10"), ""),
        ("lines=1-2", 200, None, "0123456789"),
    ] {
        let reply = server.get_with("/a", &format!("Range: {range}\r\n"));
        assert_eq!(
            (reply.status, reply.header("content-range")),
            (status, content_range),
            "{range}"
        );
        if status < 300 {
            assert_eq!(reply.text(), body, "{range}");
        }
    }
}

#[test]
fn several_ranges_are_multipart_in_the_order_of_the_request() {
    let server = with_file("server { listen 127.0.0.1:%PORT%; default_type text/plain; }");
    let reply = server.get_with("/a", "Range: bytes=5-6,0-1\r\n");
    assert_eq!(reply.status, 206);
    let kind = reply.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let part = |range: &str, body: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    assert_eq!(
        reply.text(),
        format!(
            "{}{}\r\n--{boundary}--\r\n",
            part("5-6", "56"),
            part("0-1", "01")
        )
    );
}

#[test]
fn max_ranges_bounds_and_0_forbids() {
    let server = with_file(
        "server { listen 127.0.0.1:%PORT%; max_ranges 1; } server { listen 127.0.0.1:%PORT1%; max_ranges 0; }",
    );
    assert_eq!(
        server.get_with("/a", "Range: bytes=0-0,2-2\r\n").status,
        200
    );
    assert_eq!(server.get_with("/a", "Range: bytes=0-0\r\n").status, 206);
    let reply = server
        .connect_to(1)
        .send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=0-0\r\n\r\n")
        .reply();
    assert_eq!((reply.status, reply.header("accept-ranges")), (200, None));
}

#[test]
fn if_range_needs_the_same_file() {
    let server = with_file("server { listen 127.0.0.1:%PORT%; }");
    let whole = server.get("/a");
    let status = |value: &str| {
        server
            .get_with("/a", &format!("Range: bytes=0-0\r\nIf-Range: {value}\r\n"))
            .status
    };
    assert_eq!(status(whole.header("etag").unwrap()), 206);
    assert_eq!(status(whole.header("last-modified").unwrap()), 206);
    assert_eq!(status("\"other\""), 200);
    assert_eq!(status(&format!("W/{}", whole.header("etag").unwrap())), 200);
    assert_eq!(status("Thu, 01 Jan 1970 00:00:01 GMT"), 200);
}
