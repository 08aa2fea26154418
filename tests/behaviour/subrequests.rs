//! Requests that ask the server something besides: who may pass, and copies of themselves.

use blackbox::{Answer, Origin, PATIENCE, Server, is_nginx};

const LOG: &str = "log_format sub '$uri $request_method $request_uri [$request_body] $status';";

fn status(server: &Server, path: &str) -> u16 {
    server.get(path).status
}

#[test]
fn a_subrequest_says_who_may_pass() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location /ok { auth_request /auth/204; return 200 no; }
             location /files/ { alias %DIR%/html/; auth_request /auth/200; }
             location /made { auth_request /auth/204; try_files /none =410; }
             location /forbidden { auth_request /auth/403; try_files /none =410; }
             location /unknown { auth_request /auth/401; try_files /none =410; }
             location /broken { auth_request /auth/500; try_files /none =410; }
             location /moved { auth_request /auth/301; try_files /none =410; }
             location /none { auth_request /no/such; try_files /none =410; }
             location /page { auth_request /auth/403; error_page 403 /auth/200; try_files /none =410; }
             location /off/ { auth_request off; try_files /none =410; }
             auth_request /auth/403;
             location = /auth/200 { internal; auth_request /auth/403; return 200 page; }
             location = /auth/204 { internal; return 204; }
             location = /auth/401 { internal; return 401; }
             location = /auth/403 { internal; return 403; }
             location = /auth/500 { internal; return 500; }
             location = /auth/301 { internal; return 301 /; } }",
    );
    server.file("a", "content");
    for (path, expected) in [
        ("/ok", 200),
        ("/made", 410),
        ("/forbidden", 403),
        ("/unknown", 401),
        ("/broken", 500),
        ("/moved", 500),
        ("/none", 500),
        ("/off/", 410),
        ("/inherited", 403),
        ("/auth/204", 404),
    ] {
        assert_eq!(status(&server, path), expected, "{path}");
    }
    assert_eq!(server.get("/files/a").text(), "content");
    let page = server.get("/page");
    assert_eq!((page.status, page.text().as_str()), (403, "page"));
    server.wait_for("auth request unexpected status: 301", "the reason");
    server.wait_for("subrequest: \"/no/such\"", "whose line it is");
    server.forget_log();
}

/// As in nginx the lines of a sub-request, and of its servers, are in the log of the client's request.
#[test]
fn the_errors_of_a_subrequest_are_told_in_the_log_of_the_request_that_made_it() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location /app { error_log %DIR%/logs/app.log; auth_request /auth; try_files /none =410; }
             location = /auth { internal; error_log %DIR%/logs/auth.log crit; proxy_pass http://127.0.0.1:1; } }",
    );
    assert_eq!(status(&server, "/app"), 500);
    let begun = std::time::Instant::now();
    let mut log = String::new();
    while !log.contains("auth request unexpected status: 502") {
        assert!(begun.elapsed() < PATIENCE, "{log}");
        log = server.read("logs/app.log");
    }
    let told = log.lines().any(|line| {
        line.contains("connect() failed (111") && line.contains("subrequest: \"/auth\"")
    });
    assert!(told, "{log}");
    assert_eq!(server.read("logs/auth.log"), "");
}

#[test]
fn bodies_and_connections_survive_an_auth_request() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location / { auth_request /auth; try_files /none =410; }
             location = /auth { internal; return 204; } }",
    );
    let mut connection = server.connect();
    for _ in 0..2 {
        connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(connection.reply().status, 410);
    }
}

#[test]
fn variables_are_set_of_the_answer_of_a_subrequest() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location / { auth_request /auth; auth_request_set $user $uri-$status;
                 auth_request_set $args new=1; add_header X-User $user; add_header X-Args $args;
                 add_header X-Uri $uri; try_files /a =404; }
             location /refused { auth_request /auth403; auth_request_set $user $uri-$status; error_page 403 /page; }
             location = /page { add_header X-User $user always; return 200; }
             location = /auth { internal; return 204; }
             location = /auth403 { internal; return 403; } }",
    );
    server.file("a", "content");
    let reply = server.get("/x");
    assert_eq!(reply.header("x-user"), Some("/auth-204"));
    assert_eq!(reply.header("x-args"), Some("new=1"));
    assert_eq!(reply.header("x-uri"), Some("/a"));
    let reply = server.get("/refused");
    assert_eq!(reply.header("x-user"), Some("/auth403-403"));
}

