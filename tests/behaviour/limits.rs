//! Limits on how fast requests come, and on how many are answered at the same time.

use std::time::{Duration, Instant};

use blackbox::{Connection, PATIENCE, Server, is_nginx};

/// A rate of which nothing comes back while a test runs.
const SLOW: &str = "limit_req_zone $arg_key zone=slow:1m rate=1r/m;";

fn status(server: &Server, path: &str) -> u16 {
    server.get(path).status
}

#[test]
fn what_comes_too_fast_is_refused_by_its_key() {
    let server = Server::start(&format!(
        "{SLOW} limit_req_zone $arg_other zone=other:1m rate=1r/m;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ limit_req zone=slow; try_files /none =204; }}
             location /burst {{ limit_req zone=slow burst=2 nodelay; limit_req_status 429; try_files /none =204; }}
             location /denied {{ limit_req zone=slow; deny all; }}
             location /both {{ limit_req zone=slow burst=1 nodelay; limit_req zone=other; try_files /none =204; }}
             location /sub {{ limit_req zone=slow; auth_request /auth; try_files /none =204; }}
             location = /auth {{ limit_req zone=slow; return 204; }} }}"
    ));
    assert_eq!(status(&server, "/?key=a"), 204);
    assert_eq!(status(&server, "/?key=a"), 503);
    assert_eq!(status(&server, "/?key=b"), 204);
    for _ in 0..3 {
        assert_eq!(status(&server, "/"), 204, "an empty key is not counted");
    }
    server.wait_for("[error]", "that it is said");
    server.wait_for("by zone \"slow\", client: 127.0.0.1", "why");

    let burst: Vec<u16> = (0..4).map(|_| status(&server, "/burst?key=c")).collect();
    assert_eq!(burst, [204, 204, 204, 429]);
    // The limit is asked before the rules.
    assert_eq!(status(&server, "/denied?key=d"), 403);
    assert_eq!(status(&server, "/denied?key=d"), 503);
    // What one zone refuses, the other does not charge.
    assert_eq!(status(&server, "/both?key=e&other=e"), 204);
    assert_eq!(status(&server, "/both?key=e&other=e"), 503);
    assert_eq!(status(&server, "/both?key=e&other=f"), 204);
    assert_eq!(status(&server, "/both?key=e&other=g"), 503);
    // A request and its sub-requests are one.
    assert_eq!(status(&server, "/sub?key=f"), 204);
    let long = "k".repeat(4000);
    assert_eq!(status(&server, &format!("/?key={long}")), 204);
    assert_eq!(status(&server, &format!("/?key={long}")), 503);
    server.forget_log();
}

#[test]
fn a_rate_that_is_no_size_is_told_and_limits_nothing() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; limit_rate $arg_r; limit_rate_after $arg_a; return 200 x; }",
    );
    for (target, text) in [("/?r=abc", "abc"), ("/", ""), ("/?r=1m&a=1x", "1x")] {
        assert_eq!(server.get(target).text(), "x", "{target}");
        let line = format!("invalid size \"{text}\", client: 127.0.0.1");
        server.wait_for(&line, target);
    }
    server.wait_for("[error]", "the level");
}

