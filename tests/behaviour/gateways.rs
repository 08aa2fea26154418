//! Passing requests on by uwsgi and SCGI: what a program is asked, and what becomes of its answer.

use crate::cache::until;
use blackbox::Server;
use blackbox::gateway::{Call, Gateway, Speech, answer};

/// A server with the same locations for each of the two; `%F%` stands for the directives' prefix.
fn servers(
    locations: &str,
    answers: impl Fn(&Call) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> Vec<(&'static str, Gateway, Server)> {
    let both = [("uwsgi", Speech::Uwsgi), ("scgi", Speech::Scgi)];
    let start = |(family, speech)| {
        let program = Gateway::start(speech, answers.clone());
        let locations = locations
            .replace("%F%", family)
            .replace("%P%", &program.address());
        let server = Server::start(&format!(
            "{family}_cache_path %DIR%/cache keys_zone=c:1m;
             server {{ listen 127.0.0.1:%PORT%; {family}_param SAYS $arg_s; {locations} }}"
        ));
        (family, program, server)
    };
    both.into_iter().map(start).collect()
}

fn says(call: &Call) -> Vec<u8> {
    let text = call.param("SAYS").replace('~', "\r\n");
    match text.is_empty() {
        true => b"Status: 200 OK\r\nContent-Type: text/plain\r\n\r\nhello".to_vec(),
        false => text.replace('_', " ").into_bytes(),
    }
}

#[test]
fn programs_are_asked_and_answer() {
    let locations = "location / { %F%_pass %P%; } location /set { %F%_param HTTP_X_SET mine; %F%_param NONE \"\" if_not_empty; %F%_pass %P%; }
        location /var { set $to %P%; %F%_pass $to; }";
    for (family, program, server) in servers(locations, says) {
        let reply = server.get_with("/?s=", "X-One: 1\r\nX-One: 2\r\n");
        assert_eq!(
            (reply.status, &reply.text()[..]),
            (200, "hello"),
            "{family}"
        );
        assert_eq!(program.last().param("HTTP_X_ONE"), "1, 2");
        server.get_with("/set", "X-Set: yours\r\n");
        let call = program.last();
        assert_eq!(
            (call.param("HTTP_X_SET"), call.params.contains_key("NONE")),
            ("mine", false)
        );
        assert_eq!(server.get("/var").text(), "hello");
        for (says, status, reason, body) in [
            ("Status:404_Gone~~x", 404, "Gone", "x"),
            ("HTTP/1.1_404_Gone~A:b~~x", 404, "Gone", "x"),
            ("HTTP/1.1_nothing~A:b~~x", 200, "OK", "x"),
            ("Location:/x~~", 302, "Moved Temporarily", ""),
            ("A:b~~x", 200, "OK", "x"),
            ("Content-Length:2~~xyz", 200, "OK", "xy"),
            ("Status:99~~", 502, "Bad Gateway", ""),
            ("Status:201~Status:202~~x", 201, "Created", "x"),
        ] {
            let reply = server.get(&format!("/?s={says}"));
            assert_eq!(
                (reply.status, &reply.reason[..]),
                (status, reason),
                "{family} {says}"
            );
            assert!(reply.all("Status").len() < 2, "{family} {says}");
            if status != 502 {
                assert_eq!(reply.text(), body, "{family} {says}");
            }
        }
        let text = server
            .raw("GET /?s=Content-Length:9~~x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(text.ends_with("\r\n\r\nx"), "{family}: {text}");
        server.wait_for(
            "upstream prematurely closed connection while reading upstream",
            family,
        );
        server.wait_for(
            &format!("upstream: \"{family}://{}\"", program.address()),
            family,
        );
    }
}

#[test]
fn bodies_follow_the_parameters() {
    let echo = |call: &Call| [b"A: b\r\n\r\n", &call.body[..]].concat();
    let locations = "client_max_body_size 8m; %F%_param SEEN $content_length; uwsgi_param CONTENT_LENGTH $content_length;
        location / { %F%_pass %P%; } location /passing { %F%_request_buffering off; %F%_pass %P%; }";
    let body: Vec<u8> = (0..2_000_000u32).map(|i| (i % 251) as u8).collect();
    for (family, program, server) in servers(locations, echo) {
        for path in ["/", "/passing"] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let reply = server
                .connect()
                .send([head.as_bytes(), &body].concat())
                .reply();
            assert!(reply.body == body, "{family} {path}");
        }
        // The length must be known first.
        let chunked = "POST /passing HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        assert_eq!(
            server.connect().send(chunked).reply().text(),
            "hello",
            "{family}"
        );
        assert_eq!(program.last().param("SEEN"), "5");
    }
}