#[test]
fn all_or_any_must_be_satisfied() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location /all/ { satisfy all; deny all; auth_request /auth/204; try_files /none =410; }
             location /all/2 { satisfy all; allow all; auth_request /auth/401; try_files /none =410; }
             location /any/ { satisfy any; deny all; auth_request /auth/204; try_files /none =410; }
             location /any/2 { satisfy any; allow all; auth_request /auth/401; try_files /none =410; }
             location /any/3 { satisfy any; deny all; auth_request /auth/401; try_files /none =410; }
             location /any/4 { satisfy any; deny all; auth_request /auth/403; try_files /none =410; }
             location /any/5 { satisfy any; deny all; auth_request /auth/500; try_files /none =410; }
             location = /auth/204 { return 204; }
             location = /auth/401 { return 401; }
             location = /auth/403 { return 403; }
             location = /auth/500 { return 500; } }",
    );
    for (path, expected) in [
        ("/all/", 403),
        ("/all/2", 401),
        ("/any/", 410),
        ("/any/2", 410),
        ("/any/3", 401),
        ("/any/4", 403),
        ("/any/5", 500),
    ] {
        assert_eq!(status(&server, path), expected, "{path}");
    }
    server.wait_for("access forbidden by rule", "the reason");
    server.forget_log();
}

#[test]
fn subrequests_are_logged_where_that_is_wanted() {
    let server = Server::start(&format!(
        "{LOG} server {{ listen 127.0.0.1:%PORT%; access_log logs/sub.log sub;
             location / {{ mirror /mirror/1; mirror /mirror/2; }}
             location /without {{ mirror /mirror/1; mirror_request_body off; }}
             location /mirror/ {{ internal; log_subrequest on; mirror /mirror/1; return 204; }}
             location /mirror/2 {{ internal; return 204; }} }}"
    ));
    let mut connection = server.connect();
    let body = "Host: a\r\nContent-Length: 5\r\n\r\nhello";
    for path in ["/x?y", "/without"] {
        connection.send(format!("PUT {path} HTTP/1.1\r\n{body}"));
        assert_eq!(connection.reply().status, 405);
    }
    let lines = [
        "/mirror/1 PUT /x?y [hello] 204\n",
        "/x PUT /x?y [hello] 405\n",
        "/mirror/1 PUT /without [-] 204\n",
        "/without PUT /without [-] 405\n",
    ];
    let mut log = String::new();
    let begun = std::time::Instant::now();
    while log.lines().count() < lines.len() {
        assert!(begun.elapsed() < PATIENCE, "{log}");
        log = server.read("logs/sub.log");
    }
    for line in lines {
        assert!(log.contains(line), "{log}");
    }
    assert_eq!(log.lines().count(), lines.len(), "{log}");
}

#[test]
fn a_body_that_is_none_is_found_before_it_is_mirrored() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location / { mirror /mirror; }
             location /mirror { internal; return 204; } }",
    );
    let chunked = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let reply = server.raw(format!("POST / HTTP/1.1\r\n{chunked}x\r\n"));
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    server.forget_log();
}

