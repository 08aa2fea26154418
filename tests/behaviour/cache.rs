//! Caching what was proxied: what is stored, when it is used, and what the origin is asked.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Answer, Origin, PATIENCE, Reply, Server, binary, is_nginx, text_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The parameters of `proxy_cache_path` for the other store.
pub const SEGMENTS: &str = "store=segments max_size=64m";

/// The parameters for the store that these tests run with: `in_segments` has the same modules once more.
pub fn store() -> &'static str {
    match module_path!().contains("::in_segments::") && !is_nginx() {
        true => SEGMENTS,
        false => "",
    }
}

/// A server with one cache named `c`, whose locations say this of it.
pub fn server(origin: &Origin, locations: &str) -> Server {
    Server::start(&http(origin, locations))
}

pub fn http(origin: &Origin, locations: &str) -> String {
    let locations = locations.replace(
        "%PASS%",
        &format!("proxy_pass http://{}; proxy_cache c", origin.address()),
    );
    format!(
        "proxy_cache_path %DIR%/cache levels=1:2 {store} keys_zone=c:1m use_temp_path=off; \
         log_format s '$upstream_cache_status'; add_header X-Cache $upstream_cache_status always; \
         server {{ listen 127.0.0.1:%PORT%; {locations} }}",
        store = store()
    )
}

pub fn cache(reply: &Reply) -> &str {
    reply.header("X-Cache").unwrap_or("-")
}

/// An origin that counts: each answer's body is its number, with these header lines.
pub fn counting(headers: &'static str) -> Origin {
    let number = AtomicU32::new(0);
    Origin::start(move |_| {
        let number = number.fetch_add(1, SeqCst) + 1;
        Answer::with("200 OK", headers, format!("answer {number}"))
    })
}

/// Asks until what was fetched is stored: that is done behind the answer.
pub fn hit(server: &Server, path: &str) -> Reply {
    until(server, path, &[], "HIT")
}

