//! Bodies of requests that somebody wants: in memory, in files, piece by piece.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they may look at files"
)]

use blackbox::{Connection, PATIENCE, Server, Site, is_nginx};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMITS: &str = "client_body_buffer_size 1k;";

/// The program whose `/stored`, `/twice`, `/passing` and `/early` answer with the body; `None`: nginx is tested.
fn echoing(settings: &str) -> Option<Server> {
    echoing_on("worker_processes 1;", settings)
}

fn echoing_on(main: &str, settings: &str) -> Option<Server> {
    if is_nginx() {
        return None;
    }
    let site = Site::of(Path::new(env!("CARGO_BIN_EXE_told-module")))
        .with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let dir = site.path("bodies");
    std::fs::create_dir(&dir).expect("the site is ours");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&dir, all).expect("the directory is ours");
    let http = format!(
        "{LIMITS} client_body_temp_path %DIR%/bodies 1 2; {settings}
         log_format body '$uri [$request_body] [$content_length] $request_length $status';
         server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log body;
             add_header X-File $request_body_file;
             location / {{ echo_body $arg_how; }}
             location /small {{ client_max_body_size 10; echo_body $arg_how; }} }}"
    );
    Some(Server::start_on(site, main, &http))
}

fn post(connection: &mut Connection, how: &str, body: &[u8]) -> String {
    let head = format!(
        "POST /?how={how} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.send([head.as_bytes(), body].concat());
    connection.reply().text().to_owned()
}

fn files(server: &Server) -> usize {
    fn count(dir: &Path) -> usize {
        std::fs::read_dir(dir)
            .expect("a directory that is there")
            .filter_map(|entry| Some(entry.ok()?.path()))
            .map(|path| if path.is_dir() { count(&path) } else { 1 })
            .sum()
    }
    count(&server.site().path("bodies"))
}

#[test]
fn a_small_body_is_in_memory_and_a_large_one_in_a_file_without_a_name() {
    let Some(server) = echoing("") else { return };
    let mut connection = server.connect();
    assert_eq!(post(&mut connection, "stored", b"hello"), "hello");
    assert_eq!(post(&mut connection, "twice", b"hello"), "hellohello");
    let large: String = (0..60_000).map(|i| format!("{i} ")).collect();
    assert_eq!(post(&mut connection, "stored", large.as_bytes()), large);
    assert_eq!(files(&server), 0);
    let twice = post(&mut connection, "twice", large.as_bytes());
    assert!(twice == format!("{large}{large}"), "{}", twice.len());
    // A quarter over the buffer is still one buffer.
    post(&mut connection, "stored", &[b'x'; 1270]);
    server.wait_for(
        "a client request body is buffered to a temporary file",
        "the warning",
    );
    let told = server.error_log().matches("is buffered to a temp").count();
    assert_eq!(told, 2);
    let log = server.access_log(5);
    assert!(log.starts_with("/ [hello] [5] "), "{log}");
    assert!(log.contains(&format!("/ [-] [{}] ", large.len())), "{log}");
    server.forget_log();
}

#[test]
fn a_chunked_body_has_a_length_once_it_was_read() {
    let Some(server) = echoing("") else { return };
    let mut connection = server.connect();
    for how in ["stored", "passing"] {
        connection.send(format!(
            "POST /?how={how} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
        ));
        let text = connection.reply().text().replace('|', "");
        assert_eq!(text, "abcdefg", "{how}");
    }
    let log = server.access_log(2);
    assert!(log.starts_with("/ [abcdefg] [7] 89 200\n"), "{log}");
    // It had come before anybody passed it on.
    assert!(log.contains("\n/ [abcdefg] [7] 90 200"), "{log}");
}

#[test]
fn a_body_that_passes_comes_piece_by_piece() {
    let Some(server) = echoing("") else { return };
    let mut connection = server.connect();
    connection.send("POST /?how=passing HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n");
    let invited = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(connection.read(invited.len()), invited);
    connection.send("abc");
    connection.send("def");
    assert_eq!(connection.reply().text().replace('|', ""), "abcdef");
    assert_eq!(post(&mut connection, "passing", b"next"), "|next");
}

#[test]
fn an_invitation_counts_as_sent_and_not_as_a_part_of_the_body() {
    let server = Server::start(
        "log_format sent '$bytes_sent $body_bytes_sent';
         server { listen 127.0.0.1:%PORT%; access_log logs/sent.log sent;
             location / { client_max_body_size 1m; return 200 x; } }",
    );
    let invited = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut connection = server.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
    assert_eq!(connection.reply().text(), "x");
    connection
        .send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert_eq!(connection.read(invited.len()), invited);
    connection.send("a");
    assert_eq!(connection.reply().text(), "x");
    let begun = std::time::Instant::now();
    let mut log = String::new();
    while log.lines().count() < 2 {
        assert!(begun.elapsed() < blackbox::PATIENCE, "{log}");
        log = server.read("logs/sent.log");
    }
    let numbers = |line: &str| -> Vec<usize> {
        let words = line.split(' ');
        words.map(|word| word.parse().expect("a number")).collect()
    };
    let lines: Vec<_> = log.lines().map(numbers).collect();
    assert_eq!(lines[1][0], lines[0][0] + invited.len());
    assert_eq!((lines[0][1], lines[1][1]), (1, 1));
}

#[test]
fn an_early_answer_ends_the_connection_of_a_body_that_passes() {
    let Some(server) = echoing("") else { return };
    let mut connection = server.connect();
    connection.send("POST /?how=early HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    let reply = connection.reply();
    assert_eq!(reply.text(), "|abc");
    assert_eq!(reply.header("connection"), Some("close"));
}

#[test]
fn bodies_that_are_too_large_or_none_are_refused() {
    let Some(server) = echoing("") else { return };
    for how in ["stored", "passing"] {
        for (body, status) in [
            ("b\r\nhello world\r\n0\r\n\r\n", 413),
            ("5\r\nhello\nx", 400),
            ("5\r\nhello\r\n0\r\n\r\n", 200),
        ] {
            let mut connection = server.connect();
            connection.send(format!(
                "POST /small?how={how} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
            ));
            assert_eq!(connection.reply().status, status, "{how} {body:?}");
        }
    }
    server.wait_for(
        "client intended to send too large chunked body: 0+11 bytes",
        "the reason",
    );
    server.forget_log();
}

#[test]
fn a_client_that_stops_or_leaves_gets_no_answer() {
    let Some(server) = echoing("client_body_timeout 2s;") else {
        return;
    };
    let head = "POST /?how=stored HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n";
    let mut slow = server.connect();
    slow.send(head).send([b'x'; 1500]);
    assert!(slow.is_closed());
    let log = server.access_log(1);
    assert!(log.ends_with(" 408\n"), "{log}");
    let mut gone = server.connect();
    gone.send(head).send([b'x'; 1500]);
    drop(gone);
    let log = server.access_log(2);
    assert!(log.ends_with(" 400\n"), "{log}");
    assert_eq!(files(&server), 0);
    server.forget_log();
}

#[test]
fn bodies_may_be_wanted_in_files_that_stay_or_go_with_the_request() {
    for (mode, left) in [("on", 1), ("clean", 0)] {
        let Some(server) = echoing(&format!("client_body_in_file_only {mode};")) else {
            return;
        };
        let mut connection = server.connect();
        connection.send("POST /?how=stored HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let reply = connection.reply();
        assert_eq!(reply.text(), "hello");
        let name = reply.header("x-file").unwrap().to_owned();
        let tail = name.strip_prefix(server.site().path("bodies").to_str().unwrap());
        assert_eq!(tail.unwrap(), "/1/00/0000000001");
        let begun = Instant::now();
        while files(&server) != left {
            assert!(begun.elapsed() < PATIENCE, "the file stays, or goes");
        }
        if left == 1 {
            assert_eq!(std::fs::read(name).unwrap(), b"hello");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_500_and_said_once() {
    let Some(server) = echoing("") else { return };
    std::fs::remove_dir_all(server.site().path("bodies")).unwrap();
    let mut connection = server.connect();
    connection.send("POST /?how=stored HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    connection.send([b'x'; 2000]);
    assert_eq!(connection.reply().status, 500);
    server.wait_for("[crit]", "the reason");
    let log = server.error_log();
    assert!(
        log.contains("failed (2: No such file or directory)"),
        "{log}"
    );
    server.forget_log();
}

#[test]
fn a_disk_that_stands_still_holds_its_client_back_and_nobody_else() {
    let Some(server) = echoing("client_max_body_size 0;") else {
        return;
    };
    let hold = server.site().path("hold");
    std::fs::write(&hold, "").unwrap();
    let mut large = server.connect();
    large.send("POST /?how=twice HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    large
        .stream()
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    const CHUNK: usize = 1 << 20;
    let chunk = [b"100000\r\n", &[b'x'; CHUNK][..], b"\r\n"].concat();
    let mut sent = 0;
    while let Ok(count) = large.stream().write(&chunk[sent % chunk.len()..]) {
        sent += count;
        assert!(sent < 64 * CHUNK, "it is taken without a disk");
    }
    let mut other = server.connect();
    assert_eq!(post(&mut other, "stored", b"hello"), "hello");
    std::fs::remove_file(&hold).unwrap();
    large.stream().set_write_timeout(Some(PATIENCE)).unwrap();
    let rest = &chunk[sent % chunk.len()..];
    large.send(rest).send("0\r\n\r\n");
    let whole = sent.div_ceil(chunk.len()) * CHUNK;
    assert_eq!(large.reply().text().len(), 2 * whole);
    server.forget_log();
}

#[test]
fn a_full_pool_refuses_a_body_that_it_would_have_to_store() {
    let pool = "worker_processes 1; thread_pool default threads=1 max_queue=0;";
    let Some(server) = echoing_on(pool, "") else {
        return;
    };
    std::fs::write(server.site().path("hold"), "").unwrap();
    let mut waiting = Vec::new();
    while !server.error_log().contains("queue overflow") {
        let mut connection = server.connect();
        connection.send("POST /?how=stored HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
        connection.send([b'x'; 2000]);
        waiting.push(connection);
        assert!(waiting.len() < 1000, "no overflow: {}", server.error_log());
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(server.site().path("hold")).unwrap();
    let mut refused = 0;
    for mut connection in waiting {
        let reply = connection.reply();
        if reply.status == 503 {
            refused += 1;
            assert_eq!(reply.header("retry-after"), Some("1"));
            assert_eq!(post(&mut connection, "stored", b"hello"), "hello");
        } else {
            assert_eq!(reply.status, 200);
        }
    }
    assert!(refused > 0);
    server.forget_log();
}

/// A server that passes bodies on as they come, and the origin's end of the connection.
fn passing() -> (Server, TcpListener) {
    let origin = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = origin.local_addr().expect("it listens");
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%;
             location / {{ proxy_request_buffering off; proxy_pass http://{address}; }} }}"
    ));
    (server, origin)
}

/// The next request at the origin, its head read.
fn accept(origin: &TcpListener) -> Connection {
    let (stream, _) = origin.accept().expect("the server connects");
    let mut connection = Connection::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(connection.read(1));
    }
    connection
}

#[test]
fn an_origin_gets_the_pieces_as_they_come() {
    let (server, origin) = passing();
    for (framing, around) in [
        ("Content-Length: 6", ["", "", "", ""]),
        (
            "Transfer-Encoding: chunked",
            ["3\r\n", "\r\n", "3\r\n", "\r\n0\r\n\r\n"],
        ),
    ] {
        let mut client = server.connect();
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        let mut request = accept(&origin);
        for (piece, before, behind) in
            [("abc", around[0], around[1]), ("def", around[2], around[3])]
        {
            let sent = format!("{before}{piece}{behind}");
            client.send(&sent);
            assert_eq!(request.read(sent.len()), sent.as_bytes(), "{framing}");
        }
        request.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        assert_eq!(client.reply().text(), "done");
    }
}

#[test]
fn an_origin_may_answer_before_it_has_the_body() {
    let (server, origin) = passing();
    let mut client = server.connect();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    let mut request = accept(&origin);
    assert_eq!(request.read(3), b"abc");
    request.send("HTTP/1.1 413 Enough\r\nContent-Length: 4\r\n\r\nstop");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str()), (413, "stop"));
    // nginx says "keep-alive" and closes.
    if !is_nginx() {
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert!(request.is_closed(), "it is not used again");
}

/// Both sides may talk at once, over HTTP/1, too.
#[test]
fn an_origin_may_answer_while_it_reads_the_body() {
    let (server, origin) = passing();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let mut request = accept(&origin);
    assert_eq!(request.read(8), b"3\r\nabc\r\n");
    request.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    assert!(client.until("\r\n\r\nabc").starts_with("HTTP/1.1 200"));
    client.send("3\r\ndef\r\n");
    assert_eq!(request.read(8), b"3\r\ndef\r\n");
    request.send("def");
    assert_eq!(client.read(3), b"def");
    client.send("3\r\nghi\r\n0\r\n\r\n");
    assert_eq!(request.read(13), b"3\r\nghi\r\n0\r\n\r\n");
    request.send("ghi");
    assert_eq!(client.read(3), b"ghi");
}

#[test]
fn a_body_that_breaks_off_is_not_ended_at_the_origin() {
    let (server, origin) = passing();
    for rest in ["", "x\r\n"] {
        let mut client = server.connect();
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        let mut request = accept(&origin);
        assert_eq!(request.read(8), b"3\r\nabc\r\n");
        client.send(rest);
        if rest.is_empty() {
            drop(client);
        } else {
            assert_eq!(client.reply().status, 400);
        }
        assert!(request.is_closed(), "closed without a last chunk");
    }
    server.forget_log();
}

#[test]
fn a_body_is_read_early_where_the_server_wants_it() {
    let server = Server::start(
        "map $http_content_type $is_json { application/json 1; }
         server { listen 127.0.0.1:%PORT%; client_body_early_read $is_json $arg_early;
             client_max_body_size 10;
             if ($request_body = evil) { return 403; }
             location / { client_max_body_size 20; return 200 [$request_body]; } }",
    );
    for (headers, body, expected) in [
        ("", "hello", "[]"),
        ("Content-Type: application/json\r\n", "hello", "[hello]"),
        ("Content-Type: application/json\r\n", "evil", "403"),
        ("Content-Type: application/json\r\n", "hello, hello", "413"),
        ("", "hello, hello", "[]"),
        ("", "hello, hello, hello, hello", "413"),
    ] {
        let mut connection = server.connect();
        let length = body.len();
        connection.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ));
        let reply = connection.reply();
        let said = match reply.status {
            200 => reply.text(),
            other => other.to_string(),
        };
        assert_eq!(said, expected, "{headers}{body}");
    }
    let mut connection = server.connect();
    for _ in 0..2 {
        connection.send(
            "POST /?early=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        );
        assert_eq!(connection.reply().text(), "[abc]");
    }
    server.forget_log();
}

#[test]
fn a_client_that_takes_nothing_before_its_body_is_sent_gets_all_of_its_echo() {
    // nginx sends nothing more of a body once the head of the answer is there.
    if is_nginx() {
        return;
    }
    let port = blackbox::echo();
    let body: Vec<u8> = (0..24_u32 << 20).map(|n| (n % 251) as u8).collect();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; client_max_body_size 0;
             location / {{ proxy_request_buffering off; proxy_pass http://127.0.0.1:{port}; }} }}"
    ));
    let mut client = server.connect();
    let length = body.len();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    ));
    client.send(&body);
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.len()), (200, length));
    assert!(reply.body == body);
}
