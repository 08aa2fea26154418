//! Passing requests on by FastCGI: what a program is asked, and what becomes of its answer.

use blackbox::gateway::{Call, Gateway, Speech, answer, end, record, stderr, stdout};
use blackbox::{Server, Site, is_nginx};

pub(crate) fn program(answers: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static) -> Gateway {
    Gateway::start(Speech::Fastcgi, answers)
}

/// A server whose locations lead to `%P%`, and to it as a group that keeps connections, `kept`.
pub(crate) fn server(program: &Gateway, locations: &str) -> Server {
    let locations = locations.replace("%P%", &program.address());
    Server::start(&format!(
        "fastcgi_cache_path %DIR%/cache keys_zone=c:1m; fastcgi_temp_path %DIR%/temporary;
         upstream kept {{ server {}; keepalive 2; }}
         server {{ listen 127.0.0.1:%PORT%; root %DIR%/html; {locations} }}",
        program.address()
    ))
}

fn hello(_: &Call) -> Vec<u8> {
    answer("Content-Type: text/plain\r\n\r\nhello")
}

#[test]
fn parameters_are_those_of_the_configuration_and_the_header_lines() {
    let program = program(hello);
    let server = server(
        &program,
        "fastcgi_param OUTER 1;
         location / { fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param EMPTY $arg_none;
            fastcgi_param SKIPPED $arg_none if_not_empty; fastcgi_param GIVEN $arg_given if_not_empty;
            fastcgi_param HTTP_X_SET mine; fastcgi_param HTTP_X_GONE \"\"; fastcgi_index index.php; fastcgi_pass %P%; }
         location /none { fastcgi_pass_request_headers off; fastcgi_pass %P%; }
         location /host { fastcgi_param HTTP_HOST other; fastcgi_pass %P%; }",
    );
    let lines = "X-Set: yours\r\nX-Gone: yours\r\nX-One: 1\r\nx-one: 2\r\nCookie: a=b\r\nCookie: c=d\r\nProxy: x\r\n";
    let ask = |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\n{lines}\r\n"
        );
        let reply = server.connect().send(request).reply();
        assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()));
        program.last()
    };
    let call = ask("/dir/?given=7");
    let root = server.site().path("html");
    let script = format!("{}/dir/index.php", root.display());
    for (name, value) in [
        ("SCRIPT_FILENAME", &script[..]),
        ("EMPTY", ""),
        ("GIVEN", "7"),
        ("HTTP_HOST", "a.example:81"),
        ("HTTP_X_SET", "mine"),
        ("HTTP_X_ONE", "1, 2"),
        ("HTTP_COOKIE", "a=b; c=d"),
        ("HTTP_PROXY", "x"),
        ("HTTP_CONNECTION", "close"),
    ] {
        assert_eq!(call.param(name), value, "{name}");
    }
    assert_eq!(call.params.len(), 9, "{:?}", call.params);
    assert_eq!(call.flags[0], 0, "the connection is not to be kept");
    let call = ask("/none");
    assert_eq!((call.param("OUTER"), call.params.len()), ("1", 2));
    assert_eq!(ask("/host").param("HTTP_HOST"), "other");
}

#[test]
fn a_script_is_found_in_the_uri() {
    let program = program(hello);
    let server = server(
        &program,
        r"location / { fastcgi_split_path_info ^(.+\.php)(/.*)$; fastcgi_index i.php; fastcgi_param SCRIPT $fastcgi_script_name;
            fastcgi_param INFO $fastcgi_path_info; fastcgi_pass %P%; }",
    );
    for (path, script, info) in [
        ("/a.php/b/c?d", "/a.php", "/b/c"),
        ("/a.php", "/a.php", ""),
        ("/x/", "/x/i.php", ""),
        ("/%61.php/%62", "/a.php", "/b"),
    ] {
        server.get(path);
        let call = program.last();
        assert_eq!(
            (call.param("SCRIPT"), call.param("INFO")),
            (script, info),
            "{path}"
        );
    }
}

