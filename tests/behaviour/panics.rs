//! A fault in the code ends the connection that met it, and nothing else.

use blackbox::{Exposition, Server, Site, is_nginx};
use std::path::Path;

#[test]
fn a_panic_ends_its_connection_only_and_names_the_client() {
    if is_nginx() {
        return;
    }
    let site = Site::of(Path::new(env!("CARGO_BIN_EXE_told-module")));
    let server = Server::start_on(
        site,
        "worker_processes 1;",
        "server { listen 127.0.0.1:%PORT%; status_zone zone; location = /metrics { metrics; } location / { panic_in $arg_in; } }",
    );
    let mut other = server.connect();
    let calm = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(other.send(calm).reply().text(), "calm");
    for place in ["loop", "pool"] {
        let ended = server.raw(format!("GET /?in={place} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(ended, "", "closed without a byte");
        assert_eq!(other.send(calm).reply().text(), "calm");
        assert_eq!(server.get("/").text(), "calm");
    }
    server.wait_for("*4 told to", "the second line");
    let log = server.error_log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("the connection is closed"))
        .collect();
    assert_eq!(told.len(), 2, "{log}");
    assert!(
        told[0].contains("[alert]")
            && told[0].contains("tests/modules/told.rs:")
            && told[0].contains("told to")
            && told[0].contains(", client: 127.0.0.1, server: 127.0.0.1:"),
        "{log}"
    );
    assert!(!log.contains("exited on signal"), "{log}");
    // Only the one that asks: what has panicked is not in progress.
    let page = Exposition::read(&server.get("/metrics").text(), false);
    let running = "freewheel_zone_requests_running{zone=\"zone\"}";
    assert_eq!(page.get(running), Some(1.0));
    server.forget_log();
}
