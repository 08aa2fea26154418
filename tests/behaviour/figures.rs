//! The figures: `stub_status` as nginx has it, `metrics` and `status_json`, which are our own.

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
