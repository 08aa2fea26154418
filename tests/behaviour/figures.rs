//! The figures: `stub_status` as nginx has it, `metrics` and `status_json`, which are our own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use blackbox::{Exposition, Server, is_nginx};

const METRICS: &str = "location = /metrics { access_log off; metrics; }
                       location = /json { access_log off; status_json; }";

fn metrics(server: &Server) -> Exposition {
    let reply = server.get("/metrics");
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("Content-Type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    Exposition::read(&reply.text(), false)
}

#[test]
fn stub_status_has_nginx_s_words() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location /s { stub_status; } location / { return 200 x; } }",
    );
    let mut kept = server.connect();
    kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    let reply = server.get("/s");
    assert_eq!(reply.header("Content-Type"), Some("text/plain"));
    assert_eq!(reply.header("Content-Length"), Some("97"));
    assert_eq!(
        reply.text(),
        "Active connections: 2 \nserver accepts handled requests\n 2 2 3 \nReading: 0 Writing: 1 Waiting: 1 \n"
    );
    assert_eq!(server.request("HEAD", "/s", "").status, 200);
    assert_eq!(server.request("POST", "/s", "").status, 405);
    drop(kept);
}

#[test]
fn stub_status_counts_what_has_only_begun() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location /s { stub_status; } location / { return 200 x; } }",
    );
    let wait_for = |expected: &str| {
        let deadline = std::time::Instant::now() + blackbox::PATIENCE;
        let mut kept = server.connect();
        let mut text = String::new();
        while std::time::Instant::now() < deadline {
            text = kept
                .send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n")
                .reply()
                .text();
            if text.ends_with(expected) {
                return text;
            }
        }
        panic!("{text}");
    };
    let silent = server.connect();
    let mut half = server.connect();
    half.send("GET /half HTTP/1.1\r\nHos");
    wait_for("Reading: 1 Writing: 1 Waiting: 1 \n");
    half.send("t: a\r\n\r\n").reply();
    wait_for("Reading: 0 Writing: 1 Waiting: 2 \n");
    drop((silent, half));
    wait_for("Reading: 0 Writing: 1 Waiting: 0 \n");
}

#[test]
fn the_text_is_what_prometheus_reads() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; {METRICS} location / {{ return 200 x; }} }}"
    ));
    server.get("/");
    let page = metrics(&server);
    assert!(page.sum("freewheel_event_loop_blocked_seconds_count", &[]) > 0.0);
    assert_eq!(page.sum("freewheel_loop_requests_total", &[]), 2.0);
    assert_eq!(page.get("freewheel_configuration_generation"), Some(1.0));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let reply = server.get_with("/metrics", accept);
    assert_eq!(
        reply.header("Content-Type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let open = Exposition::read(&reply.text(), true);
    assert_eq!(open.sum("freewheel_loop_requests_total", &[]), 3.0);
    let json = server.get("/json");
    assert_eq!(json.header("Content-Type"), Some("application/json"));
    assert!(
        json.text()
            .contains("\"freewheel_loop_requests\": {\"type\": \"counter\"")
    );
}

#[test]
fn of_two_kinds_of_content_the_last_one_is_the_answer() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location /json { metrics; status_json; }
             location /metrics { proxy_pass http://127.0.0.1:9; metrics; }
         }",
    );
    let type_of = |path: &str| {
        let reply = server.get(path);
        reply.header("Content-Type").unwrap_or_default().to_owned()
    };
    assert_eq!(type_of("/json"), "application/json");
    assert!(type_of("/metrics").starts_with("text/plain"));
    server.wait_for(
        "\"metrics\" takes the place of \"proxy_pass\" in this location",
        "it is told",
    );
}

