//! Access and error logs.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{PATIENCE, Server, Site, is_nginx, until};
use nix::sys::signal::Signal;

#[test]
fn formats_escape_and_conditions_decide() {
    let server = Server::start(
        "log_format plain '$status $request_method $uri \"$http_user_agent\" $body_bytes_sent';
         log_format json escape=json '{\"agent\":\"$http_user_agent\"}';
         map $arg_log $wanted { default 1; no 0; }
         server { listen 127.0.0.1:%PORT%;
            access_log logs/access.log plain if=$wanted;
            location /json { access_log logs/access.log json; return 200 x; }
            location /off { access_log off; return 200 x; }
            location / { return 200 four; } }",
    );
    server.get_with("/a", "User-Agent: q\"\\\x7f\r\n");
    server.get("/b");
    server.get("/c?log=no");
    server.get("/off");
    server.get_with("/json", "User-Agent: q\"\\\r\n");
    let log = server.access_log(3);
    assert_eq!(
        log,
        "200 GET /a \"q\\x22\\x5C\\x7F\" 4\n200 GET /b \"-\" 4\n{\"agent\":\"q\\\"\\\\\"}\n"
    );
}

#[test]
fn a_variable_has_its_value_of_the_moment() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "log_format body '$request_body';
         server { listen 127.0.0.1:%PORT%; listen 127.0.0.1:%PORT2%; access_log logs/access.log body;
            location / { if ($request_body ~ x) { return 403; } proxy_pass http://127.0.0.1:%PORT2%/got; }
            location /got { return 204; } }",
    );
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz");
    assert_eq!(client.reply().status, 204);
    assert!(server.access_log(2).contains("xyz\n"));
}

#[test]
fn combined_is_the_default_and_refused_requests_are_logged() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 200 x; }");
    server.raw("GET /../x HTTP/1.0\r\n\r\n");
    let log = server.access_log(1);
    assert!(log.starts_with("127.0.0.1 - - ["), "{log}");
    assert!(log.contains("] \"GET /../x HTTP/1.0\" 400 "), "{log}");
}

#[test]
fn the_log_is_complete_after_quit() {
    let mut server = Server::start(
        "server { listen 127.0.0.1:%PORT%; access_log logs/buffered.log combined buffer=64k flush=1m; return 200 x; }",
    );
    let mut connection = server.connect();
    for _ in 0..100 {
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    }
    drop(connection);
    assert!(server.quit().success());
    assert_eq!(server.read("logs/buffered.log").lines().count(), 100);
}

#[test]
fn the_user_is_the_one_of_the_authorization() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 200 [$remote_user]; }");
    let user = |value: &str| {
        server
            .get_with("/", &format!("Authorization: {value}\r\n"))
            .text()
    };
    assert_eq!(user("Basic dXNlcjpwYXNz"), "[user]");
    assert_eq!(user("Basic dXNlcg=="), "[]");
    assert!(server.access_log(2).starts_with("127.0.0.1 - user ["));
}

#[test]
fn empty_arguments_are_told_from_none() {
    let server = Server::start(
        "log_format a '[$uri:$args]';
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log a;
             location /set { set $args ''; return 200; }
             location /cut { rewrite ^ /got? last; }
             location /give { rewrite ^ /got?$none last; set $none ''; }
             location /try { try_files /nowhere /got; }
             location /page { error_page 404 /got; }
             location /empty { error_page 404 /got?; }
             location /got { return 200; } }",
    );
    let cases = [
        ("/got", "[/got:-]"),
        ("/got?", "[/got:-]"),
        ("/got?a", "[/got:a]"),
        ("/set", "[/set:]"),
        ("/set?a", "[/set:]"),
        ("/cut", "[/got:-]"),
        ("/cut?a", "[/got:]"),
        ("/give", "[/got:]"),
        ("/try", "[/got:]"),
        ("/page?a", "[/got:-]"),
        ("/empty", "[/got:]"),
    ];
    for (number, (target, logged)) in cases.into_iter().enumerate() {
        server.get(target);
        let log = server.access_log(number + 1);
        assert_eq!(log.lines().last(), Some(logged), "{target}");
    }
}

#[test]
fn a_request_that_breaks_off_is_logged() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; location / { return 200 x; } }");
    let mut left = server.connect();
    left.send("GET /left HTTP/1.1\r\nHo");
    drop(left);
    let log = server.access_log(1);
    assert!(log.contains("\"GET /left HTTP/1.1\" 400 0 "), "{log}");
    let mut reset = server.connect();
    reset.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /reset HTTP/1.1\r\nHo");
    let log = server.access_log(2);
    assert!(log.contains("\"GET /first HTTP/1.1\" 200 1 "), "{log}");
    // With an answer in it that nobody has read, the kernel resets the connection.
    drop(reset);
    let log = server.access_log(3);
    assert!(log.contains("\"GET /reset HTTP/1.1\" 400 0 "), "{log}");
}

