//! Answers that came by FastCGI: cached, in slices, stored, covered, and cut off.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use crate::cache::until;
use crate::fastcgi::{program, server};
use blackbox::gateway::{answer, end, stdout};
use blackbox::is_nginx;

#[test]
fn an_answer_that_is_cut_off_is_no_whole_one() {
    let program = program(|call| match call.param("SAYS") {
        "length" => [stdout("Content-Length: 9\r\n\r\nx"), end(0)].concat(),
        "record" => stdout("A: b\r\n\r\nxyz")[..16].to_vec(),
        _ => stdout("A: b\r\n\r\nx"),
    });
    let server = server(
        &program,
        "location / { fastcgi_cache c; fastcgi_cache_key $uri$arg_s; fastcgi_cache_valid 1m; fastcgi_param SAYS $arg_s; fastcgi_pass %P%;
            add_header X-Cache $upstream_cache_status; }",
    );
    for says in ["length", "record", "end"] {
        // nginx takes the connection's end for the answer's.
        if is_nginx() && says != "length" {
            continue;
        }
        for _ in 0..2 {
            let text = server.raw(format!(
                "GET /?s={says} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            ));
            assert!(
                text.starts_with("HTTP/1.1 200") && text.contains("X-Cache: MISS"),
                "{says}: {text}"
            );
            assert!(!text.ends_with("0\r\n\r\n"), "{says}: {text}");
        }
    }
    server.wait_for("upstream prematurely closed", "a response that ends early");
}

#[test]
fn answers_are_cached() {
    let program = program(|call| {
        let text = match call.param("REQUEST_METHOD") {
            "HEAD" => String::new(),
            _ => format!(
                "{}{}",
                call.param("HTTP_RANGE"),
                call.param("HTTP_IF_NONE_MATCH")
            ),
        };
        answer(format!(
            "Status: 200 Fine\r\nETag: \"e\"\r\nX-Line: kept\r\n\r\n{text}body"
        ))
    });
    let server = server(
        &program,
        "fastcgi_cache_valid 1m; fastcgi_param REQUEST_METHOD $request_method; add_header X-Cache $upstream_cache_status;
         location / { fastcgi_cache c; fastcgi_cache_key $request_method$uri; fastcgi_cache_bypass $arg_bypass;
            fastcgi_no_cache $arg_no; fastcgi_pass %P%; }
         location /min { fastcgi_cache c; fastcgi_cache_key $uri; fastcgi_cache_min_uses 2; fastcgi_pass %P%; }
         location /off { fastcgi_cache off; fastcgi_pass %P%; }",
    );
    let ask = |path: &str, lines: &str| {
        let reply = server.get_with(path, lines);
        let cache = reply.header("X-Cache").unwrap_or("-").to_owned();
        (cache, reply)
    };
    let (cache, reply) = ask("/a", "Range: bytes=0-1\r\nIf-None-Match: \"x\"\r\n");
    assert_eq!(
        (&cache[..], reply.status, &reply.reason[..]),
        ("MISS", 200, "Fine")
    );
    assert_eq!(reply.text(), "body", "the program is asked for the whole");
    let (cache, reply) = ask("/a", "");
    assert_eq!(
        (&cache[..], &reply.reason[..], reply.header("X-Line")),
        ("HIT", "Fine", Some("kept"))
    );
    assert_eq!(ask("/a", "If-None-Match: \"e\"\r\n").1.status, 304);
    assert_eq!(ask("/a?bypass=1", "").0, "BYPASS");
    assert_eq!(ask("/b?no=1", "").0, "MISS");
    assert_eq!(ask("/b", "").0, "MISS");
    assert_eq!(
        (ask("/min", "").0, ask("/min", "").0, ask("/min", "").0),
        ("MISS".into(), "MISS".into(), "HIT".into())
    );
    let asked = program.calls().len();
    assert_eq!(ask("/off", "").0, "-");
    for cache in ["MISS", "HIT"] {
        let head = server.request("HEAD", "/a", "");
        assert_eq!(head.header("X-Cache"), Some(cache));
        assert_eq!(head.header("Content-Length"), None);
    }
    assert_eq!(program.calls().len(), asked + 2);
    assert_eq!(program.last().param("REQUEST_METHOD"), "HEAD");
}

#[test]
fn what_is_stored_is_revalidated() {
    let program = program(|call| match call.param("HTTP_IF_NONE_MATCH") {
        "\"e\"" => answer("Status: 304\r\n\r\n"),
        _ => answer("ETag: \"e\"\r\nCache-Control: max-age=1\r\n\r\nbody"),
    });
    let server = server(
        &program,
        "location / { fastcgi_cache c; fastcgi_cache_key $uri; fastcgi_cache_revalidate on; fastcgi_pass %P%;
            add_header X-Cache $upstream_cache_status; }",
    );
    assert_eq!(server.get("/").text(), "body");
    let reply = until(&server, "/", &["HIT"], "REVALIDATED");
    assert_eq!(reply.text(), "body");
}