#[test]
fn figures_grow_over_reloads_whatever_changes() {
    if is_nginx() {
        return;
    }
    let origin = blackbox::Origin::start(|_| blackbox::Answer::ok("from afar"));
    let configuration = |servers: &str| {
        format!(
            "upstream back {{ server {address}; {servers} }}
             server {{ listen 127.0.0.1:%PORT%; aio threads=files; {METRICS}
                location /far {{ proxy_pass http://back; }} location / {{ autoindex on; }} }}",
            address = origin.address(),
        )
    };
    let main = |threads: u32| format!("worker_processes 3; thread_pool files threads={threads};");
    let server = Server::start_with(&main(2), &configuration(""));
    server.file("some/file.txt", "x");
    for _ in 0..5 {
        assert_eq!(server.get("/some/").status, 200);
        assert_eq!(server.get("/far").status, 200);
    }
    let before = metrics(&server);
    let peer = format!("{{upstream=\"back\",peer=\"{}\"", origin.address());
    let answered = format!("freewheel_upstream_requests_total{peer},outcome=\"answered\"}}");
    assert_eq!(before.get(&answered), Some(5.0));
    // Directories are always read in the pool.
    let read = "freewheel_disk_call_seconds_count{operation=\"readdir\"}";
    assert_eq!(before.get(read), Some(5.0));
    let jobs = before.sum("freewheel_pool_running_seconds_count", &["\"files\""]);
    assert!(jobs >= 5.0);
    // Fewer loops, another pool of the same name, another group with the same server.
    server.reload_with(
        "worker_processes 1; thread_pool files threads=5;",
        &configuration("server 127.0.0.1:1 backup;"),
    );
    let after = metrics(&server);
    assert_eq!(after.shrunk_since(&before), [""; 0]);
    assert_eq!(after.get("freewheel_configuration_generation"), Some(2.0));
    let took = after.get("freewheel_configuration_load_seconds");
    let patience = blackbox::PATIENCE.as_secs_f64();
    assert!(took > Some(0.0) && took < Some(patience), "{took:?}");
    assert_eq!(server.get("/far").status, 200);
    assert_eq!(metrics(&server).get(&answered), Some(6.0));
}

#[test]
fn figures_are_shown_while_configurations_change() {
    if is_nginx() {
        return;
    }
    let text = format!("server {{ listen 127.0.0.1:%PORT%; {METRICS} }}");
    let server = Server::start_with("worker_processes 2;", &text);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut last = metrics(&server);
            for _ in 0..30 {
                let next = metrics(&server);
                assert_eq!(next.shrunk_since(&last), [""; 0]);
                last = next;
            }
        });
        let mut loops = 1;
        while !scraper.is_finished() {
            server.reload_with(&format!("worker_processes {loops};"), &text);
            loops = loops % 4 + 1;
        }
        scraper.join().unwrap();
    });
}

