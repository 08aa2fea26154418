//! Answers that are read ahead of slow clients (`proxy_buffering`): their servers are let go.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use blackbox::gateway::answer;
use blackbox::slow::{HELD_MAX, Source, body, slow, slow_with, whole};
use blackbox::{Connection, Exposition, Server, Site, is_nginx};
use nix::sys::signal::Signal;

const BUFFERED: &str = "is buffered to a temporary file";

fn http(source: &Source, text: &str) -> String {
    let pass = format!("proxy_pass http://127.0.0.1:{}", source.port);
    let text = text
        .replace("%PASS%", &pass)
        .replace("%SOURCE%", &format!("127.0.0.1:{}", source.port));
    format!(
        "proxy_temp_path %DIR%/temporary 1 2; server {{ listen 127.0.0.1:%PORT% sndbuf=16k; proxy_socket_rcvbuf 16k; {text} }}"
    )
}

fn serve(source: &Source, locations: &str) -> Server {
    Server::start(&http(source, locations))
}

/// Files below the directory for temporary ones.
fn left(server: &Server) -> usize {
    fn count(path: PathBuf) -> usize {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let files = entries.map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count(entry.path()),
            _ => 1,
        });
        files.sum()
    }
    count(server.site().path("temporary"))
}

#[test]
fn a_server_is_let_go_while_its_client_has_taken_nothing() {
    let body = body();
    let source = Source::of(&body);
    let server = serve(&source, "location / { %PASS%; }");
    let mut client = slow(&server, "/");
    source.wait(1, &server);
    server.wait_for(BUFFERED, "that is told");
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains(BUFFERED)).unwrap();
    let told = format!("{BUFFERED} {}/", server.site().path("temporary").display());
    assert!(line.contains("[warn]") && line.contains(&told), "{line}");
    assert!(
        line.contains(" while reading upstream, client: 127.0.0.1, "),
        "{line}"
    );
    if !is_nginx() {
        assert_eq!(left(&server), 0, "it has no name");
    }
    assert!(whole(&mut client).body == body);
}

#[test]
fn its_connection_serves_others_meanwhile() {
    let body = body();
    let source = Source::of(&body);
    let server = Server::start(&format!(
        "upstream kept {{ server 127.0.0.1:{}; keepalive 4; }}
         {}",
        source.port,
        http(
            &source,
            "location / { proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection ''; }"
        )
    ));
    let mut clients: Vec<Connection> = (1..=3)
        .map(|number| {
            let client = slow(&server, "/");
            source.wait(number, &server);
            // It is put back when the last byte was read, which is a moment after it was sent.
            std::thread::sleep(Duration::from_millis(100));
            client
        })
        .collect();
    assert_eq!(source.connections.load(SeqCst), 1);
    for client in &mut clients {
        assert!(whole(client).body == body);
    }
}

#[test]
fn a_client_that_keeps_up_causes_no_file() {
    let body = body();
    let source = Source::of(&body);
    let server = Server::start(&format!(
        "proxy_temp_path %DIR%/temporary; server {{ listen 127.0.0.1:%PORT%; proxy_buffers 8 8k; location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        source.port
    ));
    let mut client = server.connect();
    for _ in 0..4 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.reply().body == body);
    }
    if !is_nginx() {
        let log = server.error_log();
        assert!(!log.contains(BUFFERED), "{log}");
    }
}

#[test]
fn where_it_must_not_be_buffered_its_server_waits() {
    let body = body();
    for (lines, location, is_let_go) in [
        ("", "proxy_buffering off;", false),
        ("X-Accel-Buffering: no\r\n", "", false),
        ("X-Accel-Buffering: No\r\n", "", false),
        ("X-Accel-Buffering: never\r\n", "", true),
        ("X-Accel-Buffering: yes\r\n", "proxy_buffering off;", true),
        (
            "X-Accel-Buffering: yes\r\n",
            "proxy_buffering off; proxy_ignore_headers X-Accel-Buffering;",
            false,
        ),
        (
            "X-Accel-Buffering: no\r\n",
            "proxy_ignore_headers X-Accel-Buffering;",
            true,
        ),
        ("", "proxy_max_temp_file_size 0;", false),
        ("", "proxy_max_temp_file_size 100k;", false),
        (
            "",
            "proxy_temp_file_write_size 12k; proxy_buffers 16 4k;",
            true,
        ),
    ] {
        let source = Source::with(lines, &body);
        let server = serve(&source, &format!("location / {{ %PASS%; {location} }}"));
        let mut client = slow(&server, "/");
        match is_let_go {
            true => source.wait(1, &server),
            false => {
                let taken = source.held_at();
                assert!(taken < HELD_MAX, "{lines} {location}: {taken} bytes taken");
            }
        }
        assert!(whole(&mut client).body == body, "{lines} {location}");
        source.wait(1, &server);
        assert_eq!(source.answers.load(SeqCst), 1);
    }
}