/// Asks until the cache's word is `last`; before, it is one of these (any, if there are none).
pub fn until(server: &Server, path: &str, before: &[&str], last: &str) -> Reply {
    let begun = Instant::now();
    loop {
        let reply = server.get(path);
        let word = cache(&reply);
        if word == last {
            return reply;
        }
        assert!(
            before.is_empty() || before.contains(&word),
            "{path}: {word}"
        );
        let log = server.error_log();
        assert!(begun.elapsed() < PATIENCE, "{path} is not {last}: {log}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The exit code and the words of `freewheel cache WORDS`.
pub fn command<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> (i32, String) {
    let output = Command::new(binary()).arg("cache").args(words).output();
    let output = output.expect("the program runs");
    let text = text_of(&[output.stdout, output.stderr].concat());
    (output.status.code().unwrap_or(-1), text)
}

/// Number of the entries in a directory.
pub fn stored(directory: &Path) -> usize {
    let directory = directory.display().to_string();
    let (_, listed) = command(["ls", &directory, "--json"]);
    listed.lines().filter(|line| line.starts_with('{')).count()
}

/// The file in which the entry of a key lies, and where it begins there.
pub fn place(directory: &Path, key: &str) -> (PathBuf, usize) {
    let directory = directory.display().to_string();
    let (_, shown) = command(["show", &directory, key]);
    let mut words = shown.split_whitespace();
    let file = words.find(|word| word.starts_with(&directory));
    let file = file.unwrap_or_else(|| panic!("{key}: {shown}"));
    let (file, at) = file.split_once('@').unwrap_or((file, "0"));
    (file.into(), at.parse().expect("it is a number"))
}

/// Waits, at an origin, until the number is at least so much.
pub fn wait_until(number: &AtomicU32, least: u32) {
    let begun = Instant::now();
    while number.load(SeqCst) < least && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_was_fetched_is_stored_and_used() {
    let origin = counting("Cache-Control: max-age=60\r\nX-Own: 1\r\n");
    let server = server(&origin, "location / { %PASS%; }");
    let first = server.get("/a?b");
    assert_eq!(
        (first.status, cache(&first), first.text().as_str()),
        (200, "MISS", "answer 1")
    );
    let second = hit(&server, "/a?b");
    assert_eq!(
        (second.text().as_str(), second.header("X-Own")),
        ("answer 1", Some("1"))
    );
    assert_eq!(second.header("Content-Length"), Some("8"));
    if !is_nginx() {
        assert!(
            second
                .header("Age")
                .is_some_and(|age| age.parse::<u32>().is_ok())
        );
    }
    assert_eq!(cache(&server.get("/a?c")), "MISS");
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn answers_say_whether_they_are_stored() {
    let origin = Origin::start(|request| {
        let headers = match request.target() {
            "/max-age" => "Cache-Control: max-age=60\r\n",
            "/expires" => "Expires: Thu, 31 Dec 2037 23:55:55 GMT\r\n",
            "/accel" => "Cache-Control: no-store\r\nX-Accel-Expires: 60\r\n",
            "/no-store" => "Cache-Control: max-age=60, no-store\r\n",
            "/private" => "Cache-Control: private, max-age=60\r\n",
            "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            "/star" => "Cache-Control: max-age=60\r\nVary: *\r\n",
            "/accel-0" => "Cache-Control: max-age=60\r\nX-Accel-Expires: 0\r\n",
            "/past" => "Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\n",
            _ => "",
        };
        Answer::with("200 OK", headers, "x")
    });
    let server = server(
        &origin,
        "location / { %PASS%; } location /valid { %PASS%; proxy_cache_valid 1m; }",
    );
    for path in ["/max-age", "/expires", "/accel", "/valid"] {
        assert_eq!(cache(&server.get(path)), "MISS", "{path}");
        hit(&server, path);
    }
    for path in [
        "/no-store",
        "/private",
        "/cookie",
        "/star",
        "/accel-0",
        "/past",
        "/nothing",
    ] {
        server.get(path);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(cache(&server.get(path)), "MISS", "{path}");
    }
}

#[test]
fn bypass_stores_and_no_cache_does_not() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_key $uri; proxy_cache_bypass $arg_b; proxy_no_cache $arg_n $upstream_http_x_no; }",
    );
    server.get("/x");
    hit(&server, "/x");
    let bypassed = server.get("/x?b=1");
    assert_eq!(
        (cache(&bypassed), bypassed.text().as_str()),
        ("BYPASS", "answer 2")
    );
    let begun = Instant::now();
    while server.get("/x").text() != "answer 2" {
        assert!(
            begun.elapsed() < PATIENCE,
            "what was fetched anew is stored"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    server.get("/y?n=1");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(cache(&server.get("/y?n=0")), "MISS");
}

#[test]
fn a_stale_entry_is_revalidated() {
    let origin = Origin::start(|request| match request.header("If-None-Match") {
        Some("\"one\"") => Answer::raw(
            "HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nCache-Control: max-age=60\r\nX-New: 2\r\n\r\n",
        ),
        _ => Answer::with(
            "200 OK",
            "ETag: \"one\"\r\nCache-Control: max-age=1\r\nX-New: 1\r\n",
            "whole",
        ),
    });
    let server = server(&origin, "location / { %PASS%; proxy_cache_revalidate on; }");
    let renewed = until(&server, "/", &["MISS", "HIT"], "REVALIDATED");
    assert_eq!(renewed.text(), "whole");
    if !is_nginx() {
        assert_eq!(renewed.header("X-New"), Some("2"));
    }
    let again = server.get("/");
    assert_eq!((cache(&again), again.text().as_str()), ("HIT", "whole"));
    assert_eq!(origin.last().header("If-None-Match"), Some("\"one\""));
}

#[test]
fn stale_answers_cover_failures_and_updates() {
    let fails = std::sync::Arc::new(AtomicU32::new(0));
    let failing = fails.clone();
    let origin = Origin::start(move |_| match failing.load(SeqCst) {
        0 => Answer::with("200 OK", "Cache-Control: max-age=1\r\n", "good"),
        1 => Answer::with("503 Bad", "", "bad"),
        2 => Answer::Close(Vec::new()),
        _ => {
            wait_until(&failing, 4);
            Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "new")
        }
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_use_stale error http_503 updating; }
         location /b { %PASS%; proxy_cache_use_stale updating; proxy_cache_background_update on; }",
    );
    // Stored, and then stale: whatever was fetched again meanwhile is that too.
    for path in ["/a", "/b"] {
        while !matches!(cache(&server.get(path)), "HIT" | "EXPIRED" | "STALE") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    std::thread::sleep(Duration::from_millis(2200));
    for kind in [1, 2] {
        fails.store(kind, SeqCst);
        let stale = server.get("/a");
        assert_eq!(
            (stale.status, cache(&stale), stale.text().as_str()),
            (200, "STALE", "good"),
            "{kind}"
        );
    }
    fails.store(3, SeqCst);
    let behind = server.get("/b");
    assert_eq!((cache(&behind), behind.text().as_str()), ("STALE", "good"));
    let meanwhile = server.get("/b");
    assert_eq!(
        (cache(&meanwhile), meanwhile.text().as_str()),
        ("UPDATING", "good")
    );
    fails.store(4, SeqCst);
    assert_eq!(hit(&server, "/b").text(), "new");
}

#[test]
fn those_who_wait_follow_the_one_who_fetches() {
    let origin = Origin::start(|_| {
        std::thread::sleep(Duration::from_millis(300));
        Answer::with(
            "200 OK",
            "Cache-Control: max-age=60\r\n",
            vec![b'x'; 300_000],
        )
    });
    let server = server(&origin, "location / { %PASS%; proxy_cache_lock on; }");
    let mut waiting: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for one in &mut waiting {
        one.send("GET /k HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for one in &mut waiting {
        let reply = one.reply();
        assert_eq!((reply.status, reply.body.len()), (200, 300_000));
    }
    assert_eq!(origin.received().len(), 1);
}

#[test]
fn head_fetches_the_whole_and_ranges_are_cut_out() {
    let origin = counting("Cache-Control: max-age=60\r\nAccept-Ranges: bytes\r\n");
    let server = server(&origin, "location / { %PASS%; proxy_cache_lock on; }");
    let head = server.request("HEAD", "/h", "");
    assert_eq!(
        (head.status, head.header("Content-Length")),
        (200, Some("8"))
    );
    assert_eq!(origin.last().line(), "GET /h HTTP/1.1");
    assert_eq!(hit(&server, "/h").text(), "answer 1");
    let part = server.get_with("/r", "Range: bytes=2-4\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "swe"));
    assert_eq!(origin.last().header("Range"), None);
    assert_eq!(hit(&server, "/r").text(), "answer 2");
    let part = server.get_with("/r", "Range: bytes=-1\r\n");
    assert_eq!(
        (part.status, part.text().as_str(), cache(&part)),
        (206, "2", "HIT")
    );
}

#[test]
fn variants_are_told_apart() {
    let origin = Origin::start(|request| {
        let language = request
            .header("Accept-Language")
            .unwrap_or("none")
            .to_owned();
        Answer::with(
            "200 OK",
            "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n",
            language,
        )
    });
    let server = server(&origin, "location / { %PASS%; }");
    for language in ["de", "en", "fr"] {
        let lines = format!("Accept-Language: {language}\r\n");
        assert_eq!(server.get_with("/", &lines).text(), language);
    }
    std::thread::sleep(Duration::from_millis(100));
    let asked = origin.received().len();
    for language in ["fr", "de", "en"] {
        let lines = format!("Accept-Language: {language}\r\n");
        assert_eq!(server.get_with("/", &lines).text(), language);
    }
    assert_eq!(asked, 3);
}

#[test]
fn it_is_stored_when_it_was_asked_for_often_enough() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = server(&origin, "location / { %PASS%; proxy_cache_min_uses 3; }");
    for expected in ["answer 1", "answer 2", "answer 3"] {
        let reply = server.get("/");
        assert_eq!((cache(&reply), reply.text().as_str()), ("MISS", expected));
    }
    assert_eq!(hit(&server, "/").text(), "answer 3");
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let mut first = server(&origin, "location / { %PASS%; }");
    first.get("/a");
    hit(&first, "/a");
    assert!(first.quit().success());
    let directory = first.site().path("cache");
    let text = http(&origin, "location / { %PASS%; }")
        .replace("%DIR%/cache", directory.to_str().expect("it is text"));
    let second = Server::start(&text);
    let reply = second.get("/a");
    assert_eq!((cache(&reply), reply.text().as_str()), ("HIT", "answer 1"));
}

#[test]
fn a_second_instance_reads_what_the_first_one_stores() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let mut first = server(&origin, "location / { %PASS%; }");
    first.get("/a");
    hit(&first, "/a");
    let directory = first.site().path("cache");
    let text = http(&origin, "location / { %PASS%; }")
        .replace("%DIR%/cache", directory.to_str().expect("it is text"));
    let second = Server::start(&text);
    second.wait_for("in use by another process", "the second instance");
    let is_read = store().is_empty();
    if is_read {
        assert_eq!(hit(&second, "/a").text(), "answer 1");
    }
    assert_eq!(second.get("/b").status, 200);
    assert!(first.quit().success());
    hit(&second, "/c");
    assert_eq!(hit(&second, "/a").text(), "answer 1");
}

#[test]
fn a_reload_keeps_the_cache_and_may_change_its_limits() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = server(&origin, "location / { %PASS%; }");
    server.get("/a");
    hit(&server, "/a");
    let text = http(&origin, "location / { %PASS%; expires off; }");
    server.reload(&text.replace("keys_zone=c:1m", "keys_zone=c:1m max_size=100m inactive=1h"));
    let reply = hit(&server, "/a");
    assert_eq!(
        (reply.text().as_str(), origin.received().len()),
        ("answer 1", 1)
    );
    let other = text.replace("levels=1:2", "levels=2");
    server.reload_file(&format!(
        "daemon off;\npid nginx.pid;\nerror_log logs/error.log info;\nevents {{ }}\nhttp {{ {other} }}\n"
    ));
    server.wait_for("had previously different levels", "other levels");
    // The last line of it, before the log is forgotten.
    server.wait_for("the old one goes on", "a refused configuration");
    assert_eq!(cache(&server.get("/a")), "HIT");
    server.forget_log();
}

#[test]
fn a_fetch_goes_on_when_its_client_has_left() {
    let origin = Origin::start(|_| {
        std::thread::sleep(Duration::from_millis(200));
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "whole")
    });
    let server = server(&origin, "location / { %PASS%; }");
    let mut client = server.connect();
    client.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait(1);
    drop(client);
    assert_eq!(hit(&server, "/left").text(), "whole");
}

#[test]
fn an_answer_that_breaks_off_is_not_stored() {
    let number = AtomicU32::new(0);
    let origin = Origin::start(move |_| match number.fetch_add(1, SeqCst) {
        0 => Answer::Close(
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100\r\n\r\nshort"
                .to_vec(),
        ),
        _ => Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "whole"),
    });
    let server = server(&origin, "location / { %PASS%; }");
    let said = server.raw("GET / HTTP/1.0\r\n\r\n");
    assert!(said.ends_with("short"), "{said}");
    assert_eq!(server.get("/").text(), "whole");
    assert_eq!(hit(&server, "/").text(), "whole");
}

#[test]
fn who_waits_too_long_asks_for_himself() {
    let number = std::sync::Arc::new(AtomicU32::new(0));
    let answered = number.clone();
    let origin = Origin::start(move |_| {
        if number.fetch_add(1, SeqCst) == 0 {
            wait_until(&number, 3);
        }
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "x")
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_lock on; proxy_cache_lock_timeout 200ms; }",
    );
    let mut first = server.connect();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait(1);
    assert_eq!(cache(&server.get("/")), "MISS");
    assert_eq!(origin.received().len(), 2);
    answered.store(3, SeqCst);
    assert_eq!(first.reply().status, 200);
}

