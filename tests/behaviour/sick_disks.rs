//! Disks of caches that hang, fail or refuse writes: no client notices, other disks are not affected, and they come back
//! by themselves. Files on a disk that hangs: 503, and never a client that waits for ever.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use super::cache::{cache, hit, store, stored};
use blackbox::{Answer, Origin, PATIENCE, Reply, Server, Site, is_nginx, until};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys of each cache.
pub const KEYS: usize = 12;

/// An origin whose answers can be stored, and that counts what it is asked.
pub fn origin() -> Origin {
    Origin::start(|request| {
        let body = format!("{} {}", request.target(), "x".repeat(3000));
        Answer::with("200 OK", "Cache-Control: max-age=600\r\n", body)
    })
}

/// Two caches, each with a pool of its own, and a file that names the faults of their disks.
fn start(origin: &Origin, more: &str) -> (Server, PathBuf) {
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_DISK", "%DIR%/faults");
    let faults = site.path("faults");
    let location = |name: &str| {
        format!(
            "location /{name}/ {{ aio threads={name}; proxy_cache {name}; proxy_pass http://{}; {more} }}",
            origin.address()
        )
    };
    let http = format!(
        "proxy_cache_path %DIR%/one levels=1:2 {store} keys_zone=one:1m; proxy_cache_path %DIR%/two levels=1:2 {store} keys_zone=two:1m; \
         add_header X-Cache $upstream_cache_status always; \
         server {{ listen 127.0.0.1:%PORT%; {} {} location = /metrics {{ metrics; }} }}",
        location("one"),
        location("two"),
        store = store()
    );
    let main = "thread_pool one threads=4; thread_pool two threads=4;";
    let server = Server::start_on(site, main, &http);
    (server, faults)
}

/// All files below a directory.
pub fn files(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, all),
            path => all.push(path),
        }
    }
}

/// Stores the keys of both caches, and starts the server anew with none of them in memory.
pub fn cold(origin: &Origin, more: &str) -> (Server, PathBuf) {
    let (mut server, faults) = start(origin, more);
    for name in ["one", "two"] {
        for number in 0..KEYS {
            assert_eq!(server.get(&format!("/{name}/{number}")).status, 200);
        }
        hit(&server, &format!("/{name}/{}", KEYS - 1));
        until("all are stored", PATIENCE, || {
            (stored(&server.site().path(name)) == KEYS).then_some(())
        });
    }
    server.restart();
    for name in ["one", "two"] {
        server.wait_for(&format!("/{name}\": 12 entries known"), "it is open");
    }
    evict(&server, &["one", "two"]);
    origin.take();
    (server, faults)
}

/// Takes the files of these caches out of memory.
pub fn evict(server: &Server, names: &[&str]) {
    let each = names.iter().map(|name| server.site().path(name));
    each.for_each(|path| evict_below(&path));
}

/// Takes all files below a directory out of memory.
pub fn evict_below(directory: &Path) {
    let mut all = Vec::new();
    files(directory, &mut all);
    for path in all {
        let Ok(file) = File::open(path) else { continue };
        let _ = file.sync_all();
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }
}

/// Makes the disk of a cache fail so, or well again.
pub fn fault(server: &Server, faults: &Path, name: &str, kind: &str) {
    let line = match kind {
        "" => String::new(),
        kind => format!("{} {kind}\n", server.site().path(name).display()),
    };
    std::fs::write(faults, line).expect("a site's directory can be written to");
    // The next look at the file is some milliseconds away.
    std::thread::sleep(Duration::from_millis(100));
}

pub fn whole(server: &Server, path: &str) -> Reply {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", server.error_log());
    assert!(reply.text().starts_with(&format!("{path} ")), "{path}");
    reply
}

/// The value of a metric whose line begins so.
pub fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

pub fn comes_back(server: &Server, path: &str) {
    until("what is stored is used again", PATIENCE, || {
        (cache(&whole(server, path)) == "HIT").then_some(())
    });
}

#[test]
fn a_disk_that_hangs_is_out_and_comes_back() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let (server, faults) = cold(&origin, "");
    fault(&server, &faults, "one", "stall");
    // More than its pool has threads; all at once, and none of them fails.
    std::thread::scope(|scope| {
        for number in 0..KEYS {
            let server = &server;
            scope.spawn(move || {
                assert_eq!(cache(&whole(server, &format!("/one/{number}"))), "MISS");
            });
        }
    });
    server.wait_for(
        "/one\": its disk is out (it was well): none of ",
        "the reason",
    );
    assert_eq!(
        metric(&server, "freewheel_cache_past_disk_total{cache=\"one\"}"),
        KEYS as u64
    );
    assert_eq!(origin.take().len(), KEYS);
    // Now nothing is asked of it any more, and what comes is passed on.
    assert_eq!(cache(&whole(&server, "/one/new")), "MISS");
    server.wait_for("is passed on and not stored: its disk is out", "the reason");
    for number in 0..KEYS {
        let reply = whole(&server, &format!("/two/{number}"));
        assert_eq!(cache(&reply), "HIT", "the other disk is well");
    }
    let state = |name: &str| {
        let directory = server.site().path(name).display().to_string();
        let labels = format!("{{cache=\"{name}\",disk=\"{directory}\"}}");
        metric(&server, &format!("freewheel_cache_disk_state{labels}"))
    };
    assert_eq!((state("one"), state("two")), (3, 0));
    fault(&server, &faults, "one", "");
    server.wait_for("/one\": its disk is well (it was out): ", "it comes back");
    comes_back(&server, "/one/3");
    assert_eq!(state("one"), 0);
    server.forget_log();
}