#[test]
fn a_server_behind_says_who_may_pass() {
    let origin = Origin::start(|request| match request.target() {
        "/auth" => Answer::with("200 OK", "X-User: jane\r\n", "she may"),
        "/who" => Answer::with(
            "401 Unauthorized",
            "WWW-Authenticate: Basic realm=a\r\nWWW-Authenticate: Other\r\n",
            "who?",
        ),
        _ => Answer::ok(format!("hello {}", request.header("x-user").unwrap_or("?"))),
    });
    let server = Server::start(&format!(
        "upstream u {{ server {0}; keepalive 4; }} server {{ listen 127.0.0.1:%PORT%;
             location / {{ auth_request /check; auth_request_set $user $upstream_http_x_user;
                 proxy_set_header X-User $user; proxy_pass http://u; }}
             location /unknown {{ auth_request /who; proxy_pass http://u; }}
             location = /check {{ proxy_pass http://u/auth; proxy_pass_request_body off;
                 proxy_set_header Content-Length \"\"; proxy_set_header X-Uri $request_uri; }}
             location = /who {{ proxy_pass http://u; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; }} }}",
        origin.address()
    ));
    let mut connection = server.connect();
    for _ in 0..2 {
        connection.send("POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(connection.reply().text(), "hello jane");
    }
    let asked = origin.received();
    let check = &asked[asked.len() - 2];
    assert_eq!(check.line(), "GET /auth HTTP/1.1");
    assert_eq!(check.header("x-uri"), Some("/a?b"));
    assert_eq!(check.body, b"");
    assert_eq!(origin.last().body, b"hello");
    let all: Vec<_> = asked
        .iter()
        .map(|r| (r.connection, r.target().to_owned()))
        .collect();
    // nginx closes the connection of an answer whose body it does not want.
    if !is_nginx() {
        assert_eq!(check.connection, asked[0].connection, "{all:?}");
    }
    let reply = server.get("/unknown");
    assert_eq!(reply.status, 401);
    assert_eq!(reply.all("www-authenticate"), ["Basic realm=a", "Other"]);
}

#[test]
fn mirrors_get_the_whole_request_and_hold_nobody_up() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let silent = Origin::start(|_| {
        Answer::Talk(Box::new(|mut stream| {
            // Until the server under test has gone.
            let _ = std::io::Read::read(&mut stream, &mut [0]);
        }))
    });
    let server = Server::start(&format!(
        "client_body_buffer_size 1k; client_body_temp_path %DIR%/bodies;
         server {{ listen 127.0.0.1:%PORT%; 
             location / {{ mirror /mirror; mirror /silent; proxy_pass http://{0}; }}
             location = /mirror {{ internal; proxy_pass http://{0}/copy$request_uri; }}
             location = /silent {{ internal; proxy_read_timeout 1s; proxy_pass http://{1}; }} }}",
        origin.address(),
        silent.address()
    ));
    let body: String = (0..5000).map(|i| format!("{i} ")).collect();
    let mut connection = server.connect();
    for round in 1..=2 {
        let length = body.len();
        connection.send(format!(
            "PUT /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(connection.reply().text(), "x");
        origin.wait(2 * round);
    }
    let mut targets: Vec<String> = Vec::new();
    for request in origin.received() {
        assert!(request.body == body.as_bytes(), "{}", request.line());
        targets.push(request.line().to_owned());
    }
    targets.sort();
    let (plain, copy) = ("PUT /a?b HTTP/1.1", "PUT /copy/a?b HTTP/1.1");
    assert_eq!(targets, [plain, plain, copy, copy]);
    server.forget_log();
}

#[test]
fn a_client_that_leaves_takes_its_subrequest_along_unless_that_is_ignored() {
    let (left, has_left) = std::sync::mpsc::channel();
    let left = std::sync::Mutex::new(left);
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let is_released = std::sync::Mutex::new(Some(is_released));
    let origin = Origin::start(move |request| {
        if request.target() == "/stubborn" {
            let is_released = is_released.lock().unwrap().take().unwrap();
            return Answer::Talk(Box::new(move |mut stream| {
                let _ = is_released.recv_timeout(PATIENCE);
                let _ = std::io::Write::write_all(
                    &mut stream,
                    b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
                );
            }));
        }
        let left = left.lock().unwrap().clone();
        Answer::Talk(Box::new(move |mut stream| {
            let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
            let _ = left.send(());
        }))
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log;
             location / {{ auth_request /ask; try_files /none =410; }}
             location /stays/ {{ auth_request /stubborn; try_files /none =410; }}
             location = /ask {{ internal; proxy_pass http://{0}; }}
             location = /stubborn {{ internal; proxy_ignore_client_abort on; proxy_pass http://{0}; }} }}",
        origin.address()
    ));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait(1);
    drop(client);
    has_left
        .recv_timeout(PATIENCE)
        .expect("the server behind is left too");
    let log = server.access_log(1);
    assert!(log.contains("\" 499 0 "), "{log}");

    let mut client = server.connect();
    client.send("GET /stays/ HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait(2);
    drop(client);
    // By now another request has come and gone, so the loop has seen the end of the other's connection.
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait(3);
    drop(client);
    assert!(server.access_log(2).ends_with(" 499 0 \"-\" \"-\"\n"));
    release.send(()).unwrap();
    let log = server.access_log(3);
    assert!(log.lines().last().unwrap().contains("\" 410 "), "{log}");
}
