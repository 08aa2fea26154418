//! Passing requests on: what is asked in odd cases, what variables tell when, and what is refused.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::gateway::{Gateway, answer};
use blackbox::{Answer, Origin, Server, Site, is_nginx};

/// A server whose locations lead to `%O%`.
fn server(origin: &Origin, text: &str) -> Server {
    Server::start(&text.replace("%O%", &format!("http://{}", origin.address())))
}

#[test]
fn what_is_broken_at_once_is_no_answer_wherever_else_it_goes() {
    let origin = Origin::start(|_| {
        Answer::Close("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".into())
    });
    let server = server(
        &origin,
        "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         server { listen 127.0.0.1:%PORT%; location / { proxy_pass %O%; }
            location /cached { proxy_cache c; proxy_cache_valid 1m; proxy_pass %O%; }
            location /stored { proxy_store %DIR%/stored; proxy_pass %O%; } }",
    );
    for path in ["/", "/cached", "/stored"] {
        for version in ["1.0", "1.1"] {
            let said = server.raw(format!(
                "GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"
            ));
            assert_eq!(said, "", "{path} {version}");
        }
    }
    assert!(!server.site().path("stored").exists());
    server.forget_log();
}

#[test]
fn arguments_that_are_made_have_no_blanks() {
    if is_nginx() {
        return;
    }
    let origin = Origin::start(|request| Answer::ok(request.target()));
    let server = server(
        &origin,
        "server { listen 127.0.0.1:%PORT%; location / { set $args \"a b\tc%20d\"; proxy_pass %O%; }
            location /slash/ { set $args \"a b\"; proxy_pass %O%/; } }",
    );
    assert_eq!(server.get("/x").text(), "/x?a%20b%09c%20d");
    assert_eq!(server.get("/slash/x").text(), "/x?a%20b");
}

#[test]
fn a_charset_is_ignored_by_who_asked() {
    let origin = Origin::start(|request| {
        let to = match request.target() {
            "/to-other" => "/other/",
            _ => "/file/",
        };
        let lines = format!("X-Accel-Charset: koi8-r\r\nX-Accel-Redirect: {to}\r\n");
        Answer::with("200 OK", &lines, "")
    });
    let server = server(
        &origin,
        "server { listen 127.0.0.1:%PORT%; default_type text/html; location / { proxy_pass %O%; }
            location /ignores { proxy_ignore_headers X-Accel-Charset; proxy_pass %O%; }
            location /known { charset koi8-r; } location /file/ { return 200 x; } location /other/ { proxy_ignore_headers X-Accel-Charset; return 200 x; } }",
    );
    let told = "text/html; charset=koi8-r";
    for (path, expected) in [
        ("/to-file", told),
        ("/to-other", told),
        ("/ignores", "text/html"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.header("Content-Type"), Some(expected), "{path}");
    }
}

#[test]
fn it_is_known_who_is_asked_once_somebody_is() {
    let origin = Origin::start(|request| {
        Answer::ok(format!(
            "{}|{}",
            request.header("X-Before").unwrap_or_default(),
            request.header("X-Then").unwrap_or_default()
        ))
    });
    let text = "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         server { listen 127.0.0.1:%PORT%; add_header X-Whom \"[$proxy_host$proxy_port]\" always; error_page 403 /page;
            location / { proxy_pass %O%; } location /returned { return 200 \"[$proxy_host$proxy_port]\"; proxy_pass %O%; }
            location /denied { deny all; proxy_pass %O%; } location /page { return 200 page; }
            location /set { set $before \"[$proxy_host]\"; proxy_set_header X-Before $before; proxy_set_header X-Then $proxy_host;
                proxy_pass %O%; }
            location /cached { proxy_cache c; proxy_cache_key $proxy_host; proxy_cache_valid 1m; proxy_pass %O%;
                X_KEY } }";
    // A variable of our own.
    let key = match is_nginx() {
        true => "",
        false => "add_header X-Key $upstream_cache_key;",
    };
    let server = server(&origin, &text.replace("X_KEY", key));
    let whom = origin.address();
    let known = format!("[{whom}{}]", origin.port());
    for (path, expected) in [("/", &known[..]), ("/returned", "[]"), ("/denied", "[]")] {
        assert_eq!(server.get(path).header("X-Whom"), Some(expected), "{path}");
    }
    assert_eq!(server.get("/returned").text(), "[]");
    assert_eq!(server.get("/set").text(), format!("[]|{whom}"));
    if !is_nginx() {
        for _ in 0..2 {
            assert_eq!(server.get("/cached").header("X-Key"), Some(&whom[..]));
        }
    }
}