#[test]
fn a_disk_that_hangs_takes_no_thread_for_writes_from_others_of_its_pool() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_DISK", "%DIR%/faults");
    let faults = site.path("faults");
    let http = format!(
        "proxy_cache_path %DIR%/one levels=1:2 {} keys_zone=one:1m; add_header X-Cache $upstream_cache_status always; \
         server {{ listen 127.0.0.1:%PORT%; \
         location /one/ {{ proxy_cache one; proxy_pass http://{}; }} \
         location /upload {{ client_body_buffer_size 1k; client_body_temp_path %DIR%/bodies; proxy_pass http://{}; }} }}",
        store(),
        origin.address(),
        origin.address()
    );
    let mut server = Server::start_on(site, "thread_pool default threads=3;", &http);
    for number in 0..KEYS {
        assert_eq!(server.get(&format!("/one/{number}")).status, 200);
    }
    until("all are stored", PATIENCE, || {
        (stored(&server.site().path("one")) == KEYS).then_some(())
    });
    server.restart();
    server.wait_for("/one\": 12 entries known", "it is open");
    evict(&server, &["one"]);
    origin.take();
    fault(&server, &faults, "one", "stall");
    let ask = |path: String| {
        let mut connection = server.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        connection
    };
    // Writes hang in all threads that they may have, then a read hangs in the last one.
    let new: Vec<_> = (0..4)
        .map(|number| ask(format!("/one/new{number}")))
        .collect();
    let mut asked = 0;
    until("they hang", PATIENCE, || {
        asked += origin.take().len();
        (asked == new.len()).then_some(())
    });
    let cold: Vec<_> = (0..4).map(|number| ask(format!("/one/{number}"))).collect();
    server.wait_for("/one\": its disk is out (it was well)", "it hangs");
    let body = "x".repeat(100_000);
    let mut upload = server.connect();
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    upload.send(head + &body);
    assert_eq!(upload.reply().status, 200);
    fault(&server, &faults, "one", "");
    drop((new, cold));
    server.wait_for("/one\": its disk is well (it was out)", "it comes back");
    server.forget_log();
}

#[test]
fn a_disk_that_fails_at_some_reads_is_failing_and_no_answer_fails() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let (server, faults) = cold(&origin, "");
    fault(&server, &faults, "one", "fail 4");
    for round in 0..3 {
        for number in 0..KEYS {
            whole(&server, &format!("/one/{number}?{round}"));
            whole(&server, &format!("/one/{number}"));
        }
        evict(&server, &["one", "two"]);
    }
    server.wait_for("/one\": its disk is failing (it was well): ", "the reason");
    assert!(metric(&server, "freewheel_cache_past_disk_total{cache=\"one\"}") > 0);
    fault(&server, &faults, "one", "");
    comes_back(&server, "/one/5");
    server.forget_log();
}

#[test]
fn what_a_failing_disk_does_not_bring_stays_there() {
    if is_nginx() || !store().is_empty() {
        return;
    }
    let origin = origin();
    let (server, faults) = cold(&origin, "");
    fault(&server, &faults, "one", "fail 3");
    let ask = |number: usize| whole(&server, &format!("/one/{number}"));
    until("it is failing", PATIENCE, || {
        evict(&server, &["one"]);
        (0..KEYS / 2).for_each(|number| drop(ask(number)));
        let log = server.error_log();
        log.contains("/one\": its disk is failing").then_some(())
    });
    let of_cache = |name: &str| metric(&server, &format!("{name}{{cache=\"one\"}}"));
    let all_has_ended = || {
        until("all fills have ended", PATIENCE, || {
            (of_cache("freewheel_cache_fills_running") == 0).then_some(())
        });
    };
    let entries = || {
        let mut found = Vec::new();
        files(&server.site().path("one"), &mut found);
        found.retain(|path| path.file_name().is_some_and(|name| name.len() == 32));
        let inodes = found
            .iter()
            .map(|path| path.metadata().map(|meta| meta.ino()));
        inodes
            .collect::<Result<BTreeSet<_>, _>>()
            .expect("they stay")
    };
    all_has_ended();
    let (before, past) = (entries(), of_cache("freewheel_cache_past_disk_total"));
    (KEYS / 2..KEYS).for_each(|number| drop(ask(number)));
    assert!(of_cache("freewheel_cache_past_disk_total") > past);
    all_has_ended();
    assert_eq!(entries(), before, "{}", server.error_log());
    server.forget_log();
}

