//! Logs as JSON: the predefined format of access logs, and `json` of error logs. Freewheel's own.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use blackbox::{Server, Site, is_nginx};
use serde_json::Value;

/// Every line of a log, as an object; a log that is not UTF-8 is a failure.
fn objects(server: &Server, name: &str) -> Vec<Value> {
    let bytes = std::fs::read(server.site().path(name)).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let parse = |line: &str| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    text.lines().map(parse).collect()
}

#[test]
fn every_line_of_an_access_log_is_an_object() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; access_log logs/access.log json buffer=64k flush=10ms;
            location /up { proxy_pass http://127.0.0.1:%PORT%/ok; }
            location / { return 200 four; } }",
    );
    server.get_with(
        "/a?b=\"c\"",
        "User-Agent: q\"\\\x7f\u{e4}\r\nReferer: r\r\n",
    );
    server.raw(b"GET /\xff\xfe\x01 HTTP/1.1\r\nHost: a\r\nUser-Agent: \xc3\r\n\r\n");
    server.raw(b"nonsense\r\n\r\n");
    server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    server.get("/up");
    server.access_log(6);
    let all = objects(&server, "logs/access.log");
    assert_eq!(all.len(), 6);
    let first = &all[0];
    assert_eq!(first["status"], 200);
    assert_eq!(first["method"], "GET");
    assert_eq!(first["uri"], "/a?b=\"c\"");
    assert_eq!(first["user_agent"], "q\"\\\x7f\u{e4}");
    assert_eq!(first["referer"], "r");
    assert_eq!(first["body_bytes_sent"], 4);
    assert_eq!(first["remote_addr"], "127.0.0.1");
    assert!(first["request_time"].is_number() && first["msec"].is_number());
    assert!(first.get("remote_user").is_none() && first.get("upstream_addr").is_none());
    for object in &all {
        assert!(
            object["status"].is_number() && object["time"].is_string(),
            "{object}"
        );
    }
    assert!(all.iter().any(|object| object["status"] == 400));
    let passed = all.iter().find(|object| object["uri"] == "/up").unwrap();
    assert_eq!(passed["upstream_status"], "200");
}

#[test]
fn a_format_of_that_name_goes_first() {
    let server = Server::start(
        "log_format json '$status';
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log json; return 204; }",
    );
    server.get("/");
    assert_eq!(server.access_log(1), "204\n");
}

#[test]
fn every_line_of_an_error_log_is_an_object() {
    if is_nginx() {
        return;
    }
    let server = Server::start_with(
        "error_log logs/errors.json info json; error_log logs/errors.text info;",
        "server { listen 127.0.0.1:%PORT%; root html;
            location /own { error_log logs/own.json json; } }",
    );
    server.get("/missing");
    server.raw(
        b"GET /own/\xff\"\\\x02 HTTP/1.1\r\nHost: a\r\nReferer: \xff\r\nConnection: close\r\n\r\n",
    );
    server.get("/own/other");
    let mut server = server;
    assert!(server.quit().success());
    let all = objects(&server, "logs/errors.json");
    let of = |text: &str| {
        let has = |object: &&Value| {
            object["message"]
                .as_str()
                .is_some_and(|one| one.contains(text))
        };
        all.iter()
            .find(has)
            .unwrap_or_else(|| panic!("{text}: {all:?}"))
    };
    let missing = of("/html/missing\" failed (2: No such file or directory), client: 127.0.0.1");
    assert_eq!(missing["level"], "error");
    assert!(missing["connection"].is_number() && missing["pid"].is_number());
    assert!(missing["tid"].is_number() && missing["time"].is_string());
    let lines = server.read("logs/errors.text").lines().count();
    assert_eq!(all.len(), lines, "the same lines in both forms");
    let own = objects(&server, "logs/own.json");
    assert!(!own.is_empty(), "the location's own log");
    assert!(
        own.iter().all(|object| object["level"] == "error"),
        "{own:?}"
    );
}

#[test]
fn nginx_s_levels_are_as_they_were() {
    let site = Site::new();
    for (line, sentence) in [
        ("error_log logs/e info xml;", "duplicate log level \"xml\""),
        ("error_log logs/e xml;", "invalid log level \"xml\""),
    ] {
        site.configure(&format!("{line} events {{ }} http {{ }}"));
        let (status, text) = site.run(&["-t"]);
        let is_told = text.contains(sentence) || text.contains("invalid log level \"xml\"");
        assert!(!status.success() && is_told, "{text}");
    }
}
