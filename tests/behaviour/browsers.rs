//! `modern_browser`, `ancient_browser`, `$msie`, and what is done differently for old browsers.

use blackbox::Server;

#[test]
fn browsers_are_modern_or_ancient_by_their_version() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             modern_browser gecko 1.9; modern_browser msie 5.5; modern_browser_value young; ancient_browser_value old;
             location / { return 200 [$modern_browser][$ancient_browser][$msie]; }
             location /unlisted { modern_browser unlisted; ancient_browser Lynx netscape4;
                 return 200 [$modern_browser][$ancient_browser][$msie]; } }",
    );
    let ask = |path: &str, agent: &str| {
        let header = match agent {
            "-" => String::new(),
            _ => format!("User-Agent: {agent}\r\n"),
        };
        server.get_with(path, &header).text()
    };
    for (path, agent, expected) in [
        ("/", "-", "[][old][]"),
        ("/", "Mozilla/5.0 (X11; rv:1.9.1) Gecko/2009", "[young][][]"),
        ("/", "Mozilla/5.0 (X11; rv:1.8) Gecko/2009", "[][old][]"),
        (
            "/",
            "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
            "[young][][1]",
        ),
        (
            "/",
            "Mozilla/4.0 (compatible; MSIE 5.0; Windows 98)",
            "[][old][1]",
        ),
        (
            "/",
            "Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50",
            "[][old][]",
        ),
        ("/unlisted", "-", "[young][][]"),
        ("/unlisted", "anything", "[young][][]"),
        ("/unlisted", "Lynx/2.8.5", "[][old][]"),
        ("/unlisted", "Mozilla/4.72 [en] (X11; U)", "[][old][]"),
    ] {
        assert_eq!(ask(path, agent), expected, "{path} {agent}");
    }
}

#[test]
fn connections_of_old_msie_end_with_a_post() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location / { return 200 ok; }
             location /safari { keepalive_disable safari; return 200 ok; } }",
    );
    let connection = |method: &str, path: &str, agent: &str| {
        let mut connection = server.connect();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
        let reply = connection.send(head).reply();
        reply.header("connection").unwrap_or_default().to_owned()
    };
    let (old, newer) = ("x (MSIE 6.0; Windows)", "x (MSIE 6.0; Windows; SV1)");
    let opera = "x (MSIE 6.0; X11) Opera 7";
    let safari = "x (Mac OS X) Safari/600";
    assert_eq!(connection("POST", "/", old), "close");
    assert_eq!(connection("GET", "/", old), "keep-alive");
    assert_eq!(connection("POST", "/", newer), "keep-alive");
    assert_eq!(connection("POST", "/", opera), "keep-alive");
    assert_eq!(connection("POST", "/safari", old), "keep-alive");
    assert_eq!(connection("GET", "/", safari), "keep-alive");
    assert_eq!(connection("GET", "/safari", safari), "close");
}
