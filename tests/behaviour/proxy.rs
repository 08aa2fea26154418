//! Passing requests on: what the origin is asked, what the client gets of its answer.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Answer, Origin, Server, is_nginx};

fn server(origin: &Origin, locations: &str) -> Server {
    let locations = locations.replace("%ORIGIN%", &origin.address());
    Server::start(&format!(
        "upstream kept {{ server {}; }} server {{ listen 127.0.0.1:%PORT%; {locations} }}",
        origin.address()
    ))
}

#[test]
fn the_uri_is_sent_as_it_came_or_replaced() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; }
         location /x/ { proxy_pass http://%ORIGIN%/y/; }
         location /q { proxy_pass http://%ORIGIN%/y?a=; }
         location /v/ { proxy_pass http://%ORIGIN%$request_uri; }
         location ~ ^/r/ { proxy_pass http://%ORIGIN%; }
         location /t/ { try_files /none @named; } location @named { proxy_pass http://%ORIGIN%; }",
    );
    for (asked, sent) in [
        ("/a%20b/../c?d=%20", "/a%20b/../c?d=%20"),
        ("/x/a%20b?c", "/y/a%20b?c"),
        ("/x/a//b/../c", "/y/a/c"),
        ("/x/%3f%25", "/y/%3F%25"),
        ("/qz?b", "/y?a=z?b"),
        ("/v/a%20b?c", "/v/a%20b?c"),
        ("/r/%41", "/r/%41"),
        ("/t/%41%20?x", "/t/%41%20?x"),
    ] {
        assert_eq!(server.get(asked).status, 200, "{asked}");
        assert_eq!(origin.last().target(), sent, "{asked}");
    }
}

#[test]
fn the_request_is_made_anew() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; }
         location /set { proxy_set_header X-Set \"$proxy_host|$proxy_port\"; proxy_set_header Host other; proxy_set_header Accept \"\";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_pass http://%ORIGIN%; }
         location /none { proxy_pass_request_headers off; proxy_method PUT; proxy_set_body \"b=$arg_b\"; proxy_pass http://%ORIGIN%; }
         location /old { proxy_http_version 1.0; proxy_set_header Connection close; proxy_pass http://%ORIGIN%; }",
    );
    let lines = "Accept: */*\r\nConnection: close\r\nTE: trailers\r\nKeep-Alive: 1\r\nX-One: 1\r\nX-One: 2\r\n";
    let send = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n");
        server.connect().send(request).reply();
        origin.last().head.replace(&origin.address(), "ORIGIN")
    };
    assert_eq!(
        send("/"),
        "GET / HTTP/1.1\r\nHost: ORIGIN\r\nAccept: */*\r\nX-One: 1\r\nX-One: 2\r\n\r\n"
    );
    assert_eq!(
        send("/set").replace(&origin.port().to_string(), "PORT"),
        "GET /set HTTP/1.1\r\nHost: other\r\nX-Set: ORIGIN|PORT\r\nX-Forwarded-For: 127.0.0.1\r\nX-One: 1\r\nX-One: 2\r\n\r\n"
    );
    assert_eq!(
        send("/none?b=c"),
        "PUT /none?b=c HTTP/1.1\r\nHost: ORIGIN\r\nContent-Length: 3\r\n\r\n"
    );
    assert_eq!(origin.last().body, b"b=c");
    assert!(send("/old").starts_with("GET /old HTTP/1.0\r\nHost: ORIGIN\r\nConnection: close\r\n"));
}

#[test]
fn bodies_go_with_their_length() {
    let origin = Origin::start(|request| Answer::ok(&request.body));
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    let mut client = server.connect();
    let reply = client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        .reply();
    assert_eq!(reply.text(), "abcde");
    assert_eq!(origin.last().header("content-length"), Some("5"));
    assert_eq!(origin.last().header("transfer-encoding"), None);
    let expecting =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    client.send(expecting);
    assert_eq!(client.reply().status, 100);
    assert_eq!(client.send("xyz").reply().text(), "xyz");
    assert_eq!(origin.last().header("expect"), None);
    let empty = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.send(empty).reply().status, 200);
    assert_eq!(origin.last().header("content-length"), Some("0"));
}

#[test]
fn connections_to_the_origin_are_kept() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = server(&origin, "location / { proxy_pass http://kept; }");
    for _ in 0..3 {
        assert_eq!(server.get("/").text(), "x");
    }
    assert!(origin.received().iter().all(|one| one.connection == 0));
    assert_eq!(
        server.request("HEAD", "/", "").header("content-length"),
        Some("1")
    );
}

