//! System calls that a container's seccomp profile forbids: the server starts, says what it does instead, and serves.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::time::Duration;

use blackbox::{Server, Site, is_nginx};

/// The calls, and what the error log says where they are forbidden (empty: nothing is done differently).
const CALLS: &[(&str, &str)] = &[
    ("openat2", "the pool of threads opens each file"),
    ("cachestat", ""),
    ("PAGEMAP_SCAN", "(asked for page by page: PAGEMAP_SCAN"),
    ("MADV_POPULATE_READ", ""),
    (
        "populating",
        "(asked for by cachestat, and by reads that do not wait)",
    ),
    ("memfd_create", "memfd_create(2) is refused"),
    ("inotify", "inotify_init1(2) is refused"),
    ("statx", "what is in memory is sent at once"),
    ("close_range", ""),
    ("sched_setaffinity", "sched_setaffinity() failed"),
    ("mlock", "may be dropped from memory"),
];
/// EPERM and ENOSYS: old profiles give the one, old kernels the other.
const ERRORS: &[&str] = &["1", "38"];
/// More than a copy in memory has, and more than one window.
const LARGE: usize = 3 << 20;
/// The program that forbids a call.
pub(crate) const FORBIDDING: &str = env!("CARGO_BIN_EXE_forbidding");

fn server(call: &str, error: &str) -> Server {
    let site = Site::new().run_by(&[FORBIDDING, call, error]);
    site.file("small", "s".repeat(100));
    site.file("middle", "m".repeat(20_000));
    site.file("large", "l".repeat(LARGE));
    let main = "worker_cpu_affinity auto; error_log logs/error.log info;";
    let http = "server { listen 127.0.0.1:%PORT%; root %DIR%/html; gzip_static on; }";
    Server::start_on(site, main, http)
}

#[test]
fn files_are_served_without_each_of_the_calls_and_the_log_says_how() {
    if is_nginx() {
        return;
    }
    for (call, said) in CALLS {
        for error in ERRORS {
            let server = server(call, error);
            for _ in 0..3 {
                for (name, length) in [("small", 100), ("middle", 20_000), ("large", LARGE)] {
                    let reply = server.get(&format!("/{name}"));
                    assert_eq!((reply.status, reply.body.len()), (200, length), "{call}");
                    assert!(reply.body.iter().all(|byte| *byte == name.as_bytes()[0]));
                }
            }
            let log = server.error_log();
            assert!(log.contains(said), "{call} {error}: no {said:?} in\n{log}");
        }
    }
}

/// Linux 5.9 and 5.10: a read that does not wait returns 0, as at the end of a file, where nothing is in memory (preadv2(2),
/// BUGS); these kernels have no other way to ask.
#[test]
fn nothing_is_cut_where_a_read_that_does_not_wait_returns_0() {
    if is_nginx() {
        return;
    }
    let site = Site::new().run_by(
        &[
            [FORBIDDING, "populating", "38"],
            [FORBIDDING, "cachestat", "38"],
            [FORBIDDING, "RWF_NOWAIT", "0"],
        ]
        .concat(),
    );
    let sizes = [
        ("small", 100),
        ("middle", 20_000),
        ("slice", 600_000),
        ("large", LARGE),
    ];
    for (name, length) in sizes {
        site.file(name, name[..1].repeat(length));
    }
    let http = "proxy_cache_path %DIR%/files keys_zone=files:1m;
        proxy_cache_path %DIR%/segments keys_zone=segments:1m store=segments;
        proxy_cache_valid 1h;
        server { listen 127.0.0.1:%PORT%; root %DIR%/html;
            location /filter/ { alias %DIR%/html/; sub_filter 'zz' 'yy'; sub_filter_types *; }
            location /files/ { proxy_pass http://127.0.0.1:%PORT%/; proxy_cache files; }
            location /segments/ { proxy_pass http://127.0.0.1:%PORT%/; proxy_cache segments; } }";
    let server = Server::start_on(site, "error_log logs/error.log info;", http);
    for prefix in ["", "/filter", "/files", "/segments"] {
        for (name, length) in sizes {
            for _ in 0..3 {
                let reply = server.get(&format!("{prefix}/{name}"));
                assert_eq!(
                    (reply.status, reply.body.len()),
                    (200, length),
                    "{prefix}/{name}"
                );
                assert!(reply.body.iter().all(|byte| *byte == name.as_bytes()[0]));
            }
        }
    }
    let log = server.error_log();
    assert!(
        !log.contains("truncated") && !log.contains("damaged"),
        "{log}"
    );
}

/// Kernels before 5.12: what is kept open needs no pool, and links are judged all the same.
#[test]
fn without_openat2_what_is_asked_for_often_is_served_while_the_pools_stand_still() {
    if is_nginx() {
        return;
    }
    let site = Site::new()
        .run_by(&[FORBIDDING, "openat2", "38"])
        .with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    site.file("small", "s".repeat(100));
    site.file("large", "l".repeat(LARGE));
    let http = "server { listen 127.0.0.1:%PORT%; root %DIR%/html;
        location /judged/ { alias %DIR%/html/; disable_symlinks on; } }";
    let server = Server::start_on(site, "", http);
    let html = server.site().path("html");
    std::os::unix::fs::symlink("small", html.join("link")).expect("the directory is ours");
    assert_eq!(server.get("/judged/small").status, 200);
    assert_eq!(server.get("/judged/link").status, 403);
    for _ in 0..10 {
        for path in ["/small", "/link", "/large"] {
            assert_eq!(server.get(path).status, 200);
        }
        // Guards are made, and what is large is mapped, beside the requests.
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(server.site().path("hold"), "").expect("the directory is ours");
    std::thread::sleep(Duration::from_millis(100));
    for (path, length) in [("/small", 100), ("/link", 100), ("/large", LARGE)] {
        assert_eq!(server.get(path).body.len(), length);
    }
    std::fs::remove_file(server.site().path("hold")).expect("it was made");
}

/// A file that is replaced is another one at once, whatever tells of it.
#[test]
fn replaced_files_are_seen_without_inotify() {
    if is_nginx() {
        return;
    }
    let server = server("inotify", "1");
    assert_eq!(server.get("/small").body.len(), 100);
    server.site().file("new", "n".repeat(50));
    let html = server.site().path("html");
    std::fs::rename(html.join("new"), html.join("small")).expect("the directory is ours");
    assert_eq!(server.get("/small").body.len(), 50);
}

/// A server to which nothing is forbidden says nothing of that kind.
#[test]
fn without_a_profile_nothing_is_said() {
    if is_nginx() {
        return;
    }
    let server = Server::start_with(
        "worker_cpu_affinity auto; error_log logs/error.log info;",
        "server { listen 127.0.0.1:%PORT%; root %DIR%/html; }",
    );
    let log = server.error_log();
    for said in ["is refused", "opens each file", "sched_setaffinity"] {
        assert!(!log.contains(said), "{said}: {log}");
    }
}