/// Waits until the figures say so, since requests are counted behind their answers.
fn until(server: &Server, is_reached: impl Fn(&Exposition) -> bool) -> Exposition {
    let begun = std::time::Instant::now();
    loop {
        let page = metrics(server);
        if is_reached(&page) {
            return page;
        }
        assert!(begun.elapsed() < blackbox::PATIENCE, "{page:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A line of the access log: location, status, bytes sent and received, what the cache did.
struct Logged {
    place: String,
    status: u64,
    sent: u64,
    received: u64,
    cached: String,
}

fn logged(line: &str) -> Logged {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse().expect(line);
    Logged {
        place: words[0].to_owned(),
        status: number(1),
        sent: number(2),
        received: number(3),
        cached: words[4].to_owned(),
    }
}

/// The figures of a zone are those of these lines, to the last request and byte.
fn compare(page: &Exposition, zone: &str, lines: &[&Logged]) {
    let zone = &format!("zone=\"{zone}\"")[..];
    for class in 1..=5 {
        let logged = lines.iter().filter(|line| line.status / 100 == class);
        let status = format!("status=\"{class}xx\"");
        let counted = page.sum("freewheel_zone_requests_total", &[zone, &status]);
        assert_eq!(counted, logged.count() as f64, "{zone} {status}");
    }
    let all = page.sum("freewheel_zone_requests_total", &[zone]);
    assert_eq!(all, lines.len() as f64, "{zone}");
    let times = page.sum("freewheel_zone_request_seconds_count", &[zone]);
    assert_eq!(times, all, "{zone}");
    // Nothing was sent to who got no answer.
    let answered = lines.iter().filter(|line| line.sent > 0).count();
    let times = page.sum("freewheel_zone_first_byte_seconds_count", &[zone]);
    assert_eq!(times, answered as f64, "{zone}");
    for (direction, bytes) in [
        ("sent", lines.iter().map(|line| line.sent).sum::<u64>()),
        ("received", lines.iter().map(|line| line.received).sum()),
    ] {
        let direction = format!("direction=\"{direction}\"");
        let counted = page.sum("freewheel_zone_bytes_total", &[zone, &direction]);
        assert_eq!(counted, bytes as f64, "{zone} {direction}");
    }
}

/// What the cache did is what the lines say.
fn compare_cache(page: &Exposition, lines: &[Logged]) {
    for status in ["MISS", "HIT", "EXPIRED", "STALE"] {
        let logged = lines.iter().filter(|line| line.cached == status).count();
        let status = format!("status=\"{status}\"");
        let counted = page.sum("freewheel_cache_requests_total", &[&status]);
        assert_eq!(counted, logged as f64, "{status}");
    }
}

#[test]
fn the_sum_of_figures_is_the_access_log_s_to_the_last_request() {
    if is_nginx() {
        return;
    }
    let origin = blackbox::Origin::start(|_| {
        blackbox::Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "from afar")
    });
    let address = origin.address();
    let server = Server::start_with(
        "worker_processes 3;",
        &format!(
            "proxy_cache_path %DIR%/cache keys_zone=kept:1m; upstream back {{ server {address}; }}
             log_format sizes '$uri $status $bytes_sent $request_length $upstream_cache_status';
             server {{ listen 127.0.0.1:%PORT%; server_name figures; {METRICS} }}
             server {{ listen 127.0.0.1:%PORT%; server_name counted; status_zone whole; access_log logs/access.log sizes;
                location /far {{ proxy_pass http://back; status_zone part; }}
                location /cached {{ proxy_pass http://back; proxy_cache kept; status_zone part; }}
                location /gone {{ return 410; }} location /moved {{ return 301 /; }} location /lost {{ return 503; }}
                location /silent {{ return 444; }} location /text {{ return 200 x; }} location / {{ }} }}"
        ),
    );
    server.file("file", "small and soon ready");
    let paths = [
        "/text", "/far", "/gone", "/silent", "/file", "/moved", "/lost", "/missing", "/cached",
        "/file",
    ];
    let requests = 4 * 50;
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (server, paths) = (&server, &paths);
            scope.spawn(move || {
                let mut kept = server.connect();
                for number in 0..50 {
                    let path = paths[number % paths.len()];
                    let head = format!("GET {path} HTTP/1.1\r\nHost: counted\r\n");
                    // Half of the clients keep their connections as long as they are let.
                    if client % 2 == 0 && path != "/silent" {
                        kept.send(head + "\r\n").reply();
                    } else {
                        let head = head + "Connection: close\r\n\r\n";
                        server.connect().send(head).rest();
                    }
                }
            });
        }
    });
    // A request that is none.
    server.raw("GET\r\n\r\n");
    let zone = "zone=\"whole\"";
    let page = until(&server, |page| {
        page.sum("freewheel_zone_requests_total", &[zone]) >= f64::from(requests)
    });
    let log = server.access_log(200);
    let lines: Vec<Logged> = log
        .lines()
        .filter(|line| !line.contains('"'))
        .map(logged)
        .collect();
    compare(&page, "whole", &lines.iter().collect::<Vec<_>>());
    let is_of_part = |line: &&Logged| ["/far", "/cached"].contains(&&line.place[..]);
    let of_part: Vec<_> = lines.iter().filter(is_of_part).collect();
    assert_eq!(of_part.len(), 40);
    compare(&page, "part", &of_part);
    compare_cache(&page, &lines);
    let asked = page.sum("freewheel_upstream_requests_total", &["upstream=\"back\""]);
    assert_eq!(asked, origin.received().len() as f64);
}

#[test]
fn nothing_that_a_request_says_becomes_a_name() {
    if is_nginx() {
        return;
    }
    let origin = blackbox::Origin::start(|_| {
        blackbox::Answer::with("299 odd-one", "Odd-One: odd-one\r\n", "odd-one")
    });
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=kept:1m;
         server {{ listen 127.0.0.1:%PORT%; status_zone zone; {METRICS}
            location /far {{ proxy_pass http://$arg_to$uri; }}
            location /cached {{ proxy_pass http://{}; proxy_cache kept; proxy_cache_key $uri$http_odd; proxy_cache_valid any 1m; }}
            location / {{ aio threads=default; }} }}",
        origin.address()
    ));
    // Another one: an upstream that stands in the configuration has a name.
    let other = blackbox::Origin::start(|_| blackbox::Answer::ok("odd-one"));
    let others = "freewheel_upstream_requests_total{upstream=\"\",peer=\"\",outcome=\"answered\"}";
    assert_eq!(metrics(&server).get(others), None);
    let far = format!("/far/odd-one?to={}", other.address());
    for path in ["/odd-one\"}\\%0a", &far, "/cached/odd-one"] {
        server.raw(format!(
            "GET {path} HTTP/1.1\r\nHost: odd-one\r\nOdd: odd-one\"\r\nConnection: close\r\n\r\n"
        ));
    }
    server.raw("ODD-ONE / HTTP/1.1\r\nHost: odd-one\r\nConnection: close\r\n\r\n");
    for shown in ["/metrics", "/json"] {
        let text = server.get(shown).text();
        assert!(!text.contains("odd-one") && !text.contains("ODD-ONE"));
    }
    // Upstreams that requests name have no names.
    assert_eq!(metrics(&server).get(others), Some(1.0));
}

#[test]
fn every_open_file_is_a_descriptor() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&format!("server {{ listen 127.0.0.1:%PORT%; {METRICS} }}"));
    let open = "freewheel_process_descriptors{state=\"open\"}";
    let before = metrics(&server).get(open).expect("it is told");
    let _kept: Vec<_> = (0..50).map(|_| server.connect()).collect();
    until(&server, |page| page.get(open) >= Some(before + 50.0));
}

#[test]
fn who_keeps_a_loop_is_named() {
    if is_nginx() {
        return;
    }
    let module = blackbox::Site::of(std::path::Path::new(env!("CARGO_BIN_EXE_told-module")));
    let server = Server::start_on(
        module,
        "stall_threshold 20ms;",
        &format!(
            "server {{ listen 127.0.0.1:%PORT%; {METRICS} location /slow {{ keep_loop $arg_ms; }}
             location /quick {{ return 200 x; }} location / {{ }} }}"
        ),
    );
    // What the disk layer did for another request is not this one's.
    server.file("file", "x");
    assert_eq!(server.get("/file").text(), "x");
    assert_eq!(server.get("/slow?ms=60").text(), "kept");
    server.wait_for(
        "connection *2, content, request: \"GET /slow?ms=60 HTTP/1.1\"",
        "a stall",
    );
    server.wait_for("[warn]", "a warning");
    let json = server.get("/json").text();
    assert!(
        json.contains(
            "\"connection\": 2, \"request\": \"GET /slow?ms=60 HTTP/1.1\", \"phase\": \"content\""
        ),
        "{json}"
    );
    assert!(metrics(&server).get("freewheel_stalls_total") >= Some(1.0));
    // Of those that one poll answers, the one that took long.
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut connection = server.connect();
    connection.send([ask("/quick"), ask("/slow?ms=61"), ask("/quick?2")].concat());
    for body in ["x", "kept", "x"] {
        assert_eq!(connection.reply().text(), body);
    }
    until(&server, |page| {
        page.get("freewheel_stalls_total") >= Some(2.0)
    });
    let json = server.get("/json").text();
    assert!(
        json.contains("\"request\": \"GET /slow?ms=61 HTTP/1.1\", \"phase\": \"content\""),
        "{json}"
    );
}

/// The figures, unless the loop that is asked does not answer soon.
fn metrics_soon(server: &Server) -> Option<Exposition> {
    let address = (std::net::Ipv4Addr::LOCALHOST, server.site().port(0));
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (_, page) = text.split_once("\r\n\r\n")?;
    Some(Exposition::read(page, false))
}

#[test]
fn a_loop_that_hangs_is_seen_while_it_does() {
    if is_nginx() {
        return;
    }
    let module = blackbox::Site::of(std::path::Path::new(env!("CARGO_BIN_EXE_told-module")));
    let server = Server::start_on(
        module,
        "worker_processes 2;",
        &format!(
            "server {{ listen 127.0.0.1:%PORT%; {METRICS} location /slow {{ keep_loop 1000; }} }}"
        ),
    );
    let longest_now = |page: &Exposition| {
        let loops = ["0", "1"].map(|index| {
            let key = format!("freewheel_loop_current_poll_seconds{{loop=\"{index}\"}}");
            page.get(&key).expect("each loop tells")
        });
        loops[0].max(loops[1])
    };
    assert!(longest_now(&metrics(&server)) < 0.2);
    let is_over = AtomicBool::new(false);
    let is_seen = std::thread::scope(|scope| {
        // Again and again: a machine with much else to do may be slow to tell.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.get("/slow");
            }
        });
        // The loop that hangs may be asked, too.
        let is_seen = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            metrics_soon(&server).is_some_and(|page| longest_now(&page) > 0.2)
        });
        is_over.store(true, Ordering::Relaxed);
        is_seen
    });
    assert!(is_seen);
    until(&server, |page| longest_now(page) < 0.2);
}

