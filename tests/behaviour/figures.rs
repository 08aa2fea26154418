//! The figures: `stub_status` as nginx has it, `metrics` and `status_json`, which are our own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

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
fn two_kinds_of_figures_cannot_be_one_answer() {
    if is_nginx() {
        return;
    }
    for two in [
        "metrics; status_json;",
        "metrics; proxy_pass http://127.0.0.1:9;",
    ] {
        let refused = Server::try_start(&format!(
            "daemon off; pid nginx.pid; events {{}} http {{ server {{ listen 127.0.0.1:%PORT%; location / {{ {two} }} }} }}"
        ));
        let stderr = refused.err().expect("it does not start").stderr;
        assert!(
            stderr.contains("cannot stand in the same location"),
            "{stderr}"
        );
    }
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

#[test]
fn the_sum_of_figures_is_the_access_log_s_to_the_last_request() {
    if is_nginx() {
        return;
    }
    let origin = blackbox::Origin::start(|_| blackbox::Answer::ok("from afar"));
    let server = Server::start_with(
        "worker_processes 3;",
        &format!(
            "log_format sizes '$status $bytes_sent $request_length';
             server {{ listen 127.0.0.1:%PORT%; server_name figures; {METRICS} }}
             server {{ listen 127.0.0.1:%PORT%; server_name counted; status_zone whole; access_log logs/access.log sizes;
                location /far {{ proxy_pass http://{}; status_zone part; }}
                location /gone {{ return 410; }} location /silent {{ return 444; }} location / {{ return 200 x; }} }}",
            origin.address()
        ),
    );
    let paths = ["/", "/far/1", "/gone", "/silent", "/far/2"];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..50 {
                    let path = paths[number % paths.len()];
                    let head = format!(
                        "GET {path} HTTP/1.1\r\nHost: counted\r\nConnection: close\r\n\r\n"
                    );
                    server.connect().send(head).rest();
                }
            });
        }
    });
    // A request that is none.
    server.raw("GET\r\n\r\n");
    let zone = "zone=\"whole\"";
    let requests = |page: &Exposition| page.sum("freewheel_zone_requests_total", &[zone]);
    let page = until(&server, |page| requests(page) >= 200.0);
    let log = server.access_log(200);
    let lines: Vec<Vec<u64>> = log
        .lines()
        .filter(|line| !line.contains('"'))
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    assert_eq!(lines.len(), 200);
    assert_eq!(requests(&page), 200.0);
    for (class, first) in [("2xx", 2), ("4xx", 4), ("5xx", 5)] {
        let logged = lines.iter().filter(|line| line[0] / 100 == first).count();
        let status = format!("status=\"{class}\"");
        let counted = page.sum("freewheel_zone_requests_total", &[zone, &status]);
        assert_eq!(counted, logged as f64, "{class}");
    }
    for (direction, column) in [("sent", 1), ("received", 2)] {
        let logged: u64 = lines.iter().map(|line| line[column]).sum();
        let direction = format!("direction=\"{direction}\"");
        let counted = page.sum("freewheel_zone_bytes_total", &[zone, &direction]);
        assert_eq!(counted, logged as f64, "{direction}");
    }
    assert_eq!(
        page.sum("freewheel_zone_request_seconds_count", &[zone]),
        200.0
    );
    assert_eq!(
        page.sum("freewheel_zone_requests_total", &["zone=\"part\""]),
        80.0
    );
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
            "server {{ listen 127.0.0.1:%PORT%; {METRICS} location /slow {{ keep_loop $arg_ms; }} }}"
        ),
    );
    assert_eq!(server.get("/slow?ms=60").text(), "kept");
    server.wait_for(
        "connection *1, content, request: \"GET /slow?ms=60 HTTP/1.1\"",
        "a stall",
    );
    assert!(server.error_log().contains("[warn]"));
    let json = server.get("/json").text();
    assert!(
        json.contains(
            "\"connection\": 1, \"request\": \"GET /slow?ms=60 HTTP/1.1\", \"phase\": \"content\""
        ),
        "{json}"
    );
    assert!(metrics(&server).get("freewheel_stalls_total") >= Some(1.0));
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
    assert!(seconds(lines[3][2]) > 0.0 && seconds(lines[3][3]) <= seconds(lines[3][2]));
    assert!(lines.iter().all(|line| seconds(line[4]) > 0.0), "{log}");
}