#[test]
fn what_is_stored_is_given_only_as_it_was_stored() {
    if is_nginx() {
        return;
    }
    let body: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let sent = body.clone();
    let origin = Origin::start(move |_| {
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", sent.clone())
    });
    let locations = "location / { %PASS%; }";
    let mut first = server(&origin, locations);
    for path in ["/flipped", "/cut", "/zeroed"] {
        first.get(path);
        hit(&first, path);
    }
    assert!(first.quit().success());
    let directory = first.site().path("cache");
    for (path, kind) in ["/flipped", "/cut", "/zeroed"].iter().zip(0..) {
        let key = format!("http://{}{path}", origin.address());
        let (file, at) = place(&directory, &key);
        let mut bytes = std::fs::read(&file).expect("it is there");
        let middle = at + body.len() / 2;
        match kind {
            0 => bytes[middle] ^= 1,
            1 if store().is_empty() => bytes.truncate(middle),
            1 => bytes[middle..at + body.len()].fill(0),
            _ => bytes[at..at + body.len()].fill(0),
        }
        std::fs::write(file, bytes).expect("it is ours");
    }
    let text =
        http(&origin, locations).replace("%DIR%/cache", directory.to_str().expect("it is text"));
    let second = Server::start(&text);
    for path in ["/flipped", "/cut", "/zeroed"] {
        assert_eq!(second.get(path).body, body, "{path}");
        assert_eq!(hit(&second, path).body, body, "{path}");
    }
    assert_eq!(origin.received().len(), 6);
    second.forget_log();
}