#[test]
fn the_last_coding_counts() {
    let origin = Origin::start(|request| {
        let codings = match request.target() {
            "/last" => ["br", "gzip"],
            _ => ["gzip", "br"],
        };
        let lines = codings.map(|coding| format!("Content-Encoding: {coding}\r\n"));
        // "x", compressed.
        let body = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\0\0\x83\x16\xdc\x8c\x01\0\0\0";
        Answer::with("200 OK", &lines.concat(), body)
    });
    let server = server(
        &origin,
        "server { listen 127.0.0.1:%PORT%; gunzip on; location / { proxy_pass %O%; } }",
    );
    let reply = server.get("/last");
    let found = (reply.text(), reply.all("Content-Encoding"));
    assert_eq!(found, ("x".to_owned(), vec!["br"]));
    let reply = server.get("/first");
    assert_eq!(reply.all("Content-Encoding"), ["gzip", "br"]);
    assert_eq!(reply.body.len(), 21);
}

#[test]
fn a_socket_s_path_may_have_colons() {
    let site = Site::new();
    let _program = Gateway::start_at(&site.path("a:b"), |_| answer("A: b\r\n\r\nhello"));
    let server = Server::start_on(
        site,
        "",
        "upstream u { server unix:%DIR%/a:b; }
         server { listen 127.0.0.1:%PORT%; set $to unix:%DIR%/a:b; location / { fastcgi_pass unix:%DIR%/a:b; }
            location /made { fastcgi_pass $to; } location /group { fastcgi_pass u; } }",
    );
    for path in ["/", "/made", "/group"] {
        assert_eq!(server.get(path).text(), "hello", "{path}");
    }
}

#[test]
fn caches_that_are_not_there_are_refused_wherever_they_stand() {
    for text in [
        "fastcgi_cache nowhere; server { listen 127.0.0.1:%PORT%; }",
        "server { listen 127.0.0.1:%PORT%; location / { uwsgi_cache nowhere; return 204; } }",
        "server { listen 127.0.0.1:%PORT%; location / { proxy_cache nowhere; scgi_pass 127.0.0.1:9; } }",
    ] {
        let text = format!("events {{ }} http {{ {text} }}");
        let refused = Server::try_start(&text).err().expect("it is refused");
        assert!(
            refused
                .stderr
                .contains("_cache\" zone \"nowhere\" is unknown"),
            "{text}: {}",
            refused.stderr
        );
    }
    // Named for nobody: every level inside says something else, or there is none.
    for text in [
        "proxy_cache nowhere;",
        "scgi_cache nowhere; server { listen 127.0.0.1:%PORT%; scgi_cache off; }",
    ] {
        let text = format!("events {{ }} http {{ {text} }}");
        let refused = Server::try_start(&text).err().expect("it is refused");
        let sentence = "zero size shared memory zone \"nowhere\"";
        assert!(
            refused.stderr.contains(sentence),
            "{text}: {}",
            refused.stderr
        );
    }
}

#[test]
fn what_may_name_no_cache_is_not_taken_for_one_that_does() {
    let text = "proxy_cache off; map $uri $map { proxy_cache nowhere; }
        server { listen 127.0.0.1:%PORT%; proxy_cache $arg_a; location / { return 200 $map; } }";
    assert_eq!(Server::start(text).get("/").status, 200);
}
