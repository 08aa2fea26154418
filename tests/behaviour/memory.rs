//! The worker's memory: what `memory_budget` bounds, what is given up where there is too little, and that everybody is served all the same.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::Write as _;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;

use blackbox::tls::{Certificate, TlsClient};
use blackbox::{Answer, Exposition, Origin, PATIENCE, Server, Site, is_nginx};

const FILE_BYTES: usize = 60_000;
const MIB: f64 = (1 << 20) as f64;

/// A cache, files, and the figures.
fn http(origin: &Origin) -> String {
    format!(
        "proxy_cache_path %DIR%/cache levels=1:2 keys_zone=c:1m;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ }}
             location /c/ {{ proxy_pass http://{}; proxy_cache c; proxy_cache_valid 200 1h; add_header X-Cache $upstream_cache_status; add_header X-Why $upstream_cache_refusal; }}
             location = /metrics {{ access_log off; metrics; }} }}",
        origin.address()
    )
}

fn origin() -> Origin {
    Origin::start(|request| {
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", request.target())
    })
}

fn figures(server: &Server) -> Exposition {
    Exposition::read(&server.get("/metrics").text(), false)
}

fn held(figures: &Exposition, holder: &str) -> f64 {
    let key = format!("freewheel_memory_held_bytes{{holder=\"{holder}\"}}");
    figures.get(&key).unwrap_or_else(|| panic!("{key}"))
}