#[test]
fn what_is_a_little_too_fast_waits() {
    let server = Server::start(&format!(
        "{SLOW} limit_req_zone $arg_key zone=fast:1m rate=1r/s;
         add_header X-Said \"$limit_req_status\" always;
         server {{ listen 127.0.0.1:%PORT%; limit_req_log_level notice;
             location / {{ limit_req zone=fast burst=2; try_files /none =204; }}
             location /delay {{ limit_req zone=fast burst=5 delay=1; try_files /none =204; }}
             location /dry {{ limit_req zone=slow burst=1; limit_req_dry_run on; try_files /none =204; }}
             location /free {{ try_files /none =204; }} }}"
    ));
    let said = |path: &str| {
        let reply = server.get(path);
        assert_eq!(reply.status, 204);
        reply.header("X-Said").unwrap_or("nothing").to_owned()
    };
    let start = Instant::now();
    assert_eq!(said("/?key=a"), "PASSED");
    assert_eq!(said("/?key=a"), "DELAYED");
    // The clock of the server has a coarse tick.
    assert!(start.elapsed() >= Duration::from_millis(900), "it waited");
    server.wait_for("[info]", "the level below");
    server.wait_for("delaying request, excess: ", "why");
    let delay: Vec<String> = (0..3).map(|_| said("/delay?key=b")).collect();
    assert_eq!(delay, ["PASSED", "PASSED", "DELAYED"]);
    let dry: Vec<String> = (0..3).map(|_| said("/dry?key=c")).collect();
    assert_eq!(dry, ["PASSED", "DELAYED_DRY_RUN", "REJECTED_DRY_RUN"]);
    server.wait_for("delaying request, dry run, excess: ", "why");
    server.wait_for("limiting requests, dry run, excess: ", "why");
    assert_eq!(said("/free?key=a"), "nothing");
    // A client that leaves meanwhile is not answered.
    said("/?key=d");
    let mut leaving = server.connect();
    leaving.send("GET /?key=d&left HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(leaving);
    server.wait_for(
        "client prematurely closed connection, client: 127.0.0.1",
        "that it left",
    );
    assert!(server.access_log(9).contains("left HTTP/1.1\" 499 "));
}

#[test]
fn all_loops_count_together_and_go_on_over_a_reload() {
    let http = |burst: u32| {
        format!(
            "{SLOW} limit_conn_zone $arg_key zone=conn:1m;
             server {{ listen 127.0.0.1:%PORT%;
                 limit_req zone=slow burst={burst} nodelay; try_files /none =204; }}"
        )
    };
    let main = "worker_processes 4;";
    let server = Server::start_with(main, &http(20));
    let mut connections: Vec<Connection> = (0..40).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.send("GET /?key=a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let statuses = connections
        .iter_mut()
        .map(|connection| connection.reply().status);
    let passed = statuses.filter(|status| *status == 204).count();
    assert_eq!(passed, 21);
    server.reload_with(main, &http(21));
    assert_eq!(status(&server, "/?key=a"), 204, "one more may come");
    assert_eq!(status(&server, "/?key=a"), 503);
    // The same zone with another key is another thing.
    let other = http(21).replace("$arg_key zone=slow", "$uri zone=slow");
    server.reload_file(&format!(
        "daemon off; pid nginx.pid; error_log logs/error.log info; {main} events {{ }} http {{ {other} }}"
    ));
    let refused =
        "limit_req \"slow\" uses the \"$uri\" key while previously it used the \"$arg_key\" key";
    server.wait_for(refused, "why nothing changes");
    assert_eq!(status(&server, "/?key=a"), 503);
    server.forget_log();
}

#[test]
fn only_so_many_requests_are_answered_at_a_time() {
    let server = Server::start_with(
        "worker_processes 2;",
        "limit_conn_zone $arg_key zone=conn:1m; limit_conn_zone $arg_other zone=other:1m;
         add_header X-Said \"$limit_conn_status\" always;
         server { listen 127.0.0.1:%PORT%; limit_rate 1k;
             location / { limit_conn conn 2; limit_conn_status 429; limit_conn_log_level warn; }
             location /both/ { alias html/; limit_conn conn 2; limit_conn other 1; }
             location /dry/ { alias html/; limit_conn conn 2; limit_conn_dry_run on; } }",
    );
    server.file("large", vec![b'x'; 1 << 20]);
    server.file("small", "content");
    let hold = |path: &str| {
        let mut held = server.connect();
        held.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        held.until("\r\n\r\n");
        held
    };
    let said = |path: &str| {
        let reply = server.get(path);
        let said = reply.header("X-Said").unwrap_or("nothing").to_owned();
        (reply.status, said)
    };
    let first = hold("/large?key=a");
    let second = hold("/large?key=a");
    assert_eq!(said("/small?key=a"), (429, "REJECTED".to_owned()));
    assert_eq!(said("/small?key=b"), (200, "PASSED".to_owned()));
    assert_eq!(said("/small"), (200, "nothing".to_owned()));
    assert_eq!(
        said("/dry/small?key=a"),
        (200, "REJECTED_DRY_RUN".to_owned())
    );
    server.wait_for("[warn]", "the level");
    server.wait_for(
        "limiting connections by zone \"conn\", client: 127.0.0.1",
        "why",
    );
    server.wait_for("limiting connections, dry run, by zone \"conn\"", "why");
    drop(first);
    let end = Instant::now() + PATIENCE;
    while said("/small?key=a").0 != 200 {
        assert!(Instant::now() < end, "who has left is not counted");
    }
    // What the second zone refuses is not counted in the first one.
    let third = hold("/both/large?key=c&other=c");
    assert_eq!(said("/both/small?key=c&other=c").0, 503);
    assert_eq!(said("/both/small?key=c&other=d").0, 200);
    // A connection between two requests is none.
    let mut kept = server.connect();
    for _ in 0..3 {
        kept.send("GET /small?key=a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(kept.reply().status, 200);
    }
    drop((second, third));
    server.forget_log();
}

#[test]
fn a_request_counts_and_is_not_logged_until_it_is_answered() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "limit_conn_zone $arg_key zone=conn:1m; lingering_time 1h; lingering_timeout 1h;
         server { listen 127.0.0.1:%PORT%; location / { limit_conn conn 1; try_files /none =204; } }",
    );
    let mut client = server.connect();
    client.send("POST /?key=a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    assert_eq!(client.reply().status, 204);
    // Its body is still on the way.
    assert!(server.access_log(1).contains("POST /?key=a"));
    assert_eq!(status(&server, "/?key=a"), 204);
    client.send("x".repeat(100));
    client.send("GET /?key=a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.reply().status, 204);
}

#[test]
fn wrong_lines_are_refused() {
    for (line, sentence) in [
        (
            "limit_req zone=none;",
            "zero size shared memory zone \"none\"",
        ),
        (
            "limit_conn none 1;",
            "zero size shared memory zone \"none\"",
        ),
        (
            "limit_req zone=slow; limit_req zone=slow;",
            "\"limit_req\" directive is duplicate",
        ),
        (
            "limit_conn conn 1; limit_conn conn 2;",
            "\"limit_conn\" directive is duplicate",
        ),
        (
            "limit_req burst=1;",
            "\"limit_req\" must have \"zone\" parameter",
        ),
        (
            "limit_req zone=slow burst=0;",
            "invalid burst value \"burst=0\"",
        ),
        (
            "limit_req zone=slow delay=a;",
            "invalid delay value \"delay=a\"",
        ),
        ("limit_req zone=slow fast;", "invalid parameter \"fast\""),
        ("limit_conn conn 0;", "invalid number of connections \"0\""),
        (
            "limit_conn conn 65536;",
            "connection limit must be less 65536",
        ),
        ("limit_req_status 399;", "value must be between 400 and 599"),
        ("limit_conn_log_level loud;", "invalid value \"loud\""),
        (
            "limit_conn slow 1;",
            "the shared memory zone \"slow\" is already declared for a different use",
        ),
    ] {
        let http = format!(
            "{SLOW} limit_conn_zone $arg_key zone=conn:1m; server {{ listen 127.0.0.1:%PORT%; {line} }}"
        );
        let text = format!("daemon off; pid nginx.pid; events {{ }} http {{ {http} }}");
        let Err(refused) = Server::try_start(&text) else {
            panic!("{line} is accepted");
        };
        assert!(
            refused.stderr.contains(sentence),
            "{line}: {}",
            refused.stderr
        );
    }
}

/// A mirror is not waited for: its places are taken until it has ended, and not until the client is answered.
#[test]
fn a_mirror_counts_until_it_has_ended() {
    if is_nginx() {
        return;
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let server = Server::start(&format!(
        "limit_conn_zone $server_name zone=m:1m; limit_conn_zone $arg_key zone=own:1m;
         log_format said '$uri $status $limit_conn_status';
         server {{ listen 127.0.0.1:%PORT%; server_name h; access_log logs/access.log said;
             location / {{ mirror /m; }}
             location /own {{ limit_conn own 1; mirror /m; alias html/f; }}
             location = /m {{ internal; limit_conn m 1; log_subrequest on; proxy_pass http://{}; }} }}",
        silent.local_addr().expect("it is bound")
    ));
    server.file("f", "content");
    assert_eq!(status(&server, "/f"), 200);
    assert_eq!(status(&server, "/f"), 200);
    let log = server.access_log(3);
    assert!(log.contains("/m 503 REJECTED\n"), "{log}");
    for _ in 0..3 {
        assert_eq!(status(&server, "/own?key=a"), 200, "the request has ended");
    }
    // Mirrors that wait hold up the server's end.
    drop(silent);
    server.forget_log();
}