#[test]
fn lines_say_what_was_being_done() {
    let server = Server::start(
        "log_format f $unset; uninitialized_variable_warn on;
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log f; set $set 1;
             location /set { set $unset 1; return 200; }
             location / { ssi on; ssi_types *; }
             location /passed { ssi on; ssi_types *; proxy_pass http://127.0.0.1:%PORT%/plain; }
             location /plain { default_type text/html; ssi off; return 200 '<!--#nosuch -->'; }
             location /asking { auth_request /asked; }
             location = /asked { proxy_pass http://127.0.0.1:%PORT3%; } }",
    );
    server.file("page.html", "<!--#nosuch -->");
    for (target, line) in [
        (
            "/page.html",
            "invalid SSI command: \"nosuch\" while sending response to client, client: ",
        ),
        (
            "/passed",
            "invalid SSI command: \"nosuch\" while sending to client, client: ",
        ),
        (
            "/asking",
            "while connecting to upstream, client: 127.0.0.1, server: , request: \"GET /asking HTTP/1.1\", subrequest: \"/asked\", upstream: ",
        ),
        (
            "/plain",
            "using uninitialized \"unset\" variable while logging request, client: ",
        ),
    ] {
        server.get(target);
        server.wait_for(line, target);
    }
}

#[test]
fn a_reload_changes_the_error_log_of_all_servers_at_once() {
    let http = "server { listen 127.0.0.1:%PORT%; location / { return 200 x; }
        location /missing { root %DIR%/html; } }";
    let server = Server::start_with("error_log logs/first.log crit;", http);
    server.get("/missing/0");
    server.reload_with("error_log logs/first.log info;", http);
    server.get("/missing/1");
    let reached = |name: &str, path: &str| {
        until("the request's line", PATIENCE, || {
            server.read(name).contains(path).then_some(())
        });
    };
    reached("logs/first.log", "\"GET /missing/1 ");
    server.reload_with("error_log logs/second.log info;", http);
    server.get("/missing/2");
    reached("logs/second.log", "\"GET /missing/2 ");
    let first = server.read("logs/first.log");
    assert!(
        !first.contains("/missing/0") && !first.contains("/missing/2"),
        "{first}"
    );
}

#[test]
fn a_pipe_whose_reader_stops_holds_up_neither_other_logs_nor_signals() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let pipe = site.path("logs/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o666))
        .expect("the directory can be written");
    let reader = std::fs::File::options().read(true).write(true).open(&pipe);
    let http = "log_format long $request_uri;
        server { listen 127.0.0.1:%PORT%;
            location /pipe { access_log logs/pipe long; return 200; }
            location / { return 200 VERSION; } }";
    let mut server = Server::start_on(site, "", &http.replace("VERSION", "one"));
    let request = format!("GET /pipe/{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(4000));
    let mut connection = server.connect();
    for _ in 0..100 {
        connection.send(&request).reply();
    }
    server.wait_for("its reader does not read", "the complaint");
    server.forget_log();
    std::fs::rename(
        server.site().path("logs/access.log"),
        server.site().path("logs/access.log.0"),
    )
    .expect("the log is there");
    server.signal(Signal::SIGUSR1);
    until("the new file is written to", PATIENCE, || {
        server.get("/");
        (!server.read("logs/access.log").is_empty()).then_some(())
    });
    server.reload(&http.replace("VERSION", "two"));
    assert_eq!(server.get("/").text(), "two");
    connection.send(&request).reply();
    assert!(server.quit().success());
    drop(reader);
}

#[test]
fn a_reload_without_a_buffered_log_writes_its_lines() {
    let http = "server { listen 127.0.0.1:%PORT%; location / { return 200 x; }
        location /large { limit_rate 1k; } LOG }";
    let log = "access_log logs/buffered.log combined buffer=64k;";
    let server = Server::start(&http.replace("LOG", log));
    server.file("large", vec![b'x'; 1 << 20]);
    // A request of the old configuration goes on; nginx's old worker writes at its end, and would not end.
    let _old = (!is_nginx()).then(|| {
        let mut old = server.connect();
        old.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        old
    });
    server.get("/kept-back");
    server.reload(&http.replace("LOG", ""));
    until("the gathered line", PATIENCE, || {
        server
            .read("logs/buffered.log")
            .contains("/kept-back")
            .then_some(())
    });
}

#[test]
fn a_client_that_resets_is_told_with_the_number_of_the_error() {
    let server =
        Server::start("server { listen 127.0.0.1:%PORT%; location = / { return 200 x; } }");
    server.file("large", vec![b'x'; 16 << 20]);
    // Closed with data that was not read, a socket sends RST.
    let leave_behind = |asks: &str| {
        let mut client = server.connect();
        client
            .send(asks)
            .stream()
            .peek(&mut [0])
            .expect("a response comes");
    };
    leave_behind("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /midway HT");
    let told =
        "recv() failed (104: Connection reset by peer) while reading client request line, client: ";
    server.wait_for(told, "a request midway");
    leave_behind("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let sending = " while sending response to client";
    server.wait_for(sending, "a response midway");
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains(sending));
    // Which error it is depends on the call that meets it first.
    assert!(
        line.is_some_and(|line| line.contains("() failed (")),
        "{log}"
    );
}