#[test]
fn the_answer_is_passed_on_without_what_is_of_this_hop() {
    let origin = Origin::start(|_| {
        Answer::with(
            "404 Gone fishing",
            "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: origin\r\nX-Pad: 1\r\nX-Accel-Expires: 1\r\nContent-Type: text/x;  charset=\"utf-8\"\r\n\
             Connection: keep-alive\r\nKeep-Alive: timeout=1\r\nETag: W/\"a\"\r\nETag: \"b\"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Hidden: 1\r\nVia: 1.1 x\r\n",
            "nothing",
        )
    });
    let server = server(
        &origin,
        "location / { proxy_hide_header X-Hidden; proxy_pass_header X-Accel-Expires; proxy_pass http://%ORIGIN%; }
         location /all { proxy_pass_header Server; proxy_pass_header Date; proxy_pass http://%ORIGIN%; }",
    );
    let reply = server.get("/");
    assert_eq!((reply.status, reply.reason.as_str()), (404, "Gone fishing"));
    assert_eq!(reply.text(), "nothing");
    assert_eq!(
        reply.header("content-type"),
        Some("text/x;  charset=\"utf-8\"")
    );
    assert_eq!(reply.all("etag"), ["W/\"a\""]);
    assert_eq!(reply.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(
        reply.header("last-modified"),
        Some("Sun, 06 Nov 1994 08:49:37 GMT")
    );
    assert_eq!(reply.header("x-accel-expires"), Some("1"));
    for gone in ["x-pad", "keep-alive", "x-hidden"] {
        assert_eq!(reply.header(gone), None, "{gone}");
    }
    assert_ne!(reply.header("server"), Some("origin"));
    let bare = Origin::start(|_| Answer::ok("x"));
    let nameless = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; proxy_pass_header Server; proxy_pass_header Date; location / {{ proxy_pass http://{}; }} }}",
        bare.address()
    ));
    let reply = nameless.get("/");
    assert_eq!((reply.header("server"), reply.header("date")), (None, None));
    let reply = server.get("/all");
    assert_eq!(reply.all("server"), ["origin"]);
    assert_eq!(reply.all("date"), ["Thu, 01 Jan 1970 00:00:00 GMT"]);
    assert_eq!(reply.header("x-hidden"), Some("1"));
}

/// What nginx does not do: RFC 9110, 7.6.1.
#[test]
fn lines_that_connection_names_end_here() {
    let origin = Origin::start(|_| {
        Answer::with(
            "200 OK",
            "Connection: X-Hop\r\nX-Hop: 1\r\nX-Far: 1\r\n",
            "",
        )
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    let reply = server.get_with("/", "Connection: x-near, host\r\nX-Near: 1\r\nX-Far: 1\r\n");
    let asked = origin.last();
    assert!(asked.header("host").is_some() && asked.header("x-far").is_some());
    assert!(asked.header("x-near").is_none() || is_nginx());
    assert!(reply.header("x-hop").is_none() || is_nginx());
    assert_eq!(reply.header("x-far"), Some("1"));
}

#[test]
fn bodies_of_every_framing_come_through() {
    let large = "0123456789abcdef".repeat(20_000);
    let body = large.clone();
    let origin = Origin::start(move |request| match request.target() {
        "/length" => Answer::ok(&body),
        "/close" => Answer::Close(format!("HTTP/1.1 200 OK\r\n\r\n{body}").into()),
        "/chunks" => Answer::raw(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n5;a=b\r\nabcde\r\n0\r\nX-Trailer: 1\r\n\r\n",
            body.len()
        )),
        _ => Answer::raw("HTTP/1.1 204 No Content\r\n\r\n"),
    });
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; } location /chunks { proxy_pass_trailers on; proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    let mut get = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.reply()
    };
    assert!(get("/length").text() == large);
    assert!(get("/close").text() == large);
    let reply = get("/chunks");
    assert!(reply.text() == large.clone() + "abcde");
    assert_eq!(reply.trailers, [("X-Trailer".to_owned(), "1".to_owned())]);
    assert_eq!(get("/none").status, 204);
    let old = server.raw("GET /chunks HTTP/1.0\r\n\r\n");
    assert!(old.ends_with("abcde") && !old.contains("chunked"));
}

#[test]
fn bad_answers_are_no_answers() {
    let heads = [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\nab",
        "hello, world",
        "HTTP/1.1 200 OK\r\nX: 1\r\n",
        "",
    ];
    let origin = Origin::start(move |request| {
        let number: usize = request.target()[1..].parse().unwrap_or(0);
        match heads.get(number) {
            Some(head) => Answer::Close(head.as_bytes().to_vec()),
            None => Answer::Close(
                format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)).into(),
            ),
        }
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    for number in 0..=heads.len() {
        if number == 5 && is_nginx() {
            continue; // it passes what is no HTTP on as it is, without a head
        }
        let reply = server.get(&format!("/{number}"));
        assert_eq!(reply.status, 502, "{number}");
    }
    for text in [
        "upstream sent duplicate header line",
        "upstream sent invalid \"Content-Length\" header",
        "headers at the same time while reading response header from upstream, client: 127.0.0.1",
        "upstream sent too big header",
        "upstream prematurely closed connection while reading response header from upstream",
    ] {
        server.wait_for(text, "the log");
    }
}

#[test]
fn half_an_answer_is_cut_off() {
    let origin = Origin::start(|request| {
        Answer::Close(match request.target() {
            "/length" => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec(),
            "/chunks" => {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec()
            }
            _ => {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n".to_vec()
            }
        })
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    for path in ["/length", "/chunks", "/bad"] {
        let all = server.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(all.is_empty() || all.contains("abc"), "{path}: {all}");
        assert!(!all.ends_with("0\r\n\r\n"), "{path}: {all}");
    }
    server.wait_for(
        "upstream prematurely closed connection while reading upstream, client: 127.0.0.1",
        "the log",
    );
    server.wait_for(
        "upstream sent invalid chunked response while reading upstream",
        "the log",
    );
}

#[test]
fn what_nobody_asked_for_is_not_kept() {
    let origin = Origin::start(|_| {
        Answer::raw(
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        )
    });
    let server = server(&origin, "location / { proxy_pass http://kept; }");
    for _ in 0..2 {
        assert_eq!(server.get("/").text(), "a");
    }
    assert_eq!(origin.last().connection, 1);
}

#[test]
fn the_next_server_is_asked() {
    let good = Origin::start(|_| Answer::ok("good"));
    let bad = Origin::start(|_| Answer::Close(Vec::new()));
    let busy = Origin::start(|_| Answer::with("503 Busy", "", "busy"));
    let server = Server::start(&format!(
        "log_format up '$upstream_addr|$upstream_status';
         upstream two {{ server {0} max_fails=0; server {1} backup; }}
         upstream three {{ server {2} max_fails=0; server {1} backup; }}
         server {{ listen 127.0.0.1:%PORT%; access_log logs/tried.log up; location / {{ proxy_pass http://two; }}
            location /busy {{ proxy_next_upstream http_503; proxy_pass http://three; }}
            location /kept {{ proxy_pass http://three; }}
            location /once {{ proxy_next_upstream_tries 1; proxy_pass http://two; }} }}",
        bad.address(),
        good.address(),
        busy.address()
    ));
    assert_eq!(server.get("/").text(), "good");
    assert_eq!(server.get("/busy").text(), "good");
    assert_eq!(server.get("/kept").text(), "busy");
    assert_eq!(server.get("/once").status, 502);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(server.connect().send(post).reply().status, 502);
    let expected = format!(
        "{0}, {1}|502, 200\n{2}, {1}|503, 200\n{2}|503\n{0}|502\n{0}|502\n",
        bad.address(),
        good.address(),
        busy.address()
    );
    let deadline = std::time::Instant::now() + blackbox::PATIENCE;
    while server.read("logs/tried.log").lines().count() < 5 && std::time::Instant::now() < deadline
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(server.read("logs/tried.log"), expected);
}

#[test]
fn a_dead_kept_connection_is_not_the_client_s_matter() {
    let origin = Origin::start(|request| match request.target() {
        "/die" => Answer::Close(Vec::new()),
        _ => Answer::ok("x"),
    });
    let dying = Origin::start({
        let count = std::sync::atomic::AtomicUsize::new(0);
        move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            1 => Answer::Close(Vec::new()),
            _ => Answer::ok("x"),
        }
    });
    let server = server(&dying, "location / { proxy_pass http://kept; }");
    assert_eq!(server.get("/").text(), "x");
    assert_eq!(server.get("/").text(), "x", "over a new connection");
    assert_eq!(dying.received().len(), 3);
    drop(origin);
}

#[test]
fn timeouts_are_504() {
    let origin = Origin::start(|request| match request.target() {
        "/silent" => Answer::Talk(Box::new(|stream| {
            std::thread::sleep(std::time::Duration::from_secs(3));
            drop(stream);
        })),
        _ => Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
    });
    let server = server(
        &origin,
        "location / { proxy_read_timeout 1s; proxy_pass http://%ORIGIN%; }",
    );
    assert_eq!(server.get("/silent").status, 504);
    // nginx keeps the three bytes to itself.
    let cut = server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(cut.ends_with("\r\n\r\nabc") || is_nginx());
    for action in ["reading response header from upstream", "reading upstream"] {
        let text = format!("upstream timed out (110: Connection timed out) while {action}, client");
        server.wait_for(&text, "the log");
    }
}

#[test]
fn a_client_that_leaves_takes_the_request_along() {
    let origin = Origin::start(|_| {
        Answer::Talk(Box::new(|mut stream| {
            let mut rest = Vec::new();
            let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
        }))
    });
    let server = server(&origin, "location / { proxy_pass http://%ORIGIN%; }");
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait(1);
    drop(client);
    let log = server.access_log(1);
    assert!(log.contains("\" 499 0 "), "{log}");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_an_answer_is_noticed() {
    let (left, has_left) = std::sync::mpsc::channel();
    let left = std::sync::Mutex::new(left);
    let origin = Origin::start(move |_| {
        let left = left.lock().unwrap().clone();
        Answer::Talk(Box::new(move |mut stream| {
            let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun";
            let _ = std::io::Write::write_all(&mut stream, begun);
            let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
            let _ = left.send(());
        }))
    });
    let server = server(
        &origin,
        "location / { proxy_buffering off; proxy_pass http://%ORIGIN%; }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    while !client.read(1).ends_with(b"b") {}
    drop(client);
    has_left
        .recv_timeout(blackbox::PATIENCE)
        .expect("nothing else would tell the server behind for a minute");
    let log = server.access_log(1);
    assert!(log.contains("\" 200 "), "{log}");
}

#[test]
fn wrong_targets_are_refused_at_the_start() {
    for (line, sentence) in [
        ("proxy_pass ftp://a;", "invalid URL prefix"),
        (
            "proxy_pass http://127.0.0.1:0;",
            "invalid port in upstream \"127.0.0.1:0\"",
        ),
        (
            "proxy_pass http://no.such.host.invalid;",
            "host not found in upstream \"no.such.host.invalid\"",
        ),
    ] {
        let text = format!(
            "daemon off; pid nginx.pid; events {{ }} http {{ server {{ listen 127.0.0.1:%PORT%; location / {{ {line} }} }} }}"
        );
        let Err(refused) = Server::try_start(&text) else {
            panic!("{line} is accepted");
        };
        assert!(refused.stderr.contains(sentence), "{}", refused.stderr);
    }
}

#[test]
fn a_range_has_one_content_range() {
    let origin = Origin::start(|_| Answer::with("200 OK", "Content-Range: stub\r\n", "0123456789"));
    let server = server(
        &origin,
        "location / { proxy_force_ranges on; proxy_pass http://%ORIGIN%; }",
    );
    let reply = server.get_with("/", "Range: bytes=2-3\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (206, "23"));
    assert_eq!(reply.all("content-range"), ["bytes 2-3/10"]);
}

#[test]
fn a_redirect_that_leads_elsewhere_keeps_its_place_among_the_lines() {
    let origin = Origin::start(|_| {
        let lines = "X-Z: 1\r\nLocation: http://other/q\r\nX-Y: 2\r\n";
        Answer::with("302 Found", lines, "")
    });
    let server = server(
        &origin,
        "location / { proxy_pass http://%ORIGIN%; }
         location /variable { set $origin %ORIGIN%; proxy_pass http://$origin; }
         location /off { proxy_redirect off; add_header X-Seen $sent_http_location always; proxy_pass http://%ORIGIN%; }
         location /moved { proxy_redirect http://other/ http://o/; proxy_pass http://%ORIGIN%; }",
    );
    for (path, place) in [
        ("/", "http://other/q"),
        ("/variable", "http://other/q"),
        ("/off", "http://other/q"),
        ("/moved", "http://o/q"),
    ] {
        let reply = server.get(path);
        let mut names = reply.headers.iter().map(|(name, _)| &name[..]);
        names.find(|name| *name == "X-Z");
        assert_eq!(
            (names.next(), names.next()),
            (Some("Location"), Some("X-Y")),
            "{path}"
        );
        assert_eq!(reply.header("location"), Some(place), "{path}");
    }
    assert_eq!(server.get("/off").header("x-seen"), Some("http://other/q"));
}