#[test]
fn slices_are_asked_for() {
    let program = program(|call| {
        let range = call
            .param("HTTP_RANGE")
            .strip_prefix("bytes=")
            .unwrap_or_default();
        let (first, last) = range.split_once('-').unwrap_or(("0", "9"));
        let (first, last) = (
            first.parse::<usize>().unwrap_or(0),
            last.parse::<usize>().unwrap_or(9).min(9),
        );
        let part = &"0123456789"[first..=last];
        answer(format!(
            "Status: 206\r\nContent-Range: bytes {first}-{last}/10\r\nContent-Length: {}\r\n\r\n{part}",
            part.len()
        ))
    });
    let server = server(
        &program,
        "location / { slice 4; fastcgi_param HTTP_RANGE $slice_range; fastcgi_cache c; fastcgi_cache_key $uri$slice_range;
            fastcgi_cache_valid 206 1m; fastcgi_pass %P%; }",
    );
    for _ in 0..2 {
        let reply = server.get("/");
        assert_eq!((reply.status, &reply.text()[..]), (200, "0123456789"));
    }
    assert_eq!(program.calls().len(), 3);
    assert_eq!(server.get_with("/", "Range: bytes=3-5\r\n").text(), "345");
}

#[test]
fn answers_lead_elsewhere_are_stored_and_covered() {
    let program = program(|call| match call.param("SAYS") {
        "accel" => answer("X-Accel-Redirect: /file\r\n\r\n"),
        "500" => answer("Status: 500\r\n\r\nbad"),
        _ => answer("A: b\r\n\r\nstored"),
    });
    let server = server(
        &program,
        "fastcgi_param SAYS $arg_s; location / { fastcgi_intercept_errors on; error_page 500 /covered; fastcgi_pass %P%; }
         location /file { return 200 file; } location /covered { return 200 covered; }
         location /hidden { fastcgi_hide_header A; fastcgi_pass_header X-Accel-Redirect; fastcgi_ignore_headers X-Accel-Redirect;
            fastcgi_pass %P%; }
         location /stored { fastcgi_store %DIR%/html/store; fastcgi_store_access all:rw; fastcgi_pass %P%; }",
    );
    assert_eq!(server.get("/?s=accel").text(), "file");
    assert_eq!(server.get("/?s=500").text(), "covered");
    let reply = server.get("/hidden?s=accel");
    assert_eq!(reply.header("X-Accel-Redirect"), Some("/file"));
    assert_eq!(server.get("/hidden").header("A"), None);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(server.site().path("html"), permissions).expect("it is ours");
    assert_eq!(server.get("/stored").text(), "stored");
    let begun = std::time::Instant::now();
    let path = server.site().path("html/store");
    while std::fs::read(&path).ok().as_deref() != Some(b"stored") {
        assert!(begun.elapsed() < blackbox::PATIENCE);
        std::thread::yield_now();
    }
}

#[test]
fn a_program_that_is_told_head_gives_no_body_for_others() {
    let program = program(|call| match call.param("REQUEST_METHOD") {
        "HEAD" => answer("Content-Length: 4\r\n\r\n"),
        _ => answer("Content-Length: 4\r\n\r\nbody"),
    });
    let server = server(
        &program,
        "fastcgi_cache_valid 1m; fastcgi_cache c; fastcgi_cache_key $uri; add_header X-Cache $upstream_cache_status;
         location /asked { fastcgi_param REQUEST_METHOD $request_method; fastcgi_pass %P%; }
         location /page { auth_request /asked; return 204; }
         location /get { fastcgi_param REQUEST_METHOD GET; fastcgi_pass %P%; }",
    );
    // The subrequest's own method is GET, and the program is told the client's.
    let head = |path: &str| {
        server.raw(format!(
            "HEAD {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ))
    };
    assert!(head("/page").starts_with("HTTP/1.1 204"));
    if !is_nginx() {
        let reply = server.get("/asked");
        assert_eq!((reply.status, reply.text()), (200, "body".into()));
    }
    // And here the other way round: the response is whole.
    assert!(head("/get").contains("X-Cache: MISS"));
    let reply = server.get("/get");
    assert_eq!(reply.header("X-Cache"), Some("HIT"));
    assert_eq!((reply.status, reply.text()), (200, "body".into()));
    assert!(!server.error_log().contains("prematurely closed"));
}

/// It is not stored, so its range goes to the program in place of a slice's.
#[test]
fn a_head_of_a_range_is_answered_where_others_get_slices() {
    let program = program(|call| {
        let range = match (call.param("REQUEST_METHOD"), call.param("HTTP_RANGE")) {
            ("HEAD", "bytes=5-") => "5-24",
            _ => "0-9",
        };
        answer(format!(
            "Status: 206\r\nContent-Range: bytes {range}/25\r\n\r\n"
        ))
    });
    let server = server(
        &program,
        "fastcgi_cache_valid any 1m; fastcgi_cache c; fastcgi_cache_key $uri$slice_range; slice 10;
         location / { fastcgi_param REQUEST_METHOD $request_method; fastcgi_pass %P%; }",
    );
    let reply = server.request("HEAD", "/", "Range: bytes=5-\r\n");
    assert_eq!(reply.status, 206);
    assert_eq!(reply.all("content-range"), ["bytes 5-24/25"]);
    assert!(!server.error_log().contains("unexpected range"));
}