#[test]
fn a_packet_has_modifiers() {
    let program = Gateway::start(Speech::Uwsgi, says);
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; uwsgi_pass_request_headers off; uwsgi_modifier1 5;
            location / {{ uwsgi_modifier2 7; uwsgi_pass uwsgi://{}; }}
            location /none {{ uwsgi_pass {}; }} }}",
        program.address(),
        program.address()
    ));
    for (path, flags) in [("/", [5, 7]), ("/none", [5, 0])] {
        assert_eq!(server.get(path).text(), "hello");
        assert_eq!(program.last().flags, flags, "{path}");
    }
}

#[test]
fn parameters_that_are_too_large_are_an_alert() {
    let server = Server::start(
        "large_client_header_buffers 4 64k;
         server { listen 127.0.0.1:%PORT%; location / { uwsgi_param A $http_a; uwsgi_param B $http_a; uwsgi_pass 127.0.0.1:1; } }",
    );
    let line = format!("A: {}\r\n", "a".repeat(40_000));
    assert_eq!(server.get_with("/", &line).status, 500);
    server.wait_for("[alert] ", "the level");
    server.wait_for("uwsgi request is too big: 1", "the reason");
    server.forget_log();
}

#[test]
fn answers_are_cached() {
    let locations =
        "location / { %F%_cache c; %F%_cache_key $uri; %F%_cache_valid 1m; %F%_pass %P%;
            add_header X-Cache $upstream_cache_status; }";
    for (family, program, server) in servers(locations, says) {
        assert_eq!(server.get("/a").header("X-Cache"), Some("MISS"), "{family}");
        let reply = server.get("/a");
        let found = (reply.header("X-Cache"), &reply.text()[..]);
        assert_eq!(found, (Some("HIT"), "hello"), "{family}");
        assert_eq!(program.calls().len(), 1);
    }
}

#[test]
fn an_answer_to_head_is_none_to_get() {
    let answers = |call: &Call| match call.param("METHOD") {
        "HEAD" => b"Content-Length: 4\r\nCache-Control: max-age=60\r\n\r\n".to_vec(),
        _ => b"Content-Length: 4\r\nCache-Control: max-age=60\r\n\r\nbody".to_vec(),
    };
    let locations = "location / { %F%_cache c; %F%_cache_key $uri; %F%_param METHOD $request_method; %F%_pass %P%;
            add_header X-Cache $upstream_cache_status; }";
    for (family, _program, server) in servers(locations, answers) {
        let head = server.request("HEAD", "/", "");
        assert_eq!(head.header("Content-Length"), Some("4"), "{family}");
        for cache in ["MISS", "HIT"] {
            let reply = server.get("/");
            let found = (reply.header("X-Cache"), &reply.text()[..]);
            assert_eq!(found, (Some(cache), "body"), "{family}");
        }
        let head = server.request("HEAD", "/", "");
        assert_eq!(head.header("X-Cache"), Some("HIT"), "{family}");
    }
}

#[test]
fn a_304_has_no_status_for_what_is_stored() {
    let answers = |call: &Call| match call.param("HTTP_IF_NONE_MATCH") {
        "" => b"Status: 200 Fine\r\nETag: \"e\"\r\nCache-Control: max-age=0\r\n\r\nbody".to_vec(),
        _ => b"Status: 304\r\nX-New: yes\r\nCache-Control: max-age=9\r\n\r\n".to_vec(),
    };
    let locations = "location / { %F%_cache c; %F%_cache_key $uri; %F%_cache_revalidate on; %F%_ignore_headers Cache-Control;
            %F%_cache_valid 1s; %F%_pass %P%; add_header X-Cache $upstream_cache_status; }";
    for (family, _program, server) in servers(locations, answers) {
        assert_eq!(server.get("/").text(), "body");
        let reply = until(&server, "/", &["HIT"], "REVALIDATED");
        for reply in [reply, server.get("/")] {
            let status = reply.header("Status");
            assert!(
                matches!(status, None | Some("200 Fine")),
                "{family}: {status:?}"
            );
            assert_eq!((reply.status, &reply.text()[..]), (200, "body"), "{family}");
        }
    }
}

#[test]
fn what_came_of_a_body_is_counted_from_its_first_byte() {
    let program = Gateway::start(Speech::Fastcgi, |_| answer("A: b\r\n\r\n0123456789"));
    let server = Server::start(&format!(
        "log_format f '$upstream_response_length $upstream_bytes_received';
         server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log f; location / {{ fastcgi_pass {}; }} }}",
        program.address()
    ));
    assert_eq!(server.get("/").text(), "0123456789");
    // 18 bytes in a record with 8 around them and 2 behind, and the two that end it: the head's 8 and its record's 8 are none of it.
    assert_eq!(server.access_log(1), "36 52\n");
}

#[test]
fn a_connection_may_be_upgraded() {
    let upgrade = |_: &Call| {
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nfrom there".to_vec()
    };
    for (family, _program, server) in servers("location / { %F%_pass %P%; }", upgrade) {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
        let text = client.until("from there");
        assert!(text.starts_with("HTTP/1.1 101 "), "{family}: {text}");
    }
}
