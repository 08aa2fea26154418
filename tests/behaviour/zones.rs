//! `status_zone`: what counts in which zone. It is our own in `http`.

use blackbox::{Exposition, PATIENCE, Server, is_nginx, until};

const METRICS: &str = "location = /metrics { access_log off; metrics; }";

fn metrics(server: &Server) -> Exposition {
    Exposition::read(&server.get("/metrics").text(), false)
}

#[test]
fn a_zone_is_named_by_a_constant() {
    if is_nginx() {
        return;
    }
    let refused = Server::try_start(
        "daemon off; pid nginx.pid; events {} http { server { listen 127.0.0.1:%PORT%; status_zone $host; } }",
    );
    let stderr = refused.err().expect("it does not start").stderr;
    assert!(
        stderr.contains("\"status_zone\" takes no variables: \"$host\""),
        "{stderr}"
    );
}

#[test]
fn requests_in_progress_are_those_of_the_server_s_zone() {
    if is_nginx() {
        return;
    }
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = blackbox::Origin::start(move |_| {
        let _ = held.lock().expect("nobody panics").recv();
        blackbox::Answer::ok("at last")
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; server_name figures; {METRICS} }}
         server {{ listen 127.0.0.1:%PORT%; server_name counted; status_zone whole;
            location / {{ proxy_pass http://{}; status_zone part; }} }}",
        origin.address()
    ));
    let running = |zone: &str| format!("freewheel_zone_requests_running{{zone=\"{zone}\"}}");
    let ask = || {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: counted\r\n\r\n");
        client
    };
    let mut clients = [ask(), ask()];
    reached(&server, |page| page.get(&running("whole")) == Some(2.0));
    // Whose turn it is is not known.
    (0..2).for_each(|_| release.send(()).expect("the origin waits"));
    for client in &mut clients {
        client.reply();
    }
    let page = reached(&server, |page| page.get(&running("whole")) == Some(0.0));
    let counted = page.sum("freewheel_zone_requests_total", &["zone=\"part\""]);
    assert_eq!(counted, 2.0);
    assert_eq!(page.get(&running("part")), None);
}

#[test]
fn a_request_counts_once_in_a_zone_and_in_that_of_the_location_that_failed() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; server_name figures; {METRICS} }}
         server {{ listen 127.0.0.1:%PORT%; server_name counted; status_zone whole; error_page 410 502 /why;
            location /same {{ status_zone whole; return 200 x; }}
            location /gone {{ status_zone gone; return 410; }}
            location /dead {{ status_zone dead; proxy_pass http://127.0.0.1:1; }}
            location = /why {{ internal; status_zone why; return 200 so; }} }}"
    ));
    for path in ["/same", "/gone", "/dead"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: counted\r\nConnection: close\r\n\r\n");
        server.raw(head);
    }
    let counted = |page: &Exposition, zone: &str| {
        page.sum(
            "freewheel_zone_requests_total",
            &[&format!("zone=\"{zone}\"")],
        )
    };
    let page = reached(&server, |page| counted(page, "whole") >= 3.0);
    for (zone, requests) in [("whole", 3.0), ("gone", 1.0), ("dead", 1.0), ("why", 0.0)] {
        assert_eq!(counted(&page, zone), requests, "{zone}");
    }
}

/// The figures once this holds.
fn reached(server: &Server, is_so: impl Fn(&Exposition) -> bool) -> Exposition {
    until("the figures", PATIENCE, || {
        Some(metrics(server)).filter(|page| is_so(page))
    })
}