/// Asks until the figures say so.
fn wait_for(server: &Server, what: &str, is_so: impl Fn(&Exposition) -> bool) -> Exposition {
    let begun = Instant::now();
    loop {
        let figures = figures(server);
        if is_so(&figures) {
            return figures;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn scarcity(figures: &Exposition) -> f64 {
    figures
        .get("freewheel_memory_scarcity")
        .expect("it is shown")
}

#[test]
fn over_the_budget_all_is_served_and_nothing_is_kept() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let server = Server::start_with("memory_budget 1m;", &http(&origin));
    let body = "x".repeat(FILE_BYTES);
    server.file("f", &body);
    // No process of ours is so small.
    let all = wait_for(&server, "scarce", |all| scarcity(all) == 5.0);
    assert_eq!(all.get("freewheel_memory_budget_bytes"), Some(MIB));
    let step = "freewheel_memory_scarce_total{step=\"fills\"}";
    assert!(all.get(step).is_some_and(|count| count >= 1.0));
    std::thread::sleep(Duration::from_millis(50));
    let mut kept = server.connect();
    for _ in 0..5 {
        let reply = kept.send("GET /f HTTP/1.1\r\nHost: a\r\n\r\n").reply();
        assert_eq!((reply.status, reply.text() == body), (200, true));
        let reply = kept.send("GET /c/a HTTP/1.1\r\nHost: a\r\n\r\n").reply();
        assert_eq!(
            (reply.status, reply.header("X-Cache"), reply.text().as_str()),
            (200, Some("MISS"), "/c/a"),
            "it passes and is not stored"
        );
        assert_eq!(reply.header("X-Why"), Some("memory is scarce"));
    }
    assert_eq!(origin.received().len(), 5);
    let all = figures(&server);
    assert_eq!((held(&all, "copies"), held(&all, "bodies")), (0.0, 0.0));
    server.wait_for("memory is scarce: ", "what is given up");
    let log = server.error_log();
    assert!(
        log.contains("[notice]") && log.contains("(memory_budget); answers pass through caches"),
        "{log}"
    );

    // With enough of it, all of that is done again.
    server.reload_with("memory_budget 1g;", &http(&origin));
    wait_for(&server, "enough", |all| scarcity(all) == 0.0);
    let begun = Instant::now();
    while server.get("/c/a").header("X-Cache") != Some("HIT") {
        assert!(begun.elapsed() < PATIENCE);
    }
    wait_for(&server, "copies", |all| {
        assert_eq!(server.get("/f").text(), body);
        held(all, "copies") >= FILE_BYTES as f64
    });
    assert!(held(&figures(&server), "index") > 0.0);
}

#[test]
fn copies_are_an_eighth_of_the_budget_whatever_the_number_of_loops() {
    if is_nginx() {
        return;
    }
    const BUDGET: usize = 96 << 20;
    const CONNECTIONS: usize = 8;
    let origin = origin();
    let main = format!("worker_processes 4; memory_budget {BUDGET};");
    let server = Server::start_with(&main, &http(&origin));
    // On each loop more than its part.
    let count = BUDGET / 8 / FILE_BYTES;
    for name in 0..count {
        server.file(&format!("f{name}"), vec![name as u8; FILE_BYTES]);
    }
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    let mut connections = connections.into_iter();
    let share = BUDGET as f64 / 8.0;
    let (mut most, begun): (f64, _) = (0.0, Instant::now());
    // Copies are made by a thread of their own, which may be late.
    while connections.len() > 0 || most < share / 8.0 {
        let mut connection = connections.next().unwrap_or_else(|| server.connect());
        assert!(begun.elapsed() < PATIENCE, "{most} of {share}");
        // A file that is used a few times is copied.
        for name in (0..count).cycle().take(4 * count) {
            let request = format!("GET /f{name} HTTP/1.1\r\nHost: a\r\n\r\n");
            let reply = connection.send(request).reply();
            assert_eq!(reply.status, 200);
            assert_eq!(reply.body, vec![name as u8; FILE_BYTES]);
        }
        most = most.max(held(&figures(&server), "copies"));
    }
    // Pages are whole: of 60 000 bytes 15.
    assert!(most <= share * 1.03, "{most} of {share}");
}

#[test]
fn a_body_that_has_a_copy_is_not_in_the_heap_too() {
    if is_nginx() {
        return;
    }
    const BYTES: usize = 40_000;
    let body = "x".repeat(BYTES);
    let stored = body.clone();
    let origin = Origin::start(move |_| {
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", stored.clone())
    });
    for store in ["", "store=segments max_size=64m"] {
        let zone = "keys_zone=c:1m";
        let text = http(&origin).replace(zone, &format!("{zone} {store}"));
        let server = Server::start_with("memory_budget 1g;", &text);
        server.file("f", &body);
        wait_for(&server, store, |all| {
            for target in ["/f", "/c/a"] {
                assert!(server.get(target).text() == body, "{target}");
            }
            let [copies, bodies] = ["copies", "bodies"].map(|holder| held(all, holder));
            copies >= 2.0 * BYTES as f64 && bodies < BYTES as f64
        });
    }
}

/// Descriptors that the server has open when so many files were asked for over each of so many connections.
fn descriptors_after(server: &Server, files: usize, connections: usize) -> f64 {
    for name in 0..files {
        server.file(&format!("f{name}"), name.to_string());
    }
    // The time of a file's last change has to be over for it to be kept.
    wait_for(server, "the table of mounts", |_| true);
    std::thread::sleep(Duration::from_millis(50));
    let names: Vec<usize> = (0..files).collect();
    let ask = |names: &[usize]| {
        let mut connection = server.connect();
        let requests = names.iter();
        let requests = requests.map(|name| format!("GET /f{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        connection.send(requests.collect::<String>());
        for name in names {
            let reply = connection.reply();
            assert_eq!((reply.status, reply.text()), (200, name.to_string()));
        }
        connection
    };
    // At once, so that they are on different loops; one that has had 1000 requests is closed.
    let _connections: Vec<_> = (0..connections)
        .flat_map(|_| names.chunks(500).map(ask).collect::<Vec<_>>())
        .collect();
    let all = figures(server);
    let open = all.get("freewheel_process_descriptors{state=\"open\"}");
    open.expect("it is shown")
}

#[test]
fn files_kept_open_are_a_part_of_the_budget() {
    if is_nginx() {
        return;
    }
    // A sixteenth of it, at 3 KiB each: 1024 files, those of the thread that keeps the cache in order included.
    const KEPT: f64 = 1024.0;
    let origin = origin();
    let main = "worker_rlimit_nofile 16384; memory_budget 48m;";
    let server = Server::start_with(main, &http(&origin));
    let open = descriptors_after(&server, 1600, 1);
    assert!(open < KEPT + 100.0, "{open}");
    assert!(open > KEPT / 4.0, "they are kept: {open}");
    let charged = held(&figures(&server), "files");
    assert!(
        charged > KEPT * 256.0 && charged <= KEPT * 1024.0,
        "{charged}"
    );
}

#[test]
fn all_loops_together_keep_at_most_half_of_the_descriptors() {
    if is_nginx() {
        return;
    }
    const LOOPS: f64 = 12.0;
    const OF_A_LOOP: f64 = 96.0;
    let origin = origin();
    let main =
        format!("worker_processes {LOOPS}; worker_rlimit_nofile {OF_A_LOOP}; memory_budget 1g;");
    let server = Server::start_with(&main, &http(&origin));
    // Of the others, each loop has a few for itself.
    let open = descriptors_after(&server, 120, 12);
    assert!(open < LOOPS * OF_A_LOOP * 0.5 + 200.0, "{open}");
}

#[test]
fn answers_that_are_ready_are_a_part_of_the_budget() {
    if is_nginx() {
        return;
    }
    // Two 64ths of it: of files, and of caches.
    const MOST: f64 = (64 << 20) as f64 / 32.0;
    let origin = origin();
    let server = Server::start_with("worker_processes 2; memory_budget 64m;", &http(&origin));
    let mut most: f64 = 0.0;
    for _ in 0..4 {
        let mut connection = server.connect();
        for round in 0..900 {
            // Each of them several times: what is asked for once is not kept.
            let request = format!("GET /c/{} HTTP/1.1\r\nHost: a\r\n\r\n", round / 3);
            assert_eq!(connection.send(request).reply().status, 200);
        }
        most = most.max(held(&figures(&server), "answers"));
    }
    assert!(most > 0.0 && most <= MOST, "{most} of {MOST}");
}

#[test]
fn bodies_of_requests_are_counted_while_they_are_there() {
    if is_nginx() {
        return;
    }
    const BODY: usize = 200_000;
    let (let_go, held_back) = std::sync::mpsc::channel::<()>();
    let held_back = std::sync::Mutex::new(held_back);
    let origin = Origin::start(move |_| {
        let _ = held_back
            .lock()
            .expect("one at a time")
            .recv_timeout(PATIENCE);
        Answer::with("200 OK", "", "done")
    });
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT%; client_body_buffer_size 1m;
             location / {{ proxy_pass http://{}; }}
             location = /metrics {{ access_log off; metrics; }} }}",
        origin.address()
    );
    let server = Server::start(&http);
    let mut connection = server.connect();
    let body = "b".repeat(BODY);
    connection.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n{body}"
    ));
    wait_for(&server, "counted", |all| {
        held(all, "request_bodies") >= BODY as f64
    });
    let_go.send(()).expect("it waits");
    assert_eq!(connection.reply().text(), "done");
    wait_for(&server, "given back", |all| {
        held(all, "request_bodies") == 0.0
    });
}

/// A large answer over TLS and one over HTTP/2, whose clients read nothing, and the figures.
const SLOW: &str = "server { listen 127.0.0.1:%PORT% sndbuf=16k; http2 on;
         location / { } location = /metrics { metrics; } }
     server { listen 127.0.0.1:%PORT1% ssl sndbuf=16k; ssl_certificate a.crt; ssl_certificate_key a.key; location / { } }";

