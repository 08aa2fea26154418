//! Other answers before and behind a body.

use blackbox::{Answer, Origin, Server};

#[test]
fn bodies_get_others_around_them() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; root %DIR%/html; default_type text/html;
             location /both { add_before_body /b; add_after_body /a; return 200 body; }
             location /before { add_before_body /b; return 200 body; }
             location /after { add_after_body /a; return 200 body; }
             location /file.html { add_before_body /b; add_after_body /big.html; }
             location /plain { default_type text/plain; add_after_body /a; return 200 body; }
             location /typed { default_type text/plain; addition_types text/plain; add_after_body /a; return 200 body; }
             location /other { add_after_body /a; return 202 body; }
             location /page { add_after_body /a; return 404; }
             location /none { add_before_body /no; return 200 body; }
             location /off/ { add_before_body /b; location /off/x { add_before_body ''; return 200 body; } }
             location /self { add_after_body /self; return 200 self; }
             location /where { add_after_body /request; return 200 '$uri '; }
             location /request { return 200 '$uri $request_uri $request_method'; }
             location /no { return 404 no; }
             location = /b { return 200 before-; } location = /a { return 200 -after; } }",
    );
    server.file("file.html", "file-");
    server.file("big.html", "x".repeat(300_000));
    for (path, expected) in [
        ("/both", "before-body-after"),
        ("/before", "before-body"),
        ("/after", "body-after"),
        ("/plain", "body"),
        ("/typed", "body-after"),
        ("/other", "body"),
        ("/none", "nobody"),
        ("/off/x", "body"),
        ("/self", "selfself"),
        ("/where", "/where /request /where GET"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    let file = server.get("/file.html");
    assert!(file.text() == format!("before-file-{}", "x".repeat(300_000)));
    for name in ["content-length", "accept-ranges"] {
        assert_eq!(file.header(name), None, "{name}");
    }
    assert!(file.header("etag").is_some_and(|tag| tag.starts_with("W/")));
    assert!(file.header("last-modified").is_some());
    assert!(!server.get("/page").text().contains("after"));
    let head = server.request("HEAD", "/both", "");
    assert_eq!(
        (head.header("content-length"), head.text().as_str()),
        (None, "")
    );
}

#[test]
fn filters_of_the_body_leave_what_is_added_alone() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; default_type text/html;
             location / { sub_filter_once off; sub_filter x y; add_before_body /b; add_after_body /a; return 200 axa; }
             location /b { return 200 bxb; }
             location /a { sub_filter x z; return 200 cxc; } }",
    );
    assert_eq!(server.get("/").text(), "bxbayaczc");
}

#[test]
fn other_servers_answers_are_added() {
    let origin = Origin::start(|request| Answer::ok(format!("[{}]", request.target())));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; default_type text/html;
             location / {{ add_before_body '/p/a%20b'; add_after_body /p/c; return 200 body; }}
             location /p/ {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    assert_eq!(server.get("/").text(), "[/p/a%2520b]body[/p/c]");
}
