//! `freewheel cache`: what is in a cache's directory, while its server runs and after it has left. Freewheel's own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::cache::{cache, command, counting, hit, http, place, server, store, stored};
use blackbox::{Answer, Origin, PATIENCE, Server, is_nginx};

const LOCATIONS: &str =
    "location / { %PASS%; proxy_cache_key $uri; proxy_cache_bypass $arg_bypass; }
    location /plain/ { return 204; }";
/// Bodies are longer than a block of checksums.
const BODY: usize = 100_000;

/// Says what kind of response a path has, by its first part.
fn origin() -> Origin {
    Origin::start(|request| {
        let target = request.target().to_owned();
        let headers = match &target[..] {
            path if path.starts_with("/news/") => {
                "Cache-Control: max-age=600\r\nCache-Tag: news\r\n"
            }
            path if path.starts_with("/varied") => "Cache-Control: max-age=600\r\nVary: X-Kind\r\n",
            path if path.starts_with("/short") => "Cache-Control: max-age=1\r\n",
            _ => "Cache-Control: max-age=600\r\n",
        };
        let kind = request.header("x-kind").unwrap_or_default().to_owned();
        Answer::with("200 OK", headers, body(&format!("{target} {kind}")))
    })
}

fn body(text: &str) -> String {
    text.chars().cycle().take(BODY).collect()
}

/// The exit code and the words of `freewheel cache WORDS`, `%DIR%` filled in.
fn run(server: &Server, words: &[&str]) -> (i32, String) {
    command(words.iter().map(|word| server.site().fill(word)))
}

/// What is said, with single blanks.
fn told(server: &Server, words: &[&str]) -> (i32, String) {
    let (code, text) = run(server, words);
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    (code, lines.collect::<Vec<_>>().join("\n"))
}

#[track_caller]
fn says(server: &Server, words: &[&str], code: i32, wanted: &[&str]) -> String {
    let (got, text) = told(server, words);
    assert_eq!(got, code, "{words:?}:\n{text}");
    for one in wanted {
        assert!(
            text.contains(one),
            "{words:?}: \"{one}\" is not said:\n{text}"
        );
    }
    text
}

/// Turns over a byte of the body of the entry with this key. Returns its file.
fn damage(directory: &Path, key: &str) -> PathBuf {
    let (path, begin) = place(directory, key);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .expect("it is ours");
    let (mut byte, at) = ([0], begin as u64 + 80_000);
    file.read_exact_at(&mut byte, at).expect("it is that long");
    file.write_all_at(&[byte[0] ^ 1], at).expect("it is ours");
    path
}

fn filled() -> (Origin, Server) {
    let origin = origin();
    let server = server(&origin, LOCATIONS);
    for path in ["/a", "/b", "/news/1", "/news/2", "/varied"] {
        server.get(path);
        hit(&server, path);
    }
    wait_for_entries(&server, 5);
    (origin, server)
}