#[test]
fn logs_tell_what_a_request_waited_for() {
    if is_nginx() {
        return;
    }
    let origin = blackbox::Origin::start(|_| {
        blackbox::Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "x")
    });
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         log_format waits '$uri $served_from $disk_wait $pool_wait $first_byte_time';
         server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log waits;
            location /far {{ proxy_pass http://{address}; }}
            location /cached {{ proxy_pass http://{address}; proxy_cache c; }}
            location /list {{ autoindex on; }}
            location / {{ return 200 x; }} }}",
        address = origin.address()
    ));
    server.file("list/one", "1");
    for path in ["/", "/far", "/cached", "/list/"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let log = server.access_log(4);
    let mut lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    lines.sort();
    let from: Vec<_> = lines.iter().map(|line| (line[0], line[1])).collect();
    let wanted = [
        ("/", "memory"),
        ("/cached", "fill"),
        ("/far", "upstream"),
        ("/list/", "disk"),
    ];
    assert_eq!(from, wanted);
    let seconds = |text: &str| text.parse::<f64>().unwrap();
    assert!(seconds(lines[0][2]) == 0.0 && seconds(lines[0][3]) == 0.0);
    let (disk, pool) = (seconds(lines[3][2]), seconds(lines[3][3]));
    // The page is written in a pool, too, which no disk has a part in: either may be longer.
    assert!(disk > 0.0 && pool > 0.0, "{log}");
    assert!(lines.iter().all(|line| seconds(line[4]) > 0.0), "{log}");
}

