//! `proxy_cache_path … store=segments`, and `admission=second_hit`. Freewheel's own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::cache::{cache, command, counting, hit, http};
use blackbox::{Answer, Origin, PATIENCE, Refused, Server, Site, is_nginx};

/// The largest size of a cache directory in these tests: the least that there may be.
const MAX_BYTES: u64 = 16 << 20;

fn parameters(origin: &Origin, locations: &str, parameters: &str) -> String {
    let zone = "keys_zone=c:1m";
    http(origin, locations).replace(zone, &format!("{zone} {parameters}"))
}

fn server(origin: &Origin, locations: &str) -> Server {
    let text = parameters(origin, locations, "store=segments max_size=16m");
    Server::start(&text)
}

/// Each path has a body of its own, of the length in its last part.
pub(crate) fn origin() -> Origin {
    Origin::start(|request| {
        let body = body(request.target());
        let headers = "Cache-Control: max-age=600\r\nCache-Tag: news\r\n";
        Answer::with("200 OK", headers, body)
    })
}

pub(crate) fn body(target: &str) -> String {
    let len = target.rsplit('/').next().and_then(|len| len.parse().ok());
    target.chars().cycle().take(len.unwrap_or(10)).collect()
}

/// Files and bytes below a directory.
fn sums(directory: &Path) -> (usize, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let meta = entry.metadata();
        bytes += meta.map_or(0, |meta| meta.blocks() * 512);
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => {
                let inner = sums(&entry.path());
                (files, bytes) = (files + inner.0, bytes + inner.1);
            }
            false => files += 1,
        }
    }
    (files, bytes)
}

/// Files that are neither segments nor the journal's. (In those folders the server makes some at any moment.)
fn entry_files(server: &Server) -> usize {
    let all = std::fs::read_dir(server.site().path("cache")).expect("it is there");
    let files = all.flatten().map(|entry| match entry.path() {
        path if path.ends_with(".freewheel") || path.ends_with("segments") => 0,
        path if path.is_dir() => sums(&path).0,
        _ => 1,
    });
    files.sum()
}

fn run(server: &Server, words: &[&str]) -> (i32, String) {
    command(words.iter().map(|word| server.site().fill(word)))
}

/// Entries of all lengths are hits, as a whole and in part.
pub(crate) fn all_lengths_are_hits(server: &Server) {
    for path in ["/0", "/10", "/5000", "/70000", "/200000", "/900000"] {
        assert_eq!(hit(server, path).text(), body(path), "{path}");
    }
    let part = server.get_with("/200000", "Range: bytes=150000-150009\r\n");
    assert_eq!(
        (part.status, part.text()),
        (206, body("/200000")[150_000..150_010].to_owned())
    );
}

/// Fills 36 MB, with entries that are used again among them, while clients read what was stored first. `each` is called
/// after every 20 entries.
pub(crate) fn fill_while_clients_read(server: &Server, each: impl Fn()) {
    let slow = "/slow/800000";
    hit(server, slow);
    // More than the sockets' buffers hold: these clients have begun to read, and wait.
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            client.send(format!("GET {slow} HTTP/1.0\r\nHost: a\r\n\r\n"));
            assert_eq!(client.read(12), b"HTTP/1.1 200");
            client
        })
        .collect();
    for number in 0..400 {
        let path = format!("/{number}/90000");
        assert_eq!(server.get(&path).text(), body(&path));
        if number % 3 == 0 {
            assert_eq!(server.get(&path).text(), body(&path));
        }
        if number % 20 == 0 {
            each();
        }
    }
    for client in &mut clients {
        let rest = client.rest();
        let wanted = body(slow);
        assert!(rest.ends_with(wanted.as_bytes()), "{} bytes", rest.len());
    }
    let last = "/399/90000";
    assert_eq!(hit(server, last).text(), body(last));
}

#[test]
fn small_entries_have_no_files_and_survive_a_restart() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let mut server = server(&origin, "location / { %PASS%; proxy_force_ranges on; }");
    all_lengths_are_hits(&server);
    server.get("/3000000");
    hit(&server, "/3000000");
    all_lengths_are_hits(&server);
    assert_eq!(entry_files(&server), 1, "what is large has a file");
    let asked = origin.received().len();
    server.restart();
    all_lengths_are_hits(&server);
    assert_eq!(hit(&server, "/3000000").text(), body("/3000000"));
    assert_eq!(origin.received().len(), asked, "all was found again");
}