#[test]
fn a_disk_that_fails_fails_nobody() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let mut server = server(&origin, "location / { %PASS%; }");
    server.get("/a");
    hit(&server, "/a");
    // The server may just be making something in it.
    while std::fs::remove_dir_all(server.site().path("cache")).is_err() {}
    for path in ["/b", "/c", "/d"] {
        assert_eq!(server.get(path).status, 200);
    }
    if store().is_empty() {
        // One line a minute, whatever fails first.
        let trouble = "No such file or directory";
        server.wait_for(trouble, "the disk's trouble");
        assert_eq!(server.error_log().matches(trouble).count(), 1);
    } else {
        // What is open stays so.
        hit(&server, "/b");
    }
    // It ends with a look at a directory that is not there.
    server.quit();
    server.forget_log();
}

#[test]
fn rfc_9111_to_the_letter() {
    if is_nginx() {
        return;
    }
    let number = AtomicU32::new(0);
    let origin = Origin::start(move |request| {
        let number = number.fetch_add(1, SeqCst) + 1;
        match (request.target(), request.header("If-None-Match")) {
            ("/no-cache", Some(_)) => {
                Answer::raw("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n")
            }
            ("/no-cache", None) => Answer::with(
                "200 OK",
                "Cache-Control: no-cache\r\nETag: \"1\"\r\n",
                "kept",
            ),
            _ => Answer::with(
                "200 OK",
                "Cache-Control: max-age=60\r\n",
                format!("answer {number}"),
            ),
        }
    });
    let server = server(&origin, "location / { %PASS%; proxy_cache_rfc9111 on; }");
    // Until it is stored it is nobody's but his who asked.
    let asked = until(&server, "/no-cache", &["MISS"], "REVALIDATED");
    assert_eq!(asked.text(), "kept");
    server.get("/x");
    let kept = hit(&server, "/x").text();
    assert_ne!(
        server.get_with("/x", "Cache-Control: no-cache\r\n").text(),
        kept
    );
    assert_eq!(
        server
            .get_with("/nothing", "Cache-Control: only-if-cached\r\n")
            .status,
        504
    );
    hit(&server, "/x");
    assert_eq!(
        server.request("POST", "/x", "Content-Length: 0\r\n").status,
        200
    );
    assert_eq!(cache(&server.get("/x")), "MISS");
}

#[test]
fn a_signal_makes_it_tell_what_it_has_done() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = server(&origin, "location / { %PASS%; }");
    server.get("/a");
    hit(&server, "/a");
    server.signal(nix::sys::signal::Signal::SIGUSR1);
    server.wait_for("1 misses, 0 expired", "the cache's figures");
}