#[test]
fn tls_and_http2_are_in_the_budget_and_hold_less_where_memory_is_scarce() {
    if is_nginx() {
        return;
    }
    const CLIENTS: usize = 4;
    let site = Site::new();
    Certificate::of("a.example").write(&site, "a");
    let server = Server::start_on(site, "", SLOW);
    server.file("large", vec![7; 16 << 20]);
    let before = figures(&server);
    assert_eq!(held(&before, "http2"), 0.0);
    let request = "GET /large HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let slow = |server: &Server| {
        let tls = |_| {
            let client = TlsClient::new(None).connect(server.site().port(1), "a.example");
            let mut client = client.expect("it is a name");
            setsockopt(&client.sock, RcvBuf, &1).expect("any size is rounded up");
            let sent = client.write_all(request.as_bytes());
            sent.expect("the server takes a request");
            client
        };
        let over_tls: Vec<_> = (0..CLIENTS).map(tls).collect();
        let over_http2: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = server.connect_http2_with_window(8 << 20);
                setsockopt(client.stream(), RcvBuf, &1).expect("any size is rounded up");
                let stream = client.get("/large");
                client.read_until(stream, 1);
                client
            })
            .collect();
        (over_tls, over_http2)
    };
    let clients = slow(&server);
    let least = (CLIENTS * (16 << 10)) as f64;
    let all = wait_for(&server, "unsent frames and records", |all| {
        held(all, "http2") >= 4.0 * least && held(all, "tls") >= held(&before, "tls") + 16_384.0
    });
    let wide = (held(&all, "http2"), held(&all, "tls"));
    drop(clients);
    wait_for(&server, "the end", |all| held(all, "http2") == 0.0);

    server.reload_with("memory_budget 1m;", SLOW);
    wait_for(&server, "scarce", |all| scarcity(all) == 5.0);
    let _clients = slow(&server);
    let all = wait_for(&server, "unsent frames", |all| held(all, "http2") >= least);
    // Of each a record or a frame, and what is left of the connection.
    let most = (CLIENTS * (16 << 10) * 2 + (96 << 10)) as f64;
    let found = (held(&all, "http2"), held(&all, "tls"));
    assert!(found.0 <= most && found.1 <= most, "{found:?} of {wide:?}");
    assert!(found.0 < wide.0 / 2.0, "{found:?} of {wide:?}");
}

#[test]
fn a_budget_of_nothing_is_refused() {
    if is_nginx() {
        return;
    }
    for value in ["0", "much", "-1"] {
        let text = format!("memory_budget {value}; events {{}} http {{}}");
        let refused = Server::try_start(&text).err().expect("it is refused");
        let said = refused.stderr;
        assert!(said.contains("memory_budget"), "{said}");
    }
}

/// CAP_SYS_RESOURCE (capabilities(7)), without which a score can only be raised.
fn has_right() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is such a file");
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    rights.is_some_and(|rights| rights & 1 << 24 != 0)
}

#[test]
fn the_worker_is_not_the_first_to_be_killed_for_want_of_memory() {
    let score = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
    let server = Server::start("server { listen 127.0.0.1:%PORT%; }");
    let master = score(server.pid()).expect("there is such a file");
    if is_nginx() || !has_right() || master.trim() != "0" {
        return;
    }
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let children = std::fs::read_to_string(children).expect("there is a master");
    let worker: i32 = children.trim().parse().expect("there is one worker");
    let worker = score(worker).expect("there is such a file");
    assert_eq!(worker.trim(), "-250");
}