#[test]
fn bodies_go_in_records() {
    let program = program(|call| answer(format!("\r\n\r\n{}", call.body.len())));
    let server = server(
        &program,
        "client_max_body_size 8m; fastcgi_param CONTENT_LENGTH $content_length;
         location / { fastcgi_pass %P%; }
         location /passing { fastcgi_request_buffering off; fastcgi_pass %P%; }
         location /without { fastcgi_pass_request_body off; fastcgi_pass %P%; }",
    );
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let post = |path: &str, lines: &str, body: &[u8]| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n");
        let reply = server
            .connect()
            .send([head.as_bytes(), body].concat())
            .reply();
        assert_eq!(reply.status, 200, "{path}");
        program.last()
    };
    let length = format!("Content-Length: {}\r\n", body.len());
    for path in ["/", "/passing"] {
        let call = post(path, &length, &body);
        assert_eq!(call.param("CONTENT_LENGTH"), body.len().to_string());
        assert!(
            call.body == body && call.records >= body.len() / 65535,
            "{path}"
        );
    }
    let chunks = b"5\r\nhello\r\n3\r\n, a\r\n0\r\n\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    let call = post("/", chunked, chunks);
    assert_eq!(
        (call.param("CONTENT_LENGTH"), &call.body[..]),
        ("8", &b"hello, a"[..])
    );
    let call = post("/passing", chunked, chunks);
    assert_eq!(
        (call.param("CONTENT_LENGTH"), &call.body[..]),
        ("8", &b"hello, a"[..])
    );
    let call = post("/without", "Content-Length: 2\r\n", b"ab");
    assert_eq!((call.param("CONTENT_LENGTH"), call.body.len()), ("2", 0));
}

#[test]
fn what_a_program_says_becomes_the_answer() {
    let program = program(|call| answer(call.param("SAYS").replace('~', "\r\n").replace('_', " ")));
    let server = server(
        &program,
        "location / { fastcgi_param SAYS $arg_s; fastcgi_pass %P%; }",
    );
    for (says, status, reason, line, body) in [
        ("A:1~~x", 200, "OK", ("A", Some("1")), "x"),
        ("Status:404~~x", 404, "Not Found", ("Status", None), "x"),
        ("Status:404_None~~x", 404, "None", ("Status", None), "x"),
        (
            "Location:/l~~x",
            302,
            "Moved Temporarily",
            ("Location", Some("/l")),
            "x",
        ),
        (
            "Status:201~Location:/l~~x",
            201,
            "Created",
            ("Location", Some("/l")),
            "x",
        ),
        (
            "Content-Length:1~~xyz",
            200,
            "OK",
            ("Content-Length", Some("1")),
            "x",
        ),
        (
            "X-Accel-Expires:1~~x",
            200,
            "OK",
            ("X-Accel-Expires", None),
            "x",
        ),
        (
            "Server:me~Date:now~~x",
            200,
            "OK",
            ("Server", Some("me")),
            "x",
        ),
        ("Status:204~~x", 204, "No Content", ("A", None), ""),
        ("Status:12~~x", 502, "Bad Gateway", ("A", None), ""),
        ("~", 200, "OK", ("A", None), ""),
    ] {
        let reply = server.get(&format!("/?s={says}"));
        assert_eq!(reply.status, status, "{says}");
        assert_eq!(reply.reason, reason, "{says}");
        assert_eq!(reply.header(line.0), line.1, "{says}");
        if status != 502 {
            assert_eq!(reply.text(), body, "{says}");
        }
    }
    let reply = server.get("/?s=A:1~~x");
    assert!(reply.header("Server").is_some() && reply.header("Date").is_some());
    assert_eq!(server.request("HEAD", "/?s=A:1~~x", "").text(), "");
    server.wait_for(
        "upstream sent more data than specified in \"Content-Length\" header",
        "more",
    );
    server.wait_for("upstream sent invalid status \"12\"", "the status");
}