#[test]
fn segments_are_written_again_while_clients_read_and_no_byte_is_wrong() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let server = server(&origin, "location / { %PASS%; }");
    fill_while_clients_read(&server, || {
        let (_, bytes) = sums(&server.site().path("cache"));
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    });
    assert_eq!(entry_files(&server), 0);
}

#[test]
fn purges_and_commands_reach_into_segments() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let locations = "location / { %PASS%; proxy_cache_key $uri; }";
    let mut server = server(&origin, locations);
    for path in ["/a/100", "/b/100000", "/c/100"] {
        hit(&server, path);
    }
    let begun = Instant::now();
    loop {
        let (code, listed) = run(&server, &["ls", "%DIR%/cache", "--json"]);
        if code == 0 && listed.lines().filter(|line| line.starts_with('{')).count() == 3 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{listed}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, shown) = run(&server, &["show", "%DIR%/cache", "/b/100000"]);
    assert!(code == 0 && shown.contains("segments/0@"), "{shown}");
    assert!(
        shown.contains("right: of the head and of 2 blocks"),
        "{shown}"
    );
    let (code, text) = run(&server, &["verify", "%DIR%/cache"]);
    assert!(code == 0 && text.contains("3 entries whole"), "{text}");
    let (code, text) = run(&server, &["purge", "%DIR%/cache", "key", "/a/100"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(cache(&server.get("/a/100")), "MISS");
    let (code, text) = run(&server, &["purge", "%DIR%/cache", "tag", "news"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(cache(&server.get("/b/100000")), "MISS");
    assert_eq!(cache(&server.get("/c/100")), "MISS");
    hit(&server, "/c/100");
    // A damaged entry: found by the command, and fetched again by the server.
    server.quit();
    let segment = server.site().path("cache/segments/0");
    let mut bytes = std::fs::read(&segment).expect("it is there");
    let twice = &body("/b/100000").into_bytes()[..2 * "/b/100000".len()];
    for page in bytes.chunks_mut(4096) {
        if page.windows(twice.len()).any(|part| part == twice) {
            page[3000] ^= 1;
        }
    }
    std::fs::write(&segment, bytes).expect("it is ours");
    let (code, text) = run(&server, &["verify", "%DIR%/cache", "--remove"]);
    assert!(code == 1 && text.contains("damaged"), "{text}");
    server.restart();
    assert_eq!(server.get("/b/100000").text(), body("/b/100000"));
    assert_eq!(hit(&server, "/c/100").text(), body("/c/100"));
}

#[test]
fn a_directory_is_converted_while_its_server_runs_and_back() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let locations = "location / { %PASS%; }";
    let mut server = Server::start(&http(&origin, locations));
    let paths = ["/1", "/2000", "/300000", "/3000000"];
    for path in paths {
        hit(&server, path);
    }
    let (code, text) = run(&server, &["convert", "%DIR%/cache"]);
    assert!(code == 0 && text.contains("0 entries"), "{text}");
    let restart_with = |server: &mut Server, store: &str| {
        server.quit();
        let text = parameters(&origin, locations, &format!("{store} max_size=64m"));
        server.site().configure(&format!(
            "daemon off; pid nginx.pid; error_log logs/error.log info; events {{}} http {{ {text} }}"
        ));
        server.restart();
    };
    restart_with(&mut server, "store=segments");
    assert_eq!(hit(&server, "/2000").text(), body("/2000"));
    assert_eq!(entry_files(&server), 4);
    let (code, text) = run(&server, &["convert", "%DIR%/cache"]);
    assert!(code == 0 && text.contains("3 entries were moved"), "{text}");
    assert_eq!(entry_files(&server), 1);
    let asked = origin.received().len();
    let expect_all = |server: &Server| {
        for path in paths {
            assert_eq!(hit(server, path).text(), body(path));
        }
        assert_eq!(origin.received().len(), asked);
    };
    expect_all(&server);
    // And back: what lies in segments is found until then.
    restart_with(&mut server, "store=files");
    expect_all(&server);
    assert_eq!(entry_files(&server), 1);
    let (code, text) = run(&server, &["convert", "%DIR%/cache"]);
    assert!(
        code == 0 && text.contains("3 entries were moved into files"),
        "{text}"
    );
    assert_eq!(entry_files(&server), 4);
    expect_all(&server);
    let segments = || sums(&server.site().path("cache/segments")).0;
    let begun = Instant::now();
    while segments() > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} are left", segments());
        std::thread::sleep(Duration::from_millis(20));
    }
    restart_with(&mut server, "store=files");
    expect_all(&server);
}

