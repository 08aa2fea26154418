//! TLS to servers: `proxy_pass https://…` and `proxy_ssl_…`.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::tls_origin::{Authority, Pem, TlsAnswer, TlsOrigin};
use blackbox::{PATIENCE, Received, Server, Site, is_nginx, until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

/// A body that shows where it is cut or mixed up.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

fn origin(answer: impl Fn(&Received) -> TlsAnswer + Send + Sync + 'static) -> TlsOrigin {
    TlsOrigin::start(&Authority::new("ca").issue("origin.test"), None, answer)
}

/// A server whose locations lead to `%O%`, with files beside its configuration.
fn server(origin: &TlsOrigin, files: &[(&str, &str)], text: &str) -> Server {
    let site = Site::new();
    for (name, content) in files {
        std::fs::write(site.path(name), content).expect("the directory can be written");
    }
    Server::start_on(site, "", &text.replace("%O%", &origin.url()))
}

#[test]
fn bodies_go_both_ways() {
    let origin = origin(|request| match request.target() {
        "/large" => TlsAnswer::ok(bytes(10 << 20)),
        "/echo" => TlsAnswer::ok(&request.body),
        "/chunks" => TlsAnswer::Keep(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".into(),
        ),
        _ => TlsAnswer::ok(bytes(1024)),
    });
    let server = server(
        &origin,
        &[],
        "client_max_body_size 20m; client_body_buffer_size 16k;
         server { listen 127.0.0.1:%PORT%; location / { proxy_pass %O%; }
            location /unbuffered/ { proxy_request_buffering off; proxy_buffering off; proxy_pass %O%/; } }",
    );
    assert_eq!(server.get("/small").body, bytes(1024));
    assert_eq!(server.get("/chunks").body, b"abc");
    assert!(server.get("/large").body == bytes(10 << 20));
    assert!(server.get("/unbuffered/large").body == bytes(10 << 20));
    let body = bytes(10 << 20);
    for path in ["/echo", "/unbuffered/echo"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = server.connect();
        client.send([head.as_bytes(), &body].concat());
        assert!(client.reply().body == body, "{path}");
    }
}

#[test]
fn connections_are_kept_and_sessions_taken_up() {
    let origin = origin(|_| TlsAnswer::ok("x"));
    let server = server(
        &origin,
        &[],
        "upstream kept { server %A%; keepalive 4; }
         server { listen 127.0.0.1:%PORT%;
            location /kept { proxy_pass https://kept; proxy_set_header Connection \"\"; }
            location /again { proxy_pass %O%; }
            location /anew { proxy_pass %O%; proxy_ssl_session_reuse off; } }"
            .replace("%A%", &origin.url()["https://".len()..])
            .as_str(),
    );
    for path in ["/kept", "/kept", "/again", "/again", "/anew", "/anew"] {
        assert_eq!(server.get(path).text(), "x", "{path}");
    }
    let resumed: Vec<_> = origin
        .handshakes()
        .iter()
        .map(|one| one.is_resumed)
        .collect();
    assert_eq!(resumed, [false, true, true, false, false]);
}

#[test]
fn a_reload_keeps_connections_and_handshakes_are_counted() {
    let authority = Authority::new("ca");
    let origin = TlsOrigin::start(&authority.issue("origin.test"), None, |_| {
        TlsAnswer::ok("x")
    });
    let text = "upstream kept { server %A%; keepalive 4; }
         proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;
         server { listen 127.0.0.1:%PORT%; proxy_ssl_name origin.test;
            location / { proxy_pass https://kept; }
            location /other { proxy_ssl_name other.test; proxy_pass https://kept; }
            location = /metrics { metrics; } }";
    let text = text.replace("%A%", &origin.url()["https://".len()..]);
    let server = server(&origin, &[("ca.pem", &authority.pem())], &text);
    assert_eq!(server.get("/").text(), "x");
    server.reload(&text);
    assert_eq!(server.get("/").text(), "x");
    assert_eq!(origin.handshakes().len(), 1);
    // A connection that was accepted for one name is not for another.
    assert_eq!(server.get("/other").status, 502);
    let metrics = server.get("/metrics").text();
    for line in [
        "freewheel_upstream_tls_handshakes_total{outcome=\"full\"} 1",
        "freewheel_upstream_tls_handshakes_total{outcome=\"untrusted\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn a_server_is_told_its_name_only_where_that_is_wanted() {
    let origin = origin(|request| TlsAnswer::ok(request.header("Host").unwrap_or_default()));
    let port = origin.port();
    let text = "server { listen 127.0.0.1:%PORT%;
            location /none { proxy_pass https://localhost:%P%; }
            location /host { proxy_pass https://localhost:%P%; proxy_ssl_server_name on; }
            location /name { proxy_pass https://localhost:%P%; proxy_ssl_server_name on; proxy_ssl_name $arg_name; }
            location /address { proxy_pass %O%; proxy_ssl_server_name on; } }";
    let server = server(&origin, &[], &text.replace("%P%", &port.to_string()));
    for (path, name) in [
        ("/none", None),
        ("/host", Some("localhost")),
        ("/name?name=origin.test:443", Some("origin.test")),
        ("/address", None),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 200, "{path}");
        let shaken = origin.handshakes().pop();
        assert_eq!(shaken.and_then(|one| one.name).as_deref(), name, "{path}");
    }
}

/// nginx sends them.
#[test]
fn a_name_that_cannot_be_sent_is_warned_about() {
    if is_nginx() {
        return;
    }
    for (name, is_warned) in [
        ("-foo.example.com", true),
        ("web.1", true),
        ("a.example:443", false),
        ("127.0.0.1", false),
        ("$host", false),
    ] {
        let site = Site::new();
        site.configure(&format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%PORT%; proxy_ssl_server_name on;
                location / {{ proxy_pass https://127.0.0.1; proxy_ssl_name {name}; }} }} }}"
        ));
        let (status, text) = site.run(&["-t"]);
        let sentence = format!("\"proxy_ssl_name\": \"{name}\" is no host's name and is not sent");
        assert!(status.success(), "{text}");
        assert_eq!(text.contains(&sentence), is_warned, "{text}");
    }
}

#[test]
fn certificates_are_judged() {
    let authority = Authority::new("ca");
    let answer = |_: &Received| TlsAnswer::ok("x");
    let good = TlsOrigin::start(&authority.issue("origin.test"), None, answer);
    let expired = TlsOrigin::start(&authority.issue_expired("origin.test"), None, answer);
    let foreign = TlsOrigin::start(&Authority::new("other").issue("origin.test"), None, answer);
    let text = "proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name origin.test;
         server { listen 127.0.0.1:%PORT%; proxy_ssl_verify on;
            location /good { proxy_pass %O%; }
            location /no-list { proxy_pass %O%; proxy_ssl_crl \"\"; }
            location /wrong { proxy_pass %O%; proxy_ssl_name other.test; }
            location /expired { proxy_pass %E%; }
            location /foreign { proxy_pass %F%; }
            location /any { proxy_pass %F%; proxy_ssl_verify off; } }";
    let text = text
        .replace("%E%", &expired.url())
        .replace("%F%", &foreign.url());
    let server = server(&good, &[("ca.pem", &authority.pem())], &text);
    for (path, status, said) in [
        ("/good", 200, ""),
        ("/no-list", 200, ""),
        (
            "/wrong",
            502,
            "upstream SSL certificate does not match \"other.test\" while SSL handshaking to upstream",
        ),
        (
            "/expired",
            502,
            "upstream SSL certificate verify error: (10:certificate has expired) while SSL handshaking to upstream",
        ),
        (
            "/foreign",
            502,
            "upstream SSL certificate verify error: (21:unable to verify the first certificate)",
        ),
        ("/any", 200, ""),
        // An old session is no way around it.
        ("/wrong", 502, ""),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
        server.wait_for(said, path);
    }
    assert_eq!(good.received().len(), 2);
}

#[test]
fn a_certificate_of_our_own_is_shown() {
    let authority = Authority::new("ca");
    let Pem { certificate, key } = authority.issue("client.test");
    let pem = authority.issue("origin.test");
    let origin = TlsOrigin::start(&pem, Some(&authority), |_| TlsAnswer::ok("x"));
    let files = [
        ("own.pem", &certificate[..]),
        ("own.key", &key[..]),
        ("other.pem", &certificate[..]),
        ("other.key", &key[..]),
    ];
    let text = "server { listen 127.0.0.1:%PORT%;
            location /none { proxy_pass %O%; }
            location /own { proxy_pass %O%; proxy_ssl_certificate own.pem; proxy_ssl_certificate_key own.key; }
            location /kept { proxy_pass %O%; proxy_ssl_certificate $arg_name.pem; proxy_ssl_certificate_key $arg_name.key;
                proxy_ssl_certificate_cache max=4; }
            location /named { proxy_pass %O%; proxy_ssl_certificate $arg_name.pem; proxy_ssl_certificate_key $arg_name.key; } }";
    let server = server(&origin, &files, text);
    for (path, status) in [
        ("/own", 200),
        ("/named?name=own", 200),
        ("/none", 502),
        ("/named?name=missing", 500),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    // Sessions are taken up by the same certificate alone.
    for name in ["own", "other", "own", "other"] {
        let path = format!("/kept?name={name}");
        assert_eq!(server.get(&path).status, 200, "{path}");
    }
    let shaken = origin.handshakes();
    assert!(shaken.iter().all(|one| one.has_certificate));
    let resumed = shaken.iter().map(|one| one.is_resumed);
    let resumed: Vec<_> = resumed.skip(2).collect();
    assert_eq!(resumed, [false, false, true, true]);
    server.forget_log();
}

#[test]
fn what_is_cut_off_is_not_whole() {
    let origin = origin(|request| {
        let answer = b"HTTP/1.1 200 OK\r\n\r\nhalf".to_vec();
        match request.target() {
            "/whole" => TlsAnswer::Close(answer),
            _ => TlsAnswer::CutOff(answer),
        }
    });
    let server = server(
        &origin,
        &[],
        "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         server { listen 127.0.0.1:%PORT%; proxy_cache c; proxy_cache_valid 1m;
            add_header X-Cache $upstream_cache_status; location / { proxy_pass %O%; } }",
    );
    for path in ["/whole", "/cut"] {
        let ask = || {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            server.raw(request)
        };
        let said = [ask(), ask()];
        let is_whole = path == "/whole";
        assert_eq!(
            said[0].ends_with("0\r\n\r\n"),
            is_whole,
            "{path}: {}",
            said[0]
        );
        assert_eq!(said[1].contains("HIT"), is_whole, "{path}: {}", said[1]);
    }
    server.wait_for("upstream prematurely closed connection", "the log");
}

#[test]
fn an_upgraded_connection_is_a_tunnel() {
    let origin = origin(|_| {
        TlsAnswer::Echo(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhello".into(),
        )
    });
    let server = server(
        &origin,
        &[],
        "server { listen 127.0.0.1:%PORT%; location / { proxy_pass %O%;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } }",
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    assert!(client.until("\r\n\r\n").starts_with("HTTP/1.1 101 "));
    assert_eq!(client.read(5), b"hello");
    let data = bytes(300_000);
    client.send(&data);
    assert!(client.read(data.len()) == data);
}

#[test]
fn a_failed_handshake_leads_to_the_next_server() {
    // It speaks no TLS.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = plain.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let origin = origin(|_| TlsAnswer::ok("x"));
    let text = "upstream u { server %A%; server %B%; }
         log_format tries \"$upstream_addr|$upstream_status\";
         server { listen 127.0.0.1:%PORT%; access_log logs/tries.log tries;
            location / { proxy_pass https://u; }
            location /one { proxy_pass https://%A%; } }";
    let text = text
        .replace("%A%", &address.to_string())
        .replace("%B%", &format!("127.0.0.1:{}", origin.port()));
    let server = server(&origin, &[], &text);
    assert_eq!(server.get("/").text(), "x");
    assert_eq!(server.get("/one").status, 502);
    for said in [
        "[error]",
        "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version number) while SSL handshaking to upstream",
        &format!("upstream: \"https://{address}/"),
    ] {
        server.wait_for(said, "the log");
    }
}

#[test]
fn a_handshake_has_a_time_limit() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let origin = origin(|_| TlsAnswer::ok("x"));
    let text = format!(
        "server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_connect_timeout 200ms; proxy_pass https://{address}; }} }}"
    );
    let server = server(&origin, &[], &text);
    assert_eq!(server.get("/").status, 504);
    server.wait_for(
        "upstream timed out (110: Connection timed out) while SSL handshaking to upstream",
        "the log",
    );
}

#[test]
fn urls_may_be_made_of_variables() {
    let origin = origin(|request| TlsAnswer::ok(request.target()));
    let text = "server { listen 127.0.0.1:%PORT%; add_header X-Said \"$proxy_host $proxy_port\";
            location / { set $to %O%; proxy_pass $to; }
            location /scheme/ { proxy_pass $arg_scheme://127.0.0.1:%P%/x; } }";
    let server = server(
        &origin,
        &[],
        &text.replace("%P%", &origin.port().to_string()),
    );
    assert_eq!(server.get("/a?b").text(), "/a?b");
    let reply = server.get("/scheme/?scheme=https");
    assert_eq!(reply.text(), "/x");
    let said = format!("127.0.0.1:{0} {0}", origin.port());
    assert_eq!(reply.header("X-Said"), Some(&said[..]));
    // A server of TLS that is asked in clear says nothing that could be passed on.
    assert_eq!(server.get("/scheme/?scheme=http").status, 502);
    server.forget_log();
}

#[test]
fn redirects_are_rewritten() {
    let origin = origin(|request| {
        let to = request.header("X-To").unwrap_or_default();
        TlsAnswer::Keep(
            format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes(),
        )
    });
    let server = server(
        &origin,
        &[],
        "server { listen 127.0.0.1:%PORT%; location /in/ { proxy_pass %O%/out/; } }",
    );
    for (to, expected) in [
        (format!("{}/out/a", origin.url()), "/in/a"),
        (
            "https://elsewhere/out/a".to_owned(),
            "https://elsewhere/out/a",
        ),
    ] {
        let reply = server.get_with("/in/", &format!("X-To: {to}\r\n"));
        let location = reply.header("Location").unwrap_or_default();
        assert!(location.ends_with(expected), "{location}");
    }
}

#[test]
fn uwsgi_goes_over_tls() {
    // The packet's parameters end with an empty line of ours.
    let origin = origin(|request| {
        let is_uwsgi = request.head.contains("REQUEST_URI");
        let answer = format!("Status: 201 Created\r\n\r\n{is_uwsgi}");
        TlsAnswer::Close(answer.into_bytes())
    });
    let text =
        "uwsgi_param REQUEST_URI $request_uri; uwsgi_string \"\r\n\r\n\"; uwsgi_ssl_server_name on;
         server { listen 127.0.0.1:%PORT%;
            location / { uwsgi_pass suwsgi://%P%; uwsgi_ssl_name name.test; }
            location /named { set $to suwsgi://%P%; uwsgi_pass $to; } }";
    let address = format!("127.0.0.1:{}", origin.port());
    let server = server(&origin, &[], &text.replace("%P%", &address));
    for (path, name) in [("/", Some("name.test")), ("/named", None)] {
        let reply = server.get(path);
        assert_eq!((reply.status, &reply.text()[..]), (201, "true"), "{path}");
        let shaken = origin.handshakes().pop();
        assert_eq!(shaken.and_then(|one| one.name).as_deref(), name, "{path}");
    }
}

#[test]
fn wrong_configurations_are_refused() {
    let Pem { certificate, .. } = Authority::new("ca").issue("a");
    for (lines, said) in [
        (
            "proxy_ssl_verify on;",
            "no proxy_ssl_trusted_certificate for proxy_ssl_verify",
        ),
        (
            "proxy_ssl_verify on; proxy_ssl_trusted_certificate \"\";",
            "no proxy_ssl_trusted_certificate for proxy_ssl_verify",
        ),
        (
            "proxy_ssl_certificate own.pem;",
            "no \"proxy_ssl_certificate_key\" is defined for certificate \"own.pem\"",
        ),
        (
            "proxy_ssl_verify on; proxy_ssl_trusted_certificate none.pem;",
            "cannot load certificate \"",
        ),
        ("proxy_ssl_protocols SSLv3;", "none of these is supported"),
        ("proxy_ssl_protocols TLSv9;", "invalid value \"TLSv9\""),
        (
            "proxy_ssl_ciphers NONE-SUCH;",
            "SSL_CTX_set_cipher_list(\"NONE-SUCH\") failed",
        ),
        (
            "proxy_ssl_conf_command Foo bar;",
            "SSL_CONF_cmd(\"Foo\", \"bar\") failed",
        ),
        ("proxy_ssl_verify maybe;", "invalid value \"maybe\""),
    ] {
        let site = Site::new();
        std::fs::write(site.path("own.pem"), &certificate).expect("the directory can be written");
        site.configure(&format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass https://127.0.0.1; {lines} }} }} }}"
        ));
        let (status, text) = site.run(&["-t"]);
        assert!(!status.success() && text.contains(said), "{lines}: {text}");
        // Without a server that speaks TLS it is not looked at, but for its form.
        let is_form = said.starts_with("invalid value");
        site.configure(&format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://127.0.0.1; {lines} }} }} }}"
        ));
        let (status, text) = site.run(&["-t"]);
        assert_eq!(status.success(), !is_form, "{lines}: {text}");
    }
}

/// Leads to `port`, but for the first connection, which nothing answers. Gives its own port.
fn first_is_lost(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let own = listener.local_addr().expect("it listens").port();
    let copy = |from: &TcpStream, to: &TcpStream| {
        let both = from
            .try_clone()
            .and_then(|from| Ok((from, to.try_clone()?)));
        let (mut from, mut to) = both.expect("there are descriptors");
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    };
    std::thread::spawn(move || {
        let mut incoming = listener.incoming().flatten();
        let _lost = incoming.next();
        for client in incoming {
            let server = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            copy(&client, &server);
            copy(&server, &client);
        }
    });
    own
}

/// The time that a request waits for another one's connection is not taken from the handshake of its own.
#[test]
fn one_handshake_that_hangs_fails_no_other_one() {
    const REQUESTS: usize = 6;
    // It does not speak HTTP/2, which shows only behind its handshakes.
    let origin = origin(|_| TlsAnswer::Close(Vec::new()));
    let text = "upstream u { server 127.0.0.1:%P% max_fails=0; keepalive 8; }
         server { listen 127.0.0.1:%PORT%; location / { proxy_pass https://u; proxy_http_version 2;
            proxy_connect_timeout 900ms; proxy_next_upstream off; } }";
    let port = first_is_lost(origin.port()).to_string();
    let server = server(&origin, &[], &text.replace("%P%", &port));
    let mut clients: Vec<_> = (0..REQUESTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let statuses = clients.iter_mut().map(|client| client.reply().status);
    let timeouts = statuses.filter(|status| *status == 504).count();
    assert_eq!(timeouts, 1);
    let has_all = || (origin.handshakes().len() == REQUESTS - 1).then_some(());
    until("all other handshakes", PATIENCE, has_all);
}

/// A server is not at fault for what waits in this server's own pool.
#[test]
fn a_pool_that_has_much_to_do_is_no_fault_of_the_server() {
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD_CPU", "%DIR%/hold");
    let origin = origin(|_| TlsAnswer::Close(b"HTTP/1.1 200 OK\r\n\r\nfound".to_vec()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = listener.local_addr().expect("it listens");
    let text = format!(
        "server {{ listen 127.0.0.1:%PORT%;
            location / {{ proxy_connect_timeout 200ms; proxy_pass {}; }}
            location /silent {{ proxy_read_timeout 600ms; proxy_pass http://{silent}; }} }}",
        origin.url()
    );
    let server = Server::start_on(site, "worker_processes 1;", &text);
    assert_eq!(server.get("/").text(), "found");
    let hold = server.site().path("hold");
    std::fs::write(&hold, "").expect("the directory is ours");
    // Until the pools stand still, there is an answer.
    let waiting = || {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let stream = client.stream();
        let soon = Some(std::time::Duration::from_millis(100));
        stream.set_read_timeout(soon).expect("a socket");
        stream.peek(&mut [0]).is_err().then_some(client)
    };
    let mut waiting = until("the pools", PATIENCE, waiting);
    // Longer than the server has.
    assert_eq!(server.get("/silent").status, 504);
    std::fs::remove_file(&hold).expect("it is there");
    let patience = waiting.stream().set_read_timeout(Some(PATIENCE));
    patience.expect("a socket");
    assert_eq!(waiting.reply().text(), "found");
    server.forget_log();
}