#[test]
fn a_segment_that_cannot_be_read_is_retired_and_used_again_once_it_can() {
    if store().is_empty() {
        return;
    }
    let origin = origin();
    let (server, faults) = cold(&origin, "");
    let retired = || {
        metric(
            &server,
            "freewheel_cache_segments{cache=\"one\",state=\"retired\"}",
        )
    };
    assert_eq!(retired(), 0);
    fault(&server, &faults, "one", "fail 3");
    until("it is retired", PATIENCE, || {
        for number in 0..KEYS {
            whole(&server, &format!("/one/{number}"));
        }
        (retired() == 1).then_some(())
    });
    // What was in it is stored elsewhere.
    for number in 0..KEYS {
        comes_back(&server, &format!("/one/{number}"));
    }
    fault(&server, &faults, "one", "");
    until("it is used again", PATIENCE, || {
        (retired() == 0).then_some(())
    });
    server.forget_log();
}

#[test]
fn a_disk_that_refuses_writes_is_read_and_what_comes_is_passed_on() {
    if is_nginx() {
        return;
    }
    for (kind, name) in [("readonly", "read-only"), ("full", "full")] {
        let origin = origin();
        let (server, faults) = cold(&origin, "");
        fault(&server, &faults, "one", kind);
        let line = format!("/one\": its disk is well, writing: {name} (it was well): ");
        until("it is told", PATIENCE, || {
            whole(&server, "/one/new");
            server.error_log().contains(&line).then_some(())
        });
        for number in 0..KEYS {
            assert_eq!(cache(&whole(&server, &format!("/one/{number}"))), "HIT");
        }
        assert_eq!(cache(&whole(&server, "/one/other")), "MISS");
        let labels = "{cache=\"one\",event=\"passed\"}";
        assert!(metric(&server, &format!("freewheel_cache_events_total{labels}")) > 0);
        fault(&server, &faults, "one", "");
        server.wait_for(
            "/one\": its disk is well (it was well): ",
            "it is written again",
        );
        comes_back(&server, "/one/other");
        server.forget_log();
    }
}

#[test]
fn a_file_on_a_disk_that_hangs_is_503_before_the_head_and_closed_behind_it() {
    if is_nginx() {
        return;
    }
    const LARGE: usize = 4 << 20;
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    let server = Server::start_on(
        site,
        "",
        // What lies in procfs always goes through the pool.
        "server { listen 127.0.0.1:%PORT%; disk_timeout 300ms; location = /slow { alias /proc/self/limits; } \
         location = /patient { disk_timeout off; alias /proc/self/limits; } location / { }
         location = /sent { sendfile on; alias %DIR%/html/large; } }",
    );
    let path = server.file("large", vec![b'x'; LARGE]);
    // The first read of a file records its time, and is the pool's from the open on.
    std::fs::read(&path).expect("it was made");
    assert_eq!(server.get("/slow").status, 200);
    let file = File::open(path).expect("it was made");
    file.sync_all().expect("it can be written");
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("it is a file");
    std::fs::write(&hold, "").expect("a site's directory can be written to");
    std::thread::sleep(Duration::from_millis(100));
    let late = server.get("/slow");
    assert_eq!((late.status, late.header("retry-after")), (503, Some("5")));
    server.wait_for(
        "the disk has not answered within 300ms: \"/proc/self/limits\"",
        "why",
    );
    let mut patient = server.connect();
    patient.send("GET /patient HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    for name in ["sent", "large"] {
        let mut reading = server.connect();
        reading.send(format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let got = reading.rest().len();
        assert!(got < LARGE, "{name}: {got}");
    }
    std::fs::remove_file(hold).expect("it was made");
    assert_eq!(patient.reply().status, 200);
    server.forget_log();
}