#[test]
fn so_are_those_of_the_other_families() {
    let body = body();
    let plain = [b"Status: 200 OK\r\n\r\n", &body[..]].concat();
    for (family, bytes) in [
        ("fastcgi", answer(&plain)),
        ("uwsgi", plain.clone()),
        ("scgi", plain.clone()),
    ] {
        let source = Source::start(bytes, true);
        let server = serve(
            &source,
            &format!(
                "{family}_temp_path %DIR%/own;
                 {family}_socket_rcvbuf 16k;
                 location / {{ {family}_pass %SOURCE%; }}
                 location /off {{ {family}_pass %SOURCE%; {family}_buffering off; }}"
            ),
        );
        let mut client = slow(&server, "/");
        source.wait(1, &server);
        let own = server.site().path("own").display().to_string();
        server.wait_for(&format!("{BUFFERED} {own}/"), "that is told");
        assert!(whole(&mut client).body == body, "{family}");
        source.sent.store(0, SeqCst);
        let mut client = slow(&server, "/off");
        let taken = source.held_at();
        assert!(taken < HELD_MAX, "{family}: {taken} bytes taken");
        assert!(whole(&mut client).body == body, "{family}");
    }
}

/// Streams wait for each other, too: not for long, since their client may be what the first of them waits for.
#[test]
fn all_servers_of_a_slow_client_of_http2_are_let_go() {
    if is_nginx() {
        return;
    }
    let body = body();
    let source = Source::of(&body);
    let server = serve(&source, "http2 on; location / { %PASS%; }");
    let mut client = server.connect_http2_with_window(64 << 20);
    let streams: Vec<u32> = (0..4).map(|_| client.get("/")).collect();
    source.wait(4, &server);
    for stream in streams {
        assert!(client.reply(stream).body == body);
    }
}

#[test]
fn what_came_before_an_answer_broke_off_is_sent() {
    let body = body();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        body.len() + 1
    );
    let source = Source::start([head.as_bytes(), &body].concat(), true);
    let server = serve(&source, "location / { %PASS%; }");
    let mut client = slow(&server, "/");
    source.wait(1, &server);
    client.until("\r\n\r\n");
    assert!(client.rest() == body);
}

#[test]
fn filters_limits_and_chunks_stand_before_what_is_buffered() {
    let body = body();
    let chunks: Vec<u8> = body
        .chunks(5000)
        .flat_map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
        .chain(*b"0\r\nX-Behind: yes\r\n\r\n")
        .collect();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
    let source = Source::start([&head[..], &chunks].concat(), false);
    let server = serve(
        &source,
        "default_type text/html;
         location /sub { %PASS%; sub_filter nothing something; }
         location /gzip { %PASS%; gzip on; gzip_comp_level 1; }
         location /ssi { %PASS%; ssi on; }
         location /include { ssi on; }
         location /added { add_before_body /plain; }
         location /rate { %PASS%; limit_rate 8m; limit_rate_after 1k; }
         location /trailers { %PASS%; proxy_pass_trailers on; }
         location /plain { %PASS%; }",
    );
    server.file("include", "<!--# include virtual=\"/plain\" -->");
    server.file("added", "");
    for (number, path) in [
        "/plain",
        "/sub",
        "/gzip",
        "/ssi",
        "/include",
        "/added",
        "/rate",
        "/trailers",
    ]
    .iter()
    .enumerate()
    {
        let lines = if *path == "/gzip" {
            "Accept-Encoding: gzip\r\n"
        } else {
            "TE: trailers\r\n"
        };
        let mut client = slow_with(&server, path, lines);
        source.wait(number as u64 + 1, &server);
        let reply = whole(&mut client);
        let came = match *path {
            "/gzip" => {
                let mut plain = Vec::new();
                let mut coded = flate2::read::GzDecoder::new(&reply.body[..]);
                coded.read_to_end(&mut plain).expect("it is whole");
                plain
            }
            _ => reply.body,
        };
        assert!(came == body, "{path}: {} bytes", came.len());
    }
}

#[test]
fn what_a_cache_does_not_keep_is_buffered_too() {
    let body = body();
    let source = Source::with("Accept-Ranges: bytes\r\n", &body);
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m; {}",
        http(
            &source,
            "location / { %PASS%; proxy_cache c; proxy_no_cache 1; }
             location /store/ { %PASS%; proxy_store %DIR%/html/stored; }"
        )
    ));
    if !is_nginx() {
        server.wait_for(": 0 entries known", "its cache is open");
    }
    // Whoever the worker is.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(server.site().path("html"), permissions).expect("it is ours");
    for (number, path) in ["/", "/store/"].iter().enumerate() {
        let mut client = slow(&server, path);
        source.wait(number as u64 + 1, &server);
        assert!(whole(&mut client).body == body, "{path}");
    }
}