#[test]
fn a_peer_that_fails_is_named_and_so_is_what_was_opened() {
    if is_nginx() {
        return;
    }
    let origin = blackbox::Origin::start(|_| blackbox::Answer::ok("x"));
    let server = Server::start(&format!(
        "upstream back {{ server 127.0.0.1:1 fail_timeout=60s; server {}; }}
         server {{ listen 127.0.0.1:%PORT%; {METRICS} location / {{ proxy_pass http://back; }} }}",
        origin.address()
    ));
    let of = |name: &str, peer: &str| format!("{name}{{upstream=\"back\",peer=\"{peer}\"}}");
    let failing = |peer: &str| of("freewheel_upstream_peer_failing", peer);
    let opened = |peer: &str| of("freewheel_upstream_opened_connections_total", peer);
    let (dead, live) = ("127.0.0.1:1", &origin.address()[..]);
    assert_eq!(metrics(&server).get(&failing(dead)), Some(0.0));
    for _ in 0..6 {
        assert_eq!(server.get("/").status, 200);
    }
    let page = metrics(&server);
    assert_eq!(page.get(&failing(dead)), Some(1.0));
    assert_eq!(page.get(&failing(live)), Some(0.0));
    assert_eq!(page.get(&opened(dead)), Some(0.0));
    // They are kept, one after the other.
    assert_eq!(page.get(&opened(live)), Some(1.0));
    server.forget_log();
}
