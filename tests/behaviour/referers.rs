//! `valid_referers`: who may refer to what is here.

use blackbox::Server;

#[test]
fn referers_are_judged_by_their_host() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             valid_referers www.example.org *.example.com example.net/path ~^re\\.(org|net)/;
             location / { return 200 [$invalid_referer]; }
             location /none { valid_referers none server_names; return 200 [$invalid_referer]; }
             location /blocked { valid_referers blocked www.example.org; return 200 [$invalid_referer]; }
             server_name localhost own.example *.wild.example ~^reg[0-9]; }
         server { listen 127.0.0.1:%PORT%; server_name none; location / { return 200 [$invalid_referer]; } }",
    );
    let ask = |path: &str, referer: &str| {
        let header = match referer {
            "-" => String::new(),
            _ => format!("Referer: {referer}\r\n"),
        };
        server.get_with(path, &header).text()
    };
    for (path, referer, expected) in [
        ("/", "-", "[1]"),
        ("/", "http://www.example.org", "[]"),
        ("/", "https://WWW.EXAMPLE.ORG:8080/a", "[]"),
        ("/", "www.example.org/a/b/c", "[1]"),
        ("/", "http://example.org/", "[1]"),
        ("/", "http://a.b.example.com/", "[]"),
        ("/", "http://example.com/", "[1]"),
        ("/", "http://example.net/path/x", "[]"),
        ("/", "http://example.net:80/path", "[]"),
        ("/", "http://example.net/other", "[1]"),
        ("/", "http://RE.net/x", "[]"),
        ("/", "http://re.net", "[1]"),
        ("/none", "-", "[]"),
        ("/none", "own.example/a/b", "[1]"),
        ("/none", "http://own.example/", "[]"),
        ("/none", "http://a.wild.example/", "[]"),
        ("/none", "http://reg7/", "[]"),
        ("/none", "http://www.example.org/", "[1]"),
        ("/none", "http://re.org/", "[]"),
        ("/blocked", "-", "[1]"),
        ("/blocked", "anything", "[]"),
        ("/blocked", "http://own.example/", "[1]"),
    ] {
        assert_eq!(ask(path, referer), expected, "{path} {referer}");
    }
    let elsewhere = server.raw("GET / HTTP/1.0\r\nHost: none\r\nReferer: x\r\n\r\n");
    assert!(elsewhere.ends_with("\r\n\r\n[]"), "{elsewhere}");
}