/// Waits until so many entries are on the disk: a response that has just come is a hit before that.
fn wait_for_entries(server: &Server, count: usize) {
    let begun = Instant::now();
    loop {
        let entries = stored(&server.site().path("cache"));
        if entries == count {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{entries} of {count}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn entries_are_listed_and_shown_while_the_server_runs() {
    if is_nginx() {
        return;
    }
    let (_origin, server) = filled();
    let all = says(
        &server,
        &["ls", "%DIR%/cache"],
        0,
        &["200 98 KiB", " fresh for ", " /a", " /news/2"],
    );
    assert_eq!(all.lines().count(), 6, "{all}");
    let lines =
        |words: &[&str]| told(&server, &[&["ls", "%DIR%/cache", "--json"], words].concat()).1;
    assert_eq!(lines(&["--prefix", "/news/"]).lines().count(), 2);
    assert_eq!(lines(&["--tag", "NEWS"]).lines().count(), 2);
    assert_eq!(lines(&["--regex", "^/(a|b)$"]).lines().count(), 2);
    assert_eq!(lines(&["--status", "404"]), "");
    assert_eq!(lines(&["--stale"]), "");
    assert_eq!(lines(&["--limit", "3"]).lines().count(), 3);
    let first = lines(&["--sort", "key", "--limit", "1", "--journal"]);
    for wanted in [
        "\"key\":\"/a\"",
        "\"size\":100000",
        "\"uses\":",
        "\"is_fresh\":true",
    ] {
        assert!(first.contains(wanted), "{wanted}: {first}");
    }
    let shown = [
        "key /a",
        "checksums right: of the head and of 2 blocks",
        "HTTP/1.1 200 OK",
        "Cache-Control: max-age=600",
    ];
    says(&server, &["show", "%DIR%/cache", "/a"], 0, &shown);
    let (file, begin) = place(&server.site().path("cache"), "/b");
    if begin == 0 {
        let words = ["show", "%DIR%/cache", &file.display().to_string()];
        says(&server, &words, 0, &["checksums right"]);
    }
    let by_url = [
        "show",
        "c",
        "-c",
        "%DIR%/nginx.conf",
        "-p",
        "%DIR%/",
        "http://127.0.0.1:%PORT%/news/1",
    ];
    says(&server, &by_url, 0, &["key /news/1", "tags news"]);
    says(
        &server,
        &["show", "%DIR%/cache", "/none"],
        1,
        &["nothing is stored under the key /none"],
    );
}

#[test]
fn an_entry_is_shown_with_the_journal_of_its_own_disk() {
    if is_nginx() {
        return;
    }
    const ENTRIES: usize = 20;
    let origin = origin();
    let mut server = Server::start(&format!(
        "proxy_cache_path %DIR%/d1,%DIR%/d2 levels=1:2 {} keys_zone=c:1m use_temp_path=off;
         add_header X-Cache $upstream_cache_status always;
         server {{ listen 127.0.0.1:%PORT%; location / {{
             proxy_pass http://{}; proxy_cache c; proxy_cache_key http://up/x$uri; }} }}",
        store(),
        origin.address()
    ));
    let paths: Vec<_> = (0..ENTRIES).map(|number| format!("/{number}")).collect();
    for path in &paths {
        hit(&server, path);
    }
    let of = |name: &str| stored(&server.site().path(name));
    let begun = Instant::now();
    while of("d1") + of("d2") < ENTRIES {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(of("d1") > 0 && of("d2") > 0);
    server.quit();
    for path in &paths {
        // By a request's URL, and by a key that looks like one.
        for url in ["http://127.0.0.1:%PORT%", "http://up/x"] {
            let words = [
                "show",
                "c",
                &format!("{url}{path}"),
                "-c",
                "%DIR%/nginx.conf",
            ];
            let text = says(&server, &words, 0, &[&format!("key http://up/x{path}")]);
            assert!(!text.contains("the journal does not name"), "{text}");
        }
    }
}

#[test]
fn a_call_that_is_wrong_is_not_taken_for_a_finding() {
    if is_nginx() {
        return;
    }
    for words in [
        &["ls", "/tmp", "--bad"][..],
        &["ls"],
        &["nonsense"],
        &["show", "/tmp"],
        &[],
    ] {
        let (code, text) = command(words);
        assert_eq!(code, 2, "{words:?}: {text}");
        assert!(text.contains("Usage: freewheel cache"), "{words:?}: {text}");
    }
    assert_eq!(command(["--help"]).0, 0);
}

#[test]
fn a_request_is_told_why_it_would_be_a_hit_or_not() {
    if is_nginx() {
        return;
    }
    let (_origin, server) = filled();
    let why = |path: &str, more: &[&str], code: i32, wanted: &[&str]| {
        let url = format!("http://127.0.0.1:%PORT%{path}");
        let words = [
            &["why", &url, "-c", "%DIR%/nginx.conf", "-p", "%DIR%/"],
            more,
        ]
        .concat();
        says(&server, &words, code, wanted)
    };
    let hit = why(
        "/a?x",
        &[],
        0,
        &["HIT: it is fresh for", "key /a", "server runs"],
    );
    assert!(hit.contains("proxy_cache_key $uri;"), "{hit}");
    why("/none", &[], 1, &["MISS: nothing is stored under this key"]);
    why(
        "/a?bypass=1",
        &[],
        1,
        &["BYPASS: a condition of proxy_cache_bypass holds"],
    );
    why("/varied", &[], 0, &["HIT: ", "varies by x-kind"]);
    let other = ["MISS: the stored response is another variant (by x-kind)"];
    why("/varied", &["-H", "X-Kind: b"], 1, &other);
    why("/plain/x", &[], 1, &["no cache: "]);
    server.get("/short");
    hit_gone(&server, "/short");
    why(
        "/short",
        &[],
        1,
        &["EXPIRED: it is stale for", "the origin is asked"],
    );
}

/// Waits until what was stored for a second is stale.
fn hit_gone(server: &Server, path: &str) {
    hit(server, path);
    std::thread::sleep(Duration::from_millis(2500));
}

#[test]
fn a_running_server_purges_what_it_is_asked_to() {
    if is_nginx() {
        return;
    }
    let (_origin, server) = filled();
    let purge = |words: &[&str]| {
        says(
            &server,
            &[&["purge", "%DIR%/cache"], words].concat(),
            0,
            &[],
        )
    };
    assert_eq!(purge(&["key", "/a"]), "purged /a: by the server");
    assert_eq!(purge(&["key", "/a"]), "nothing is stored under /a");
    assert_eq!(cache(&server.get("/a")), "MISS");
    assert_eq!(cache(&server.get("/b")), "HIT");
    purge(&["tag", "News"]);
    assert_eq!(cache(&server.get("/news/1")), "MISS");
    assert_eq!(cache(&server.get("/b")), "HIT");
    purge(&["prefix", "/b", "/news/"]);
    assert_eq!(cache(&server.get("/b")), "MISS");
    let log = server.error_log();
    assert!(
        log.contains("\"freewheel cache\" purged the tag \"News\""),
        "{log}"
    );
    // A server that owns the directory and cannot be reached: nothing is done behind its back.
    hit(&server, "/b");
    std::fs::remove_file(server.site().path("cache/.freewheel/control")).expect("it listens there");
    let words = ["purge", "%DIR%/cache", "key", "/b"];
    says(
        &server,
        &words,
        2,
        &["takes no orders", "nothing was changed"],
    );
    assert_eq!(cache(&server.get("/b")), "HIT");
}

#[test]
fn what_is_purged_without_a_server_is_gone_for_the_next_one() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let locations = LOCATIONS;
    let mut first = server(&origin, locations);
    for path in ["/a", "/b", "/news/1"] {
        first.get(path);
        hit(&first, path);
    }
    let directory = first.site().path("cache");
    let kept = tempfile_copy(&mut first, &directory);
    let words = |words: &[&str]| command(words);
    let directory = kept.path().join("cache").display().to_string();
    let (code, text) = words(&["purge", &directory, "tag", "news"]);
    assert_eq!((code, text.contains("no server runs")), (0, true), "{text}");
    let (code, text) = words(&["purge", &directory, "key", "/a"]);
    assert_eq!(code, 0, "{text}");
    let (_, text) = words(&["show", &directory, "/a"]);
    assert!(
        text.contains("purged      by the pending purge of the key"),
        "{text}"
    );
    let text = http(&origin, locations).replace("%DIR%/cache", &directory);
    let second = Server::start(&text);
    assert_eq!(cache(&second.get("/a")), "MISS");
    assert_eq!(cache(&second.get("/news/1")), "MISS");
    assert_eq!(cache(&second.get("/b")), "HIT");
}

/// Has the server leave, and keeps its cache.
fn tempfile_copy(server: &mut Server, directory: &Path) -> tempfile::TempDir {
    assert!(server.quit().success());
    let kept = tempfile::tempdir().expect("there is room");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(kept.path(), open).expect("it is ours");
    std::fs::rename(directory, kept.path().join("cache")).expect("it is on the same disk");
    kept
}

#[test]
fn a_damaged_entry_is_found_and_removed_only_if_asked() {
    if is_nginx() {
        return;
    }
    let (_origin, mut server) = filled();
    let directory = server.site().path("cache");
    says(&server, &["verify", "%DIR%/cache"], 0, &["5 entries whole"]);
    let path = damage(&directory, "/a");
    let found = [
        "damaged",
        "block of the body",
        "4 entries whole",
        "1 damaged",
    ];
    says(&server, &["verify", "%DIR%/cache"], 1, &found);
    says(
        &server,
        &["show", "%DIR%/cache", "/a"],
        1,
        &["checksums damaged: block of the body"],
    );
    assert!(path.exists());
    let quarantine = server.site().path("quarantine");
    std::fs::create_dir(&quarantine).expect("it is ours");
    let inside = ["verify", "%DIR%/cache", "--quarantine", "%DIR%/cache/c"];
    let (code, text) = told(&server, &inside);
    assert_eq!(code, 2, "{text}");
    let moved = ["verify", "%DIR%/cache", "--quarantine", "%DIR%/quarantine"];
    says(
        &server,
        &moved,
        1,
        &["deleted by the server; a copy lies in"],
    );
    // In a segment it is marked, and its bytes stay until that is emptied.
    assert_eq!(path.exists(), !store().is_empty());
    let copies = std::fs::read_dir(&quarantine).expect("it is there");
    assert_eq!(copies.count(), 1);
    assert_eq!(cache(&server.get("/a")), "MISS");
    hit(&server, "/a");
    damage(&directory, "/b");
    let kept = tempfile_copy(&mut server, &directory);
    let directory = kept.path().join("cache").display().to_string();
    let verify = |more: &[&str]| command(["verify", &directory, "--json"].iter().chain(more));
    let (code, text) = verify(&["--remove"]);
    assert_eq!((code, text.contains("\"removed\":1")), (1, true), "{text}");
    let (code, text) = verify(&[]);
    assert_eq!((code, text.contains("\"entries\":4")), (0, true), "{text}");
    // A reader that has gone (`| head`) ends no command.
    damage(&kept.path().join("cache"), "/a");
    let (reader, writer) = std::io::pipe().expect("there are descriptors");
    drop(reader);
    let mut removal = std::process::Command::new(blackbox::binary());
    removal.args(["cache", "verify", &directory, "--remove"]);
    let output = removal.stdout(writer).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (code, text) = verify(&[]);
    assert_eq!((code, text.contains("\"entries\":3")), (0, true), "{text}");
}

/// Set when this is dropped, also by a test that fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_server_under_load_keeps_its_cache_whatever_is_asked() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let server = server(&origin, LOCATIONS);
    let is_over = AtomicBool::new(false);
    let paths: Vec<String> = (0..40).map(|number| format!("/news/{number}")).collect();
    // The cache is open then.
    server.get("/first");
    hit(&server, "/first");
    wait_for_entries(&server, 1);
    std::thread::scope(|scope| {
        let _over = SetAtEnd(&is_over);
        for client in 0..4 {
            let (server, paths, is_over) = (&server, &paths, &is_over);
            scope.spawn(move || {
                for path in paths.iter().cycle().skip(client * 10) {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    let reply = server.get(path);
                    assert_eq!(reply.status, 200);
                    assert!(
                        reply.text() == body(&format!("{path} ")),
                        "{path}: wrong bytes"
                    );
                }
            });
        }
        let directory = server.site().path("cache");
        for turn in 0..6 {
            says(&server, &["ls", "%DIR%/cache", "--journal"], 0, &[]);
            says(
                &server,
                &["purge", "%DIR%/cache", "tag", "news"],
                0,
                &["by the server"],
            );
            says(&server, &["verify", "%DIR%/cache", "--remove"], 0, &[]);
            says(
                &server,
                &["purge", "%DIR%/cache", "key", &format!("/news/{turn}")],
                0,
                &[],
            );
            assert!(directory.join(".freewheel/control").exists());
        }
    });
    for path in &paths {
        hit(&server, path);
    }
    wait_for_entries(&server, 41);
    says(
        &server,
        &["verify", "%DIR%/cache"],
        0,
        &["41 entries whole"],
    );
    assert_eq!(
        told(&server, &["ls", "%DIR%/cache", "--json"])
            .1
            .lines()
            .count(),
        41
    );
}

#[test]
fn what_is_no_cache_is_refused_with_the_reason() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let mut server = server(&origin, "location / { %PASS%; }");
    says(
        &server,
        &["ls", "%DIR%/none"],
        2,
        &["there is no such directory"],
    );
    says(
        &server,
        &["ls", "%DIR%/html"],
        2,
        &["not a cache directory of this program", ".freewheel"],
    );
    says(
        &server,
        &["purge", "%DIR%/html", "key", "x"],
        2,
        &["not a cache directory"],
    );
    let (code, text) = told(&server, &["purge", "%DIR%/cache", "tag", &"t".repeat(1100)]);
    assert_eq!(
        (code, text.contains("too long a text")),
        (2, true),
        "{text}"
    );
    server.get("/");
    hit(&server, "/");
    let directory = server.site().path("cache");
    let kept = tempfile_copy(&mut server, &directory);
    for file in std::fs::read_dir(kept.path().join("cache/.freewheel")).expect("it is there") {
        let path = file.expect("it can be read").path();
        let file = std::fs::OpenOptions::new().write(true).open(path);
        // Version 9, behind eight bytes that name the format.
        if let Ok(file) = file {
            file.write_all_at(&[9, 0, 0, 0], 8).expect("it is ours");
        }
    }
    let directory = kept.path().join("cache").display().to_string();
    for words in [
        &["purge", &directory, "key", "x"][..],
        &["show", &directory, "/"],
    ] {
        let (code, text) = command(words);
        assert!(code == 2 || text.contains("nothing is stored"), "{text}");
    }
    let (_, text) = command(["purge", &directory, "key", "x"]);
    assert!(
        text.contains("the journal is of another version (9"),
        "{text}"
    );
}