#[test]
fn records_may_be_cut_and_filled_up_anywhere() {
    let program = program(|_| {
        let mut bytes = Vec::new();
        for (at, letter) in b"Status: 201 Made\r\nX-Split: yes\r\n\r\nin pieces"
            .chunks(1)
            .enumerate()
        {
            bytes.extend(record(6, letter, (at * 5 % 8) as u8));
            bytes.extend(record(7, b"", (at % 8) as u8));
        }
        [bytes, stdout(""), end(0)].concat()
    });
    let server = server(&program, "location / { fastcgi_pass %P%; }");
    let reply = server.get("/");
    assert_eq!((reply.status, &reply.reason[..]), (201, "Made"));
    assert_eq!(
        (reply.header("X-Split"), &reply.text()[..]),
        (Some("yes"), "in pieces")
    );
}

#[test]
fn large_answers_come_whole() {
    let body: Vec<u8> = (0..5_000_000u32).map(|i| (i % 253) as u8).collect();
    let sent = body.clone();
    let program = program(move |_| answer([b"Content-Type: x/y\r\n\r\n", &sent[..]].concat()));
    let server = server(
        &program,
        "location / { fastcgi_pass %P%; } location /off { fastcgi_buffering off; fastcgi_pass %P%; }
         location /kept { fastcgi_keep_conn on; fastcgi_pass kept; }",
    );
    for path in ["/", "/off", "/kept", "/kept"] {
        assert!(server.get(path).body == body, "{path}");
    }
    let calls = program.calls();
    assert_eq!(calls[2].connection, calls[3].connection);
}

#[test]
fn connections_are_kept_where_both_sides_say_so() {
    let program = program(|call| match call.param("SAYS") {
        // The end of the request follows behind the end of the body.
        "late" => [stdout("A: b\r\n\r\nx"), stdout(""), record(3, &[0; 8], 6)].concat(),
        "more" => [answer("A: b\r\n\r\nx"), stdout("y")].concat(),
        _ => hello(call),
    });
    let server = server(
        &program,
        "fastcgi_param SAYS $arg_s; location / { fastcgi_keep_conn on; fastcgi_pass kept; }
         location /closed { fastcgi_pass kept; }",
    );
    let connection = |path: &str| {
        assert_eq!(server.get(path).status, 200);
        let call = program.last();
        (call.connection, call.flags[0])
    };
    assert_eq!(connection("/"), (0, 1));
    assert_eq!(connection("/?s=late"), (0, 1));
    assert_eq!(connection("/"), (0, 1));
    assert_eq!(connection("/?s=more"), (0, 1));
    // What stood behind the end belongs to nobody.
    assert_eq!(connection("/"), (1, 1));
    assert_eq!(connection("/closed"), (1, 0));
    if !is_nginx() {
        // There, nobody waits for the end behind the head.
        assert_eq!(connection("/"), (2, 1));
        assert_eq!(server.request("HEAD", "/", "").status, 200);
        assert_eq!(connection("/"), (2, 1));
    }
}

#[test]
fn the_error_stream_is_logged() {
    let program = program(|_| {
        let late = [stderr("PHP Warning:  late.\r\n"), stdout(""), end(0)];
        [
            vec![stderr("PHP Notice: early\n")],
            vec![stdout("A: b\r\n\r\nx")],
            late.to_vec(),
        ]
        .concat()
        .concat()
    });
    let server = server(
        &program,
        "location / { fastcgi_keep_conn on; fastcgi_pass %P%; }
         location /caught { fastcgi_catch_stderr Notice; error_page 502 /page; fastcgi_pass %P%; }
         location /late { fastcgi_catch_stderr Warning; fastcgi_pass %P%; } location /page { return 200 page; }",
    );
    assert_eq!(server.get("/").text(), "x");
    let early = "FastCGI sent in stderr: \"PHP Notice: early\" while reading response header from upstream, client: 127.0.0.1";
    server.wait_for(early, "the first line");
    server.wait_for(
        "FastCGI sent in stderr: \"PHP Warning:  late\" while reading upstream",
        "the second line",
    );
    server.wait_for(
        &format!("upstream: \"fastcgi://{}\"", program.address()),
        "who it was",
    );
    assert_eq!(server.get("/caught").status, 502);
    assert_eq!(server.get("/late").text(), "x");
}

