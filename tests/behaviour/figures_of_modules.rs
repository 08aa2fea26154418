//! The figures of limits, compression, passwords, sub-requests and of what proxies say: all our own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::Write as _;

use blackbox::{Answer, Exposition, Origin, PATIENCE, Server, is_nginx};
use message::base64;

const METRICS: &str =
    "server { listen 127.0.0.1:%PORT%; server_name figures; access_log off; metrics; }";
const MODULES: [&str; 5] = [
    "freewheel_limit_",
    "freewheel_compression_",
    "freewheel_auth_",
    "freewheel_subrequests",
    "freewheel_proxy_protocol_",
];

/// Starts a server with figures, and another one with this in it.
fn start(http: &str, server: &str) -> Server {
    Server::start(&with_metrics(http, server))
}

fn with_metrics(http: &str, server: &str) -> String {
    format!(
        "{http} server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log said; {server} }} {METRICS}"
    )
}

fn text(server: &Server) -> String {
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: figures\r\nConnection: close\r\n\r\n");
    client.reply().text()
}

fn metrics(server: &Server) -> Exposition {
    Exposition::read(&text(server), false)
}

/// Waits until a sample has this value: some are counted behind the answer.
fn until(server: &Server, key: &str, value: f64) -> Exposition {
    let begun = std::time::Instant::now();
    loop {
        let page = metrics(server);
        if page.get(key) == Some(value) {
            return page;
        }
        let now = page.get(key);
        assert!(begun.elapsed() < PATIENCE, "{key}: {now:?}, not {value}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The sample of a family without its name's beginning, whatever its kind.
fn get(page: &Exposition, key: &str) -> f64 {
    let key = format!("freewheel_{key}");
    page.get(&key)
        .unwrap_or_else(|| panic!("no {key}: {page:?}"))
}

#[test]
fn what_is_not_configured_is_not_shown() {
    if is_nginx() {
        return;
    }
    let server = start("log_format said '';", "location / { return 200 x; }");
    assert_eq!(server.get("/").status, 200);
    let text = text(&server);
    for name in MODULES {
        assert!(!text.contains(name), "{name}");
    }
    assert!(text.contains("freewheel_loop_requests_total"));
}

/// Zones of limits, the first of that size.
fn limits(size: &str) -> String {
    format!(
        "log_format said '$limit_req_status $limit_conn_status';
         limit_req_zone $arg_key zone=slow:{size} rate=1r/m; limit_req_zone $arg_other zone=other:1m rate=60r/m;
         limit_conn_zone $arg_key zone=few:1m;"
    )
}

#[test]
fn zones_of_limits_count_what_the_log_says() {
    if is_nginx() {
        return;
    }
    let locations = "try_files /none =204;
        location /a { limit_req zone=slow; }
        location /dry { limit_req zone=slow burst=1; limit_req_dry_run on; }
        location /both { limit_req zone=slow burst=9 nodelay; limit_req zone=other burst=2; }
        location /few { limit_conn few 1; auth_request /in; }
        location /fewdry { limit_conn_dry_run on; limit_conn few 1; proxy_pass http://127.0.0.1:%PORT%/few; }
        location /in { try_files /none =204; }";
    let server = start(&limits("1m"), locations);
    let get_all = |path: &str, times: usize| (0..times).for_each(|_| drop(server.get(path)));
    get_all("/a?key=a", 3);
    get_all("/a", 2);
    // Passed, would be delayed, would be rejected twice.
    get_all("/dry?key=b", 4);
    // One waits for the other zone; the next one as well.
    get_all("/both?key=c&other=c", 2);
    get_all("/few?key=d", 2);
    get_all("/few", 1);
    // It takes a place while it asks for another one with its key.
    get_all("/fewdry?key=f", 1);
    let lines = 3 + 2 + 4 + 2 + 2 + 1 + 2;
    let log = server.access_log(lines);
    let logged = |word: &str| {
        let of_requests = log
            .lines()
            .filter(|line| line.split(' ').next() == Some(word));
        of_requests.count() as f64
    };
    let page = metrics(&server);
    let slow = |said: &str| {
        format!("limit_requests_total{{kind=\"limit_req\",zone=\"slow\",outcome=\"{said}\"}}")
    };
    let other = |said: &str| slow(said).replace("slow", "other");
    let few = |said: &str| {
        slow(said)
            .replace("limit_req\"", "limit_conn\"")
            .replace("slow", "few")
    };
    for said in ["delayed", "rejected", "delayed_dry_run", "rejected_dry_run"] {
        let both = get(&page, &slow(said)) + get(&page, &other(said));
        assert_eq!(both, logged(&said.to_ascii_uppercase()), "{said}\n{log}");
    }
    assert_eq!(get(&page, &slow("rejected")), 2.0);
    assert_eq!(get(&page, &slow("delayed_dry_run")), 1.0);
    assert_eq!(get(&page, &slow("rejected_dry_run")), 2.0);
    assert_eq!(get(&page, &other("delayed")), 1.0);
    // The first of a, b and both; and the second of both, which the other zone has wait.
    assert_eq!(
        get(&page, &slow("passed")) + get(&page, &other("passed")),
        5.0
    );
    assert_eq!(get(&page, &few("passed")), 3.0);
    assert_eq!(get(&page, &few("rejected")), 1.0);
    assert_eq!(page.get(&few("delayed")), None);
    let of_slow = "{kind=\"limit_req\",zone=\"slow\"}";
    assert_eq!(get(&page, &format!("limit_zone_keys{of_slow}")), 3.0);
    assert_eq!(
        get(&page, &format!("limit_zone_used_bytes{of_slow}")),
        3.0 * 128.0
    );
    let size = get(&page, &format!("limit_zone_size_bytes{of_slow}"));
    assert!(size > 1e6 && size <= 1_048_576.0, "{size}");
    let of_few = "{kind=\"limit_conn\",zone=\"few\"}";
    until(&server, &format!("freewheel_limit_zone_keys{of_few}"), 0.0);
}

#[test]
fn a_zone_of_another_size_is_a_new_one_of_which_the_same_is_counted() {
    if is_nginx() {
        return;
    }
    let location = "location / { limit_req zone=slow; try_files /none =204; }";
    let server = start(&limits("1m"), location);
    assert_eq!(server.get("/?key=a").status, 204);
    assert_eq!(server.get("/?key=a").status, 503);
    let page = metrics(&server);
    let of_slow = "{kind=\"limit_req\",zone=\"slow\"}";
    assert_eq!(get(&page, &format!("limit_zone_keys{of_slow}")), 1.0);
    server.reload(&with_metrics(&limits("32k"), location));
    let after = metrics(&server);
    assert_eq!(after.shrunk_since(&page), [""; 0]);
    assert_eq!(get(&after, &format!("limit_zone_keys{of_slow}")), 0.0);
    let mut client = server.connect();
    for key in 0..200 {
        client
            .send(format!("GET /?key={key} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .reply();
    }
    let full = metrics(&server);
    let places = 6.0 * 32.0;
    assert_eq!(get(&full, &format!("limit_zone_keys{of_slow}")), places);
    assert_eq!(
        get(&full, &format!("limit_zone_forgotten_keys_total{of_slow}")),
        200.0 - places
    );
}

#[test]
fn what_is_compressed_is_counted_as_it_is_sent() {
    if is_nginx() {
        return;
    }
    let body = "hello, ".repeat(60_000);
    let server = start(
        "log_format said '$body_bytes_sent';",
        "types { text/html html; } zstd on; brotli on; gzip on; location /moved { return 302 /; }",
    );
    server.file("a.html", &body);
    let key =
        |name: &str, codec: &str| format!("freewheel_compression_{name}{{encoding=\"{codec}\"");
    // In HTTP/1.0 nothing stands between the bytes of a body.
    for (number, coding) in ["gzip", "br", "zstd"].iter().enumerate() {
        let line = format!("Accept-Encoding: {coding}\r\n");
        let reply = server.raw(format!("GET /a.html HTTP/1.0\r\n{line}\r\n"));
        assert!(!reply.is_empty());
        assert_eq!(server.request("HEAD", "/a.html", &line).status, 200);
        assert_eq!(server.get_with("/moved", &line).status, 302);
        let log = server.access_log(3 * (number + 1));
        let sent: f64 = log
            .lines()
            .nth(3 * number)
            .expect("it was waited for")
            .parse()
            .expect(&log);
        let page = metrics(&server);
        // gzip has no HTTP/1.0 (gzip_http_version).
        if *coding == "gzip" {
            assert_eq!(page.get(&(key("responses_total", coding) + "}")), Some(0.0));
            continue;
        }
        assert_eq!(
            page.get(&(key("responses_total", coding) + "}")),
            Some(1.0),
            "{coding}"
        );
        assert_eq!(
            page.get(&(key("bytes_total", coding) + ",direction=\"in\"}")),
            Some(body.len() as f64)
        );
        assert_eq!(
            page.get(&(key("bytes_total", coding) + ",direction=\"out\"}")),
            Some(sent),
            "{log}"
        );
        // More than a loop does at once.
        assert!(page.get(&(key("seconds_total", coding) + ",place=\"pool\"}")) > Some(0.0));
    }
    let reply = server.get_with("/a.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    let page = metrics(&server);
    assert_eq!(
        page.get(&(key("bytes_total", "gzip") + ",direction=\"out\"}")),
        Some(reply.body.len() as f64)
    );
    assert_eq!(
        page.get(&(key("bytes_total", "gzip") + ",direction=\"in\"}")),
        Some(body.len() as f64)
    );
    // What is no more configured was counted all the same.
    server.reload(&with_metrics("log_format said '';", "location / { }"));
    assert_eq!(metrics(&server).shrunk_since(&page), [""; 0]);
}

#[test]
fn what_is_decompressed_is_counted_as_well() {
    if is_nginx() {
        return;
    }
    let body = "hello, ".repeat(60_000);
    let server = start("log_format said '';", "gunzip on; gzip_static always;");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(body.as_bytes()).expect("a Vec takes all");
    let packed = packer.finish().expect("a Vec takes all");
    server.file("packed.html.gz", &packed);
    assert_eq!(server.get("/packed.html").body.len(), body.len());
    let page = metrics(&server);
    let bytes = |direction: &str| {
        let labels = format!("{{encoding=\"gunzip\",direction=\"{direction}\"}}");
        page.get(&format!("freewheel_compression_bytes_total{labels}"))
    };
    assert_eq!(bytes("in"), Some(packed.len() as f64));
    assert_eq!(bytes("out"), Some(body.len() as f64));
}

#[test]
fn passwords_are_counted_by_what_was_found() {
    if is_nginx() {
        return;
    }
    let server = start(
        "log_format said '$status';",
        "auth_delay 10ms; location / { auth_basic closed; auth_basic_user_file html/users; try_files /none =204; }
         location /nobody { auth_basic closed; auth_basic_user_file html/nobody; }",
    );
    server.file("users", "a:{PLAIN}a-secret\nbroken:$9$x\n");
    let ask = |path: &str, said: &str| {
        let said = base64::encode(said.as_bytes());
        server
            .get_with(path, &format!("Authorization: Basic {said}\r\n"))
            .status
    };
    assert_eq!(server.get("/").status, 401);
    assert_eq!(ask("/", "a:a-secret"), 204);
    assert_eq!((ask("/", "a:a-secret"), ask("/", "a:a-secret")), (204, 204));
    assert_eq!((ask("/", "a:wrong"), ask("/", "a:wrong")), (401, 401));
    assert_eq!(ask("/", "nobody:x"), 401);
    assert_eq!(ask("/", "broken:x"), 401);
    assert_eq!(ask("/nobody", "a:a-secret"), 403);
    let page = metrics(&server);
    let found = |outcome: &str| {
        get(
            &page,
            &format!("auth_basic_requests_total{{outcome=\"{outcome}\"}}"),
        )
    };
    let all = [
        "right",
        "remembered",
        "missing",
        "unknown_user",
        "wrong",
        "unreadable",
        "failed",
    ];
    assert_eq!(all.map(found), [1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0]);
    assert_eq!(get(&page, "auth_basic_check_seconds_count"), 4.0);
    let refused = server.access_log(9).matches("401").count();
    assert_eq!(get(&page, "auth_delayed_requests_total"), refused as f64);
}

#[test]
fn sub_requests_are_counted_by_who_asks_and_what_came() {
    if is_nginx() {
        return;
    }
    let origin = Origin::start(|request| {
        let range = request.header("Range").unwrap_or_default().to_owned();
        let part = range
            .strip_prefix("bytes=")
            .and_then(|range| range.split_once('-'));
        let (first, last) = part.unwrap_or(("0", "3"));
        let head = format!("Content-Range: bytes {first}-{last}/12\r\n");
        Answer::with("206 Partial Content", &head, "abcd")
    });
    let server = start(
        "log_format said '$uri';",
        &format!(
            "location /let/ {{ auth_request /204; try_files /none =204; }}
             location /not/ {{ auth_request /403; try_files /none =204; }}
             location /mirrored/ {{ mirror /204; mirror /closed; mirror /500; alias %DIR%/html/; }}
             location /more/ {{ add_before_body /204; add_after_body /500; alias %DIR%/html/; }}
             location /page/ {{ ssi on; alias %DIR%/html/; }}
             location /sliced/ {{ slice 4; proxy_set_header Range $slice_range; proxy_pass http://{}; }}
             location /then/ {{ post_action /500; try_files /none =204; }}
             location = /204 {{ return 204; }} location = /403 {{ return 403; }}
             location = /500 {{ return 500; }} location = /closed {{ return 444; }}",
            origin.address()
        ),
    );
    server.file(
        "a.html",
        "<!--#include virtual=\"/204\" --><!--#include virtual=\"/none\" -->",
    );
    for path in [
        "/let/",
        "/not/",
        "/mirrored/a.html",
        "/more/a.html",
        "/page/a.html",
        "/then/",
    ] {
        server.get(path);
    }
    assert_eq!(server.get("/sliced/x").text(), "abcdabcdabcd");
    let key = |by: &str, status: &str| {
        format!("freewheel_subrequests_total{{kind=\"{by}\",status=\"{status}\"}}")
    };
    until(&server, &key("post_action", "5xx"), 1.0);
    let page = until(&server, &key("mirror", "5xx"), 1.0);
    for (by, status, count) in [
        ("auth_request", "2xx", 1.0),
        ("auth_request", "4xx", 1.0),
        ("mirror", "2xx", 1.0),
        ("mirror", "none", 1.0),
        ("addition", "2xx", 1.0),
        ("addition", "5xx", 1.0),
        ("ssi", "2xx", 1.0),
        ("ssi", "4xx", 1.0),
        ("slice", "2xx", 2.0),
    ] {
        assert_eq!(page.get(&key(by, status)), Some(count), "{by} {status}");
    }
    assert_eq!(page.sum("freewheel_subrequests_total", &[]), 12.0);
}

#[test]
fn what_proxies_say_is_counted() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT1% proxy_protocol; client_header_timeout 1s; return 204; }}
         server {{ listen 127.0.0.1:%PORT%; set_real_ip_from 127.0.0.1; auth_request /in; real_ip_header X-Client;
             location / {{ try_files /none =204; }} location = /in {{ return 204; }} }} {METRICS}"
    ));
    let ask = |said: &str| {
        server
            .connect_to(1)
            .send(format!("{said}GET / HTTP/1.0\r\n\r\n"))
            .rest()
    };
    assert!(!ask("PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n").is_empty());
    assert!(!ask("PROXY UNKNOWN\r\n").is_empty());
    assert!(ask("").is_empty());
    assert!(server.connect_to(1).send("PROXY ").rest().is_empty());
    for line in [
        "",
        "X-Client: 192.0.2.1\r\n",
        "X-Client: nobody\r\n",
        "X-Client: 192.0.2.2\r\n",
    ] {
        assert_eq!(server.get_with("/", line).status, 204);
    }
    let page = metrics(&server);
    let began = |outcome: &str| {
        get(
            &page,
            &format!("proxy_protocol_connections_total{{outcome=\"{outcome}\"}}"),
        )
    };
    assert_eq!(["read", "broken", "missing"].map(began), [2.0, 1.0, 1.0]);
    let named = |outcome: &str| {
        get(
            &page,
            &format!("real_ip_requests_total{{outcome=\"{outcome}\"}}"),
        )
    };
    assert_eq!(["replaced", "invalid"].map(named), [2.0, 1.0]);
}

#[test]
fn what_dav_does_with_a_disk_is_timed() {
    if is_nginx() {
        return;
    }
    let server = start(
        "log_format said '$uri'; client_body_temp_path %DIR%/bodies;",
        "dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; location / { }",
    );
    let count = |page: &Exposition, operation: &str| {
        get(
            page,
            &format!("disk_call_seconds_count{{operation=\"{operation}\"}}"),
        )
    };
    // The worker may be somebody else.
    let files = server.site().path("html");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(files, permissions).expect("it is ours");
    let before = metrics(&server);
    let to = |path: &str| format!("Destination: {path}\r\n");
    assert_eq!(server.request("MKCOL", "/made/", "").status, 201);
    assert_eq!(
        server
            .request("PUT", "/made/a", "Content-Length: 0\r\n")
            .status,
        201
    );
    assert_eq!(
        server.request("COPY", "/made/", &to("/copied/")).status,
        201
    );
    assert_eq!(
        server.request("MOVE", "/copied/a", &to("/moved")).status,
        204
    );
    assert_eq!(server.request("DELETE", "/made/", "").status, 204);
    let after = metrics(&server);
    for (operation, least) in [
        // The directories, the one that is copied, and what lies in them.
        ("other", 2.0),
        ("create", 2.0),
        ("readdir", 2.0),
        ("rename", 2.0),
        ("unlink", 2.0),
        ("stat", 1.0),
    ] {
        let more = count(&after, operation) - count(&before, operation);
        assert!(more >= least, "{operation}: {more}");
    }
}
