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