#[test]
fn answers_that_are_none_are_said_so() {
    let program = program(|call| match call.param("SAYS") {
        "overloaded" => end(2),
        "ended" => [stdout(""), end(0)].concat(),
        "type" => record(9, b"", 0),
        "version" => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        "header" => answer("A b\0\r\n\r\n"),
        "big" => answer(format!("A: {}\r\n\r\n", "b".repeat(5000))),
        _ => Vec::new(),
    });
    let server = server(
        &program,
        "location / { fastcgi_param SAYS $arg_s; fastcgi_pass %P%; }",
    );
    for (says, line) in [
        ("overloaded", "upstream FastCGI server is overloaded"),
        ("ended", "upstream prematurely closed FastCGI stdout"),
        ("type", "upstream sent invalid FastCGI record type: 9"),
        (
            "version",
            "upstream sent unsupported FastCGI protocol version: 72",
        ),
        ("header", "upstream sent invalid header"),
        ("big", "upstream sent too big header"),
        ("nothing", "upstream prematurely closed connection"),
    ] {
        assert_eq!(server.get(&format!("/?s={says}")).status, 502, "{says}");
        if !(is_nginx() && says == "overloaded") {
            server.wait_for(line, says);
        }
    }
}

#[test]
fn the_next_server_is_asked() {
    let good = program(hello);
    let bad = program(|call| match call.param("SAYS") {
        "503" => answer("Status: 503\r\n\r\nbad"),
        "overloaded" => end(2),
        "stderr" => [stderr("oh no"), answer("A: b\r\n\r\nbad")].concat(),
        _ => answer("A: b\r\n\r\nbad"),
    });
    let server = Server::start(&format!(
        "upstream u {{ server {} max_fails=0; server {} backup; }}
         server {{ listen 127.0.0.1:%PORT%; location / {{ fastcgi_next_upstream error invalid_header http_503; fastcgi_catch_stderr oh;
            fastcgi_param SAYS $arg_s; fastcgi_pass u; add_header X-Status $upstream_status; }} }}",
        bad.address(),
        good.address()
    ));
    for (says, status) in [
        ("503", "503, 200"),
        ("overloaded", "502, 200"),
        ("stderr", "502, 200"),
    ] {
        let reply = server.get(&format!("/?s={says}"));
        assert_eq!(
            (reply.text(), reply.header("X-Status")),
            ("hello".to_owned(), Some(status)),
            "{says}"
        );
    }
    assert_eq!(server.get("/").text(), "bad");
}

