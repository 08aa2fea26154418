//! Conditional requests: nginx's order, which is not that of RFC 9110.

use blackbox::Server;

const EARLIER: &str = "Thu, 01 Jan 1970 00:00:01 GMT";
const LATER: &str = "Fri, 01 Jan 2049 00:00:00 GMT";

fn with_file(http: &str) -> (Server, String, String) {
    let server = Server::start(http);
    server.file("a", "abc");
    let reply = server.get("/a");
    let (date, tag) = (
        reply
            .header("last-modified")
            .expect("a file has a date")
            .to_owned(),
        reply.header("etag").expect("a file has a tag").to_owned(),
    );
    (server, date, tag)
}

#[test]
fn not_modified_needs_both_conditions_where_both_are_given() {
    let (server, date, tag) = with_file("server { listen 127.0.0.1:%PORT%; }");
    let status = |headers: &str| server.get_with("/a", headers).status;
    assert_eq!(status(&format!("If-Modified-Since: {date}\r\n")), 304);
    assert_eq!(status(&format!("If-Modified-Since: {EARLIER}\r\n")), 200);
    assert_eq!(
        status(&format!("If-Modified-Since: {LATER}\r\n")),
        200,
        "exact by default"
    );
    assert_eq!(status(&format!("If-None-Match: {tag}\r\n")), 304);
    assert_eq!(status(&format!("If-None-Match: \"x\", W/{tag}\r\n")), 304);
    assert_eq!(status("If-None-Match: *\r\n"), 304);
    assert_eq!(status("If-None-Match: \"x\"\r\n"), 200);
    assert_eq!(
        status(&format!(
            "If-None-Match: {tag}\r\nIf-Modified-Since: {EARLIER}\r\n"
        )),
        200
    );
    assert_eq!(
        status(&format!(
            "If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"
        )),
        200
    );
}

#[test]
fn preconditions_fail_with_412() {
    let (server, date, tag) = with_file("server { listen 127.0.0.1:%PORT%; }");
    let status = |headers: &str| server.get_with("/a", headers).status;
    assert_eq!(status(&format!("If-Match: {tag}\r\n")), 200);
    assert_eq!(status(&format!("If-Match: W/{tag}\r\n")), 412);
    assert_eq!(status("If-Match: *\r\n"), 200);
    assert_eq!(status(&format!("If-Unmodified-Since: {EARLIER}\r\n")), 412);
    assert_eq!(status(&format!("If-Unmodified-Since: {date}\r\n")), 200);
}

#[test]
fn a_304_has_no_length_and_no_type() {
    let (server, _, tag) = with_file("server { listen 127.0.0.1:%PORT%; }");
    let reply = server.get_with("/a", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(
        (reply.header("content-length"), reply.header("content-type")),
        (None, None)
    );
    assert_eq!(reply.header("etag"), Some(tag.as_str()));
}

#[test]
fn if_modified_since_can_be_before_or_off_and_etag_off() {
    let (server, _, _) = with_file(
        "server { listen 127.0.0.1:%PORT%; }
         server { listen 127.0.0.1:%PORT1%; if_modified_since before; etag off; }",
    );
    let ask = |headers: &str| {
        server
            .connect_to(1)
            .send(format!(
                "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n"
            ))
            .reply()
    };
    assert_eq!(ask(&format!("If-Modified-Since: {LATER}\r\n")).status, 304);
    assert_eq!(ask("").header("etag"), None);
}

#[test]
fn texts_have_conditions_too() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 200 text; }");
    let status = |headers: &str| server.get_with("/", headers).status;
    assert_eq!(status("If-None-Match: *\r\n"), 304);
    assert_eq!(status("If-None-Match: \"x\"\r\n"), 200);
    assert_eq!(status("If-Match: \"x\"\r\n"), 412);
}