#[test]
fn whatever_a_request_waits_for_at_a_disk_that_hangs_it_is_503() {
    if is_nginx() {
        return;
    }
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    let server = Server::start_on(
        site,
        "",
        "client_body_temp_path %DIR%/bodies; client_body_buffer_size 1k; \
         server { listen 127.0.0.1:%PORT%; disk_timeout 300ms; \
         location = /guarded { auth_basic x; auth_basic_user_file /proc/self/limits; } \
         location / { dav_methods PUT DELETE COPY; } \
         location /body { client_body_in_file_only clean; proxy_pass http://127.0.0.1:%PORT%/; } }",
    );
    std::fs::write(&hold, "").expect("a site's directory can be written to");
    std::thread::sleep(Duration::from_millis(100));
    let body = format!("Content-Length: 4000\r\n\r\n{}", "x".repeat(4000));
    for (method, path, rest) in [
        ("DELETE", "/file", "\r\n"),
        ("COPY", "/file", "Destination: /copy\r\n\r\n"),
        ("PUT", "/file", &*body),
        ("POST", "/body", &*body),
    ] {
        let mut connection = server.connect();
        connection.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{rest}"));
        let late = connection.reply();
        let seen = (late.status, late.header("retry-after"));
        assert_eq!(seen, (503, Some("5")), "{method} {path}");
    }
    let late = server.request("GET", "/guarded", "Authorization: Basic YTpi\r\n");
    assert_eq!((late.status, late.header("retry-after")), (503, Some("5")));
    std::fs::remove_file(hold).expect("it was made");
    server.forget_log();
}

/// One cache over three disks.
fn several(origin: &Origin) -> (Server, PathBuf) {
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_DISK", "%DIR%/faults");
    let faults = site.path("faults");
    let http = format!(
        "proxy_cache_path %DIR%/d1,%DIR%/d2/,%DIR%/d3 levels=1:2 {} keys_zone=c:1m max_size=60m; \
         map $request_method $purges {{ PURGE 1; }} \
         add_header X-Cache $upstream_cache_status always; \
         server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_cache c; proxy_pass http://{}; proxy_cache_key $uri; \
         proxy_cache_purge $purges; }} location = /metrics {{ metrics; }} }}",
        store(),
        origin.address()
    );
    (Server::start_on(site, "", &http), faults)
}

/// The entries in each of its directories.
fn spread(server: &Server) -> [usize; 3] {
    ["d1", "d2", "d3"].map(|name| stored(&server.site().path(name)))
}

#[test]
fn a_cache_over_several_disks_spreads_its_keys_and_goes_on_without_one() {
    if is_nginx() {
        return;
    }
    const MANY: usize = 60;
    let origin = origin();
    let (mut server, faults) = several(&origin);
    let get =
        |server: &Server, number: usize| cache(&whole(server, &format!("/{number}"))).to_owned();
    for number in 0..MANY {
        assert_eq!(get(&server, number), "MISS");
    }
    until("all are stored", PATIENCE, || {
        (spread(&server).iter().sum::<usize>() == MANY).then_some(())
    });
    let before = spread(&server);
    assert!(before.iter().all(|count| *count > 5), "{before:?}");
    for number in 0..MANY {
        assert_eq!(get(&server, number), "HIT");
    }
    let of_cache =
        |family: &str| metric(&server, &format!("freewheel_cache_{family}{{cache=\"c\"}}"));
    let sums = ["entries", "max_size_bytes"].map(of_cache);
    assert_eq!(sums, [MANY as u64, 60 << 20]);
    // After a start, all of it is known, and one disk hangs.
    server.restart();
    for (number, count) in (1..).zip(&before) {
        let known = format!("d{number}\": {count} entries known");
        server.wait_for(&known, "its caches are open");
    }
    let d2 = server.site().path("d2");
    std::fs::write(&faults, format!("{} stall\n", d2.display())).expect("it can be written");
    std::thread::sleep(Duration::from_millis(100));
    evict(&server, &["d2"]);
    origin.take();
    let words: Vec<String> = (0..MANY).map(|number| get(&server, number)).collect();
    let missed = words.iter().filter(|word| *word == "MISS").count();
    assert_eq!(missed, before[1], "its keys alone");
    server.wait_for("/d2\": its disk is out (it was well)", "the reason");
    // They are stored on the others meanwhile, except for those that still came while it was not out.
    let moved = words.iter().enumerate().filter(|(_, word)| *word == "MISS");
    for (number, _) in moved.clone() {
        get(&server, number);
        until("it is stored elsewhere", PATIENCE, || {
            (get(&server, number) == "HIT").then_some(())
        });
    }
    // A purge covers all disks; the one that is out cannot write it down.
    let (number, _) = moved.clone().next().expect("it has keys");
    let path = format!("/{number}");
    assert_eq!(server.request("PURGE", &path, "").status, 500);
    assert_eq!(get(&server, number), "MISS");
    std::fs::remove_file(&faults).expect("it was made");
    server.wait_for("/d2\": its disk is well (it was out)", "it comes back");
    let last = moved.clone().next_back().expect("it has keys").0;
    until("its keys are its own again", PATIENCE, || {
        (get(&server, last) == "HIT").then_some(())
    });
    assert_eq!(server.request("PURGE", "/*", "").status, 204);
    for number in 0..MANY {
        assert_eq!(get(&server, number), "MISS");
    }
    server.forget_log();
}