#[test]
fn places_may_be_sockets_groups_and_variables() {
    let site = Site::new();
    let socket = Gateway::start_at(&site.path("program.sock"), hello);
    let program = program(hello);
    let http = format!(
        "upstream u {{ server unix:%DIR%/program.sock; }}
         server {{ listen 127.0.0.1:%PORT%; set $to {}; set $name u; set $none nowhere;
            location / {{ fastcgi_pass unix:%DIR%/program.sock; }} location /u {{ fastcgi_pass u; }}
            location /v {{ fastcgi_pass $to; add_header X-To $upstream_addr; }} location /n {{ fastcgi_pass $name; }}
            location /s {{ fastcgi_pass unix:%DIR%/$arg_s; }} location /none {{ fastcgi_pass $none; }}
            location /if {{ if ($arg_i) {{ fastcgi_pass $to; }} }}
            location /host {{ fastcgi_param P \"$proxy_host|$proxy_port\"; fastcgi_pass $to; }} }}",
        program.address()
    );
    let server = Server::start_on(site, "", &http);
    for path in ["/", "/u", "/v", "/n", "/s?s=program.sock", "/if?i=1"] {
        let reply = server.get(path);
        assert_eq!(
            (reply.status, reply.text()),
            (200, "hello".to_owned()),
            "{path}"
        );
    }
    assert_eq!(
        server.get("/v").header("X-To"),
        Some(&program.address()[..])
    );
    assert_eq!(socket.calls().len(), 4);
    assert_eq!(server.get("/host").status, 200);
    assert_eq!(program.last().param("P"), "|");
    assert_eq!(server.get("/none").status, 500);
    server.wait_for("no port in upstream \"nowhere\"", "why");
}

#[test]
fn a_site_of_php() {
    let program = program(|call| {
        let text = format!(
            "{} {} {}",
            call.param("SCRIPT_NAME"),
            call.param("QUERY_STRING"),
            call.param("PATH_INFO")
        );
        answer(format!("Content-Type: text/html\r\n\r\n{text}"))
    });
    let server = server(
        &program,
        r"index index.php; location / { try_files $uri $uri/ /index.php?$args; }
          location ~ [^/]\.php(/|$) { fastcgi_split_path_info ^(.+?\.php)(/.*)$; fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string; fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_pass %P%; }",
    );
    server.file("file.txt", "a file");
    server.file("dir/index.php", "<?php");
    for (path, text) in [
        ("/file.txt", "a file"),
        ("/a/b?c=d", "/index.php c=d "),
        ("/dir/", "/dir/index.php  "),
        ("/x.php/info?q", "/x.php q /info"),
    ] {
        assert_eq!(server.get(path).text(), text, "{path}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |text: &str| {
        let text = format!("events {{ }} http {{ {text} server {{ listen 127.0.0.1:%PORT%; }} }}");
        match Server::try_start(&text) {
            Ok(_) => panic!("{text} was accepted"),
            Err(refused) => refused.stderr,
        }
    };
    for (text, sentence) in [
        (
            "server { location / { fastcgi_pass a.example.invalid:9; } }",
            "host not found in upstream \"a.example.invalid\"",
        ),
        (
            "server { location / { fastcgi_pass 127.0.0.1; } }",
            "no port in upstream \"127.0.0.1\"",
        ),
        (
            "server { location / { fastcgi_pass 127.0.0.1:1; fastcgi_pass 127.0.0.1:1; } }",
            "\"fastcgi_pass\" directive is duplicate",
        ),
        (
            "fastcgi_split_path_info ^(.+)$;",
            "pattern \"^(.+)$\" must have 2 captures",
        ),
        ("fastcgi_param A b c;", "invalid parameter \"c\""),
        (
            "fastcgi_buffers 1 4k;",
            "there must be at least 2 \"fastcgi_buffers\"",
        ),
        (
            "fastcgi_busy_buffers_size 1k;",
            "\"fastcgi_busy_buffers_size\" must be equal to or greater than",
        ),
        (
            "fastcgi_next_upstream http_502;",
            "invalid value \"http_502\"",
        ),
        ("fastcgi_store on; fastcgi_cache c;", "is incompatible with"),
        (
            "server { location / { fastcgi_cache c; fastcgi_cache_key a; fastcgi_pass 127.0.0.1:1; } }",
            "\"fastcgi_cache\" zone \"c\" is unknown",
        ),
        (
            "fastcgi_cache_path /tmp/x levels=1;",
            "\"fastcgi_cache_path\" must have \"keys_zone\" parameter",
        ),
        (
            "fastcgi_convert_head on;",
            "unknown directive \"fastcgi_convert_head\"",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(sentence), "{text}: {said}");
    }
}
