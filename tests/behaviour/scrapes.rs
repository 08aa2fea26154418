//! Figures as answers: in which format, however many there are, whoever asks, whatever their names are.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Exposition, PATIENCE, Server, Site, is_nginx};
use serde_json::Value;

const FIGURES: &str = "location = /metrics { metrics; } location = /json { status_json; } location = /d { dashboard; }";
/// So many zones make a page of several megabytes.
const ZONES: usize = 500;
/// Those that ask at the same time.
const SCRAPERS: usize = 100;

fn many_zones() -> Server {
    let zones = (0..ZONES)
        .map(|zone| format!("location = /{zone} {{ status_zone zone{zone}; return 204; }}"));
    let zones: String = zones.collect();
    let server = Server::start(&format!(
        "gzip_types *; server {{ listen 127.0.0.1:%PORT%; {FIGURES} {zones}
            location = /gzip {{ metrics; gzip on; }} }}"
    ));
    for zone in 0..ZONES {
        assert_eq!(server.get(&format!("/{zone}")).status, 204);
    }
    server
}

#[test]
fn open_metrics_is_given_to_who_wants_it_most() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&format!("server {{ listen 127.0.0.1:%PORT%; {FIGURES} }}"));
    let ask = |accept: &str| {
        let reply = server.get_with("/metrics", &format!("Accept: {accept}\r\n"));
        let kind = reply.header("Content-Type").unwrap_or_default();
        let is_open = kind == "application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(is_open || kind == "text/plain; version=0.0.4; charset=utf-8");
        Exposition::read(&reply.text(), is_open);
        is_open
    };
    assert!(ask(
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4,*/*;q=0.1"
    ));
    assert!(!ask("application/openmetrics-text;q=0.1, text/plain;q=0.9"));
    assert!(!ask("APPLICATION/OPENMETRICS-TEXT; Q=0.0"));
    assert!(!ask("*/*"));
}

#[test]
fn a_page_of_many_zones_is_whole_however_it_is_asked_for() {
    if is_nginx() {
        return;
    }
    let server = many_zones();
    let mut kept = server.connect();
    let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..2 {
        let reply = kept.send(request).reply();
        assert!(
            reply.body.len() > 1 << 20,
            "in pieces: {}",
            reply.body.len()
        );
        let length: usize = reply
            .header("Content-Length")
            .expect("it is known")
            .parse()
            .expect("a number");
        assert_eq!(length, reply.body.len());
        let page = Exposition::read(&reply.text(), false);
        assert_eq!(
            page.sum("freewheel_zone_requests_total", &["2xx"]),
            ZONES as f64
        );
    }
    let old = server.raw("GET /metrics HTTP/1.0\r\n\r\n");
    let (_, body) = old.split_once("\r\n\r\n").expect("it has a head");
    Exposition::read(body, false);
    let head = server.request("HEAD", "/metrics", "");
    assert!(head.header("Content-Length").is_some() && head.body.is_empty());
    assert_eq!(server.request("POST", "/metrics", "").status, 405);
    // No part of a page that is another one each time.
    assert_eq!(
        server.get_with("/metrics", "Range: bytes=0-9\r\n").status,
        200
    );
    let packed = server.get_with("/gzip", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
    let mut text = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::GzDecoder::new(&packed.body[..]),
        &mut text,
    )
    .expect("it is gzip");
    Exposition::read(&text, false);
    let json: Value = serde_json::from_str(&server.get("/json").text()).expect("it is JSON");
    let samples = json["figures"]["freewheel_zone_request_seconds"]["samples"].as_array();
    assert_eq!(samples.map(Vec::len), Some(ZONES));
}

#[test]
fn who_asks_at_the_same_time_gets_a_page_each_or_is_asked_to_come_again() {
    if is_nginx() {
        return;
    }
    let server = many_zones();
    let mut all: Vec<_> = (0..SCRAPERS).map(|_| server.connect()).collect();
    for (number, one) in all.iter_mut().enumerate() {
        let path = ["/metrics", "/json"][number % 2];
        one.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    let mut answered = 0;
    for (number, one) in all.iter_mut().enumerate() {
        let reply = one.reply();
        if reply.status == 503 {
            assert_eq!(reply.header("Retry-After"), Some("1"));
            continue;
        }
        answered += 1;
        if number % 2 == 0 {
            Exposition::read(&reply.text(), false);
        } else {
            let page: Result<Value, _> = serde_json::from_str(&reply.text());
            assert!(page.is_ok());
        }
    }
    assert!(answered >= SCRAPERS / 2, "{answered}");
}

#[test]
fn names_that_are_no_text_are_told_apart() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let strange: &[&[u8]] = &[
        b"a\xff",
        b"a\xfe",
        b"q\\\"",
        b"new\nline",
        b"b\\\\",
        b"\x01",
    ];
    let mut zones = Vec::new();
    for (number, name) in strange.iter().enumerate() {
        zones.extend_from_slice(format!("location = /{number} {{ status_zone \"").as_bytes());
        zones.extend_from_slice(name);
        zones.extend_from_slice(b"\"; return 204; }\n");
    }
    std::fs::write(site.path("zones.conf"), zones).expect("the directory is ours");
    let server = Server::start_on(
        site,
        "",
        &format!("server {{ listen 127.0.0.1:%PORT%; {FIGURES} include %DIR%/zones.conf; }}"),
    );
    for number in 0..strange.len() {
        assert_eq!(server.get(&format!("/{number}")).status, 204);
    }
    let page = Exposition::read(&server.get("/metrics").text(), false);
    for name in [
        "a\\\\xff",
        "a\\\\xfe",
        "q\\\"",
        "new\\nline",
        "b\\\\",
        "\u{1}",
    ] {
        let sample = format!("freewheel_zone_requests_total{{zone=\"{name}\",status=\"2xx\"}}");
        assert_eq!(page.get(&sample), Some(1.0), "{sample}");
    }
    let json: Value = serde_json::from_str(&server.get("/json").text()).expect("it is JSON");
    let samples = json["figures"]["freewheel_zone_request_seconds"]["samples"].as_array();
    let names = samples
        .into_iter()
        .flatten()
        .map(|sample| sample["labels"]["zone"].as_str());
    let names: Vec<&str> = names.flatten().collect();
    for name in ["a\\xff", "a\\xfe", "q\"", "new\nline", "b\\", "\u{1}"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    std::fs::write(site.path("pools.conf"), b"thread_pool a\xff threads=1;\n")
        .expect("the directory is ours");
    site.configure("daemon off; pid nginx.pid; include %DIR%/pools.conf; events {}");
    let refused = site.start().err().expect("it does not start").stderr;
    assert!(refused.contains("is not UTF-8"), "{refused}");
    let refused = Server::try_start(
        "daemon off; pid nginx.pid; events {} http { server { listen 127.0.0.1:%PORT%; status_zone \"\"; } }",
    );
    let refused = refused.err().expect("it does not start").stderr;
    assert!(
        refused.contains("a zone of \"status_zone\" has a name"),
        "{refused}"
    );
}

#[test]
fn a_dashboard_of_many_zones_shows_the_rest_too_and_their_sum() {
    if is_nginx() {
        return;
    }
    let server = many_zones();
    let begun = std::time::Instant::now();
    // What was counted before the last sample is not in it.
    let series = loop {
        let series = series(&server);
        if named(&series, "freewheel_zone_first_byte_seconds").len() > 2 {
            break series;
        }
        assert!(begun.elapsed() < PATIENCE, "{series}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    for name in [
        "freewheel_pool_queue",
        "freewheel_log_lines",
        "freewheel_disk_answers",
    ] {
        assert!(!named(&series, name).is_empty(), "{name}");
    }
    let zones = named(&series, "freewheel_zone_first_byte_seconds");
    assert!((100..ZONES).contains(&zones.len()), "{}", zones.len());
    assert_eq!(zones.iter().filter(|one| one[3]["zone"] == "").count(), 1);
}

/// All series of the dashboard.
fn series(server: &Server) -> Value {
    let mut stream = server.connect();
    stream.send("GET /d?stream HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.until("event: series\ndata: ");
    serde_json::from_str(stream.until("\n").trim()).expect("it is JSON")
}

fn named<'a>(series: &'a Value, name: &str) -> Vec<&'a Value> {
    let all = series.as_array().into_iter().flatten();
    all.filter(|one| one[1] == name).collect()
}