#[test]
fn a_disk_that_refuses_holds_the_server_back_and_is_told_of_once() {
    if is_nginx() {
        return;
    }
    let body = body();
    let source = Source::of(&body);
    let server = serve(&source, "location / { %PASS%; }");
    std::fs::remove_dir(server.site().path("temporary")).expect("it is empty");
    for _ in 0..2 {
        source.sent.store(0, SeqCst);
        let mut client = slow(&server, "/");
        let taken = source.held_at();
        assert!(taken < HELD_MAX, "{taken} bytes taken");
        assert!(whole(&mut client).body == body);
    }
    let log = server.error_log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("[crit]")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let told = "failed (2: No such file or directory), so the server waits for the client while reading upstream, client: 127.0.0.1";
    assert!(
        lines[0].contains("mkdir()") && lines[0].contains(told),
        "{log}"
    );
    server.forget_log();
}

#[test]
fn pools_that_stand_still_hold_the_server_back_and_nothing_is_lost() {
    if is_nginx() {
        return;
    }
    let body = body();
    let source = Source::of(&body);
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    let server = Server::start_on(
        site,
        "",
        &http(
            &source,
            "location / { %PASS%; } location /small { return 200 small; }",
        ),
    );
    std::fs::write(&hold, "").expect("the directory is ours");
    std::thread::sleep(Duration::from_millis(100));
    let mut client = slow(&server, "/");
    let taken = source.held_at();
    assert!(taken < HELD_MAX, "{taken} bytes taken");
    assert_eq!(server.get("/small").text(), "small", "no loop waits");
    // From memory, and then from its server.
    assert!(whole(&mut client).body == body);
    std::fs::remove_file(&hold).expect("it was made");
    let mut client = slow(&server, "/");
    source.wait(2, &server);
    assert!(whole(&mut client).body == body);
}

#[test]
fn the_time_of_an_answer_ends_when_its_server_is_done() {
    let body = body();
    let source = Source::of(&body);
    let server = Server::start(&format!(
        "log_format times '$upstream_response_time $request_time $upstream_response_length $upstream_bytes_received'; {}",
        http(
            &source,
            "location / { %PASS%; access_log logs/access.log times; }"
        )
    ));
    let mut client = slow(&server, "/");
    source.wait(1, &server);
    // Twice what may pass from the last byte of the server until that is seen.
    std::thread::sleep(Duration::from_secs(1));
    assert!(whole(&mut client).body == body);
    drop(client);
    let line = server.access_log(1);
    let fields: Vec<f64> = line
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(f64::NAN))
        .collect();
    assert!(fields[1] - fields[0] >= 0.5, "{line}");
    assert_eq!(fields[2], body.len() as f64, "{line}");
    assert!(fields[3] > fields[2], "{line}");
}

#[test]
fn nothing_is_lost_when_the_worker_leaves_or_is_told_anew() {
    let body = body();
    let source = Source::of(&body);
    let text = http(&source, "location / { %PASS%; }");
    let mut server = Server::start(&text);
    let mut reloaded = slow(&server, "/");
    source.wait(1, &server);
    if !is_nginx() {
        // The same worker; nginx's old one would be waited for.
        server.reload(&text.replace("location / {", "location / { add_header X-New yes;"));
    }
    let mut kept = slow(&server, "/");
    source.wait(2, &server);
    server.signal(Signal::SIGQUIT);
    server.wait_for("gracefully shutting down", "the signal has come");
    let (before, after) = (whole(&mut reloaded), whole(&mut kept));
    assert_eq!(before.header("x-new"), None);
    assert_eq!(after.header("x-new").is_some(), !is_nginx());
    assert!(before.body == body && after.body == body);
    drop((reloaded, kept));
    assert!(server.quit().success());
}

#[test]
fn the_pool_of_the_location_writes() {
    if is_nginx() {
        return;
    }
    let body = body();
    let source = Source::of(&body);
    let server = Server::start_with(
        "thread_pool spools threads=1; thread_pool others threads=1;",
        &http(
            &source,
            "aio threads=others; location = /metrics { metrics; }
             location / { %PASS%; aio threads=spools; }
             location /inherits { %PASS%; }",
        ),
    );
    let jobs = || {
        let page = Exposition::read(&server.get("/metrics").text(), false);
        ["\"spools\"", "\"others\"", "\"default\""]
            .map(|pool| page.sum("freewheel_pool_running_seconds_count", &[pool]))
    };
    let idle = jobs();
    let mut client = slow(&server, "/");
    source.wait(1, &server);
    assert!(whole(&mut client).body == body);
    let own = jobs();
    assert!(own[0] >= idle[0] + 2.0, "{idle:?} {own:?}");
    assert_eq!(own[1..], idle[1..], "no other pool works for it");
    let mut client = slow(&server, "/inherits");
    source.wait(2, &server);
    assert!(whole(&mut client).body == body);
    let inherited = jobs();
    assert!(inherited[1] >= own[1] + 2.0, "{own:?} {inherited:?}");
    // The file of before may be closed only now.
    assert!(inherited[0] <= own[0] + 1.0, "{own:?} {inherited:?}");
}