#[test]
fn one_conversion_runs_at_a_time_keeps_no_order_out_and_ends_with_its_command() {
    const CONVERSIONS: usize = 6;
    if is_nginx() {
        return;
    }
    let origin = origin();
    let locations = "location / { %PASS%; }";
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    let mut server = Server::start_on(site, "", &http(&origin, locations));
    for path in ["/1", "/2000"] {
        hit(&server, path);
    }
    server.quit();
    let text = parameters(&origin, locations, "store=segments max_size=64m");
    server.site().configure(&format!(
        "daemon off; pid nginx.pid; error_log logs/error.log info; events {{}} http {{ {text} }}"
    ));
    server.restart();
    hit(&server, "/1");
    let socket = server.site().path("cache/.freewheel/control");
    std::fs::write(&hold, "").expect("the directory is ours");
    let order = |line: &str| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it is a socket");
        stream.write_all(line.as_bytes()).expect("it is read");
        stream
    };
    let answer = |mut stream: &UnixStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let (sender, answers) = std::sync::mpsc::channel();
    let orders: Vec<_> = (0..CONVERSIONS).map(|_| order("convert \n")).collect();
    for stream in &orders {
        let (stream, sender) = (stream.try_clone().expect("a descriptor"), sender.clone());
        std::thread::spawn(move || sender.send(answer(&stream)));
    }
    for _ in 1..CONVERSIONS {
        let told = answers.recv_timeout(PATIENCE).expect("a refusal");
        assert_eq!(
            told.expect("an answer"),
            "failed its entries are being moved already\n"
        );
    }
    let state = answer(&order("disk\n")).expect("an answer");
    assert!(state.starts_with("disk "), "{state}");
    for stream in &orders {
        let _ = stream.shutdown(Shutdown::Both);
    }
    std::fs::remove_file(&hold).expect("it is there");
    server.wait_for("small entries, not all: the command has ended", "its end");
    let (code, text) = run(&server, &["convert", "%DIR%/cache"]);
    assert!(code == 0 && text.contains("0 entries were moved"), "{text}");
}

#[test]
fn what_is_asked_for_once_is_not_stored_by_second_hit() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let locations = "location / { %PASS%; }";
    let text = parameters(&origin, locations, "admission=second_hit");
    let server = Server::start(&text);
    assert_eq!(server.get("/a").text(), "answer 1");
    std::thread::sleep(Duration::from_millis(50));
    let second = server.get("/a");
    assert_eq!(
        (cache(&second), second.text().as_str()),
        ("MISS", "answer 2")
    );
    assert_eq!(hit(&server, "/a").text(), "answer 2");
    // A reload changes it.
    server.reload(&parameters(&origin, locations, "admission=all"));
    let first = server.get("/b").text();
    assert_eq!(hit(&server, "/b").text(), first);
}

#[test]
fn values_that_cannot_be_are_refused() {
    if is_nginx() {
        return;
    }
    let refused = |words: &str, sentence: &str| {
        let line = format!("proxy_cache_path %DIR%/c keys_zone=c:1m {words};");
        let text = format!(
            "daemon off; pid nginx.pid; events {{}} http {{ {line} server {{ listen 127.0.0.1:%PORT%; }} }}"
        );
        match Server::try_start(&text) {
            Ok(_) => panic!("{words} is taken"),
            Err(Refused { stderr, .. }) => assert!(stderr.contains(sentence), "{stderr}"),
        }
    };
    refused("store=x", "invalid store value \"store=x\"");
    refused("admission=x", "invalid admission value \"admission=x\"");
    refused(
        "store=segments max_size=15m",
        "\"max_size\" must be at least 16m with \"store=segments\"",
    );
    let origin = origin();
    let server = server(&origin, "location / { %PASS%; }");
    let other = parameters(&origin, "location / { %PASS%; }", "max_size=16m");
    server.reload_file(&format!(
        "daemon off; pid nginx.pid; error_log logs/error.log info; events {{}} http {{ {other} }}"
    ));
    server.wait_for(
        "had previously another \"store\"",
        "the refusal of the reload",
    );
    assert_eq!(server.get("/10").text(), body("/10"));
    server.forget_log();
}
