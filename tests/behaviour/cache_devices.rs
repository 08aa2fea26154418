//! `proxy_cache_path DEVICE … files=DIRECTORY`: small entries on a device without a file system. A file of a fixed length
//! is in its place here; devices: `tests/devices.rs`. Freewheel's own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::cache::{cache, command, hit, http, store};
use super::cache_segments::{all_lengths_are_hits, body, fill_while_clients_read, origin};
use blackbox::{Origin, Server, Site, is_nginx};

/// Bytes of the device: four segments of 4 MiB.
const DEVICE_BYTES: u64 = 20 << 20;

fn text(origin: &Origin, more: &str) -> String {
    let locations = "location / { %PASS%; proxy_cache_key $uri; proxy_force_ranges on; }";
    let text = http(origin, locations).replace(&format!(" {}", store()), " ");
    text.replace("%DIR%/cache", "%DIR%/device").replace(
        "keys_zone=c:1m",
        &format!("keys_zone=c:1m files=%DIR%/cache {more}"),
    )
}

/// A site with a device, which is blank. None: it cannot be read past the page cache.
fn site() -> Option<Site> {
    if is_nginx() {
        return None;
    }
    let site = Site::new();
    site.device("device", DEVICE_BYTES)?;
    Some(site)
}

fn run(site: &Site, words: &[&str]) -> (i32, String) {
    command(words.iter().map(|word| site.fill(word)))
}

#[test]
fn small_entries_lie_on_the_device_and_survive_a_restart_and_a_kill() {
    let Some(site) = site() else { return };
    let origin = origin();
    let mut server = Server::start_on(site, "", &text(&origin, ""));
    let expect = |server: &Server| {
        all_lengths_are_hits(server);
        assert_eq!(hit(server, "/3000000").text(), body("/3000000"));
    };
    expect(&server);
    expect(&server);
    let asked = origin.received().len();
    server.restart();
    expect(&server);
    assert_eq!(origin.received().len(), asked, "all was found again");
    // As by a lack of memory.
    server.restart_killed();
    // The worker has told that its master was gone.
    server.forget_log();
    expect(&server);
    assert_eq!(origin.received().len(), asked, "all was found again");
    // Reloads keep the device.
    server.reload(&text(&origin, "max_size=16m"));
    expect(&server);
    assert_eq!(origin.received().len(), asked);
}

#[test]
fn segments_are_filled_again_while_clients_read_and_no_byte_is_wrong() {
    let Some(site) = site() else { return };
    let origin = origin();
    let server = Server::start_on(site, "", &text(&origin, ""));
    fill_while_clients_read(&server, || ());
    let len = std::fs::metadata(server.site().path("device")).expect("it is there");
    assert_eq!(len.len(), DEVICE_BYTES);
}

#[test]
fn purges_and_commands_reach_onto_the_device_and_damage_is_found() {
    let Some(site) = site() else { return };
    let origin = origin();
    let mut server = Server::start_on(site, "", &text(&origin, ""));
    for path in ["/a/100", "/b/100000", "/c/100"] {
        hit(&server, path);
    }
    let listed = |server: &Server| {
        let (_, listed) = run(server.site(), &["ls", "%DIR%/cache", "--json"]);
        listed.lines().filter(|line| line.starts_with('{')).count()
    };
    blackbox::until("three entries", blackbox::PATIENCE, || {
        (listed(&server) == 3).then_some(())
    });
    let (code, shown) = run(server.site(), &["show", "%DIR%/cache", "/b/100000"]);
    let (_, place) = shown.split_once("device@").expect("it lies there");
    let place = place
        .split_whitespace()
        .next()
        .and_then(|at| at.parse().ok());
    let place: u64 = place.expect("a number");
    assert!(
        code == 0 && shown.contains("right: of the head and of 2 blocks"),
        "{shown}"
    );
    let (code, told) = run(server.site(), &["verify", "%DIR%/cache"]);
    assert!(code == 0 && told.contains("3 entries whole"), "{told}");
    let (code, told) = run(server.site(), &["purge", "%DIR%/cache", "key", "/a/100"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(cache(&server.get("/a/100")), "MISS");
    server.quit();
    let device = File::options()
        .write(true)
        .open(server.site().path("device"));
    let device = device.expect("it is ours");
    device
        .write_all_at(b"?", place + 70_000)
        .expect("it is ours");
    device.sync_all().expect("it is written");
    let (code, told) = run(server.site(), &["verify", "%DIR%/cache"]);
    assert!(code == 1 && told.contains("damaged"), "{told}");
    server.restart();
    let asked = origin.received().len();
    assert_eq!(server.get("/b/100000").text(), body("/b/100000"));
    assert_eq!(origin.received().len(), asked + 1, "it was fetched again");
    assert_eq!(hit(&server, "/c/100").text(), body("/c/100"));
}

#[test]
fn a_device_is_one_server_s_and_what_else_is_on_it_stays() {
    let Some(site) = site() else { return };
    let origin = origin();
    let server = Server::start_on(site, "", &text(&origin, ""));
    hit(&server, "/10");
    // A test of the configuration, beside the server that has the device.
    let mut test = server.site().command();
    let test = test.arg("-t").output().expect("it runs");
    assert!(test.status.success(), "{test:?}");
    let (code, told) = run(server.site(), &["format", "%DIR%/device", "--force"]);
    assert!(code == 2 && told.contains("is in use"), "{told}");
    let refused = |change: &dyn Fn(&str) -> String| refused_beside(&server, &origin, change);
    let told = refused(&|text| text.replace("/cache levels", "/other levels"));
    assert!(told.contains("is in use"), "{told}");
    // What is no cache's is refused, and only a command that is told so destroys it.
    let other = server.site().device("other", DEVICE_BYTES);
    let other = other.expect("as the first one");
    let file = File::options()
        .write(true)
        .open(&other)
        .expect("it is ours");
    file.write_all_at(b"\x53\xef", 0x438).expect("it is ours");
    file.sync_all().expect("it is written");
    let before = std::fs::read(&other).expect("it is there");
    let told = refused(&|text| {
        text.replace("/device", "/other")
            .replace("files=%DIR%/cache", "files=%DIR%/c2")
    });
    assert!(
        told.contains("ext4") && told.contains("not overwritten"),
        "{told}"
    );
    let (code, told) = run(server.site(), &["format", "%DIR%/other"]);
    assert!(code == 2 && told.contains("with --force"), "{told}");
    assert!(std::fs::read(&other).expect("it is there") == before);
    let (code, told) = run(server.site(), &["format", "%DIR%/other", "--force"]);
    assert!(
        code == 0 && told.contains("4 segments of 4 MiB"),
        "{code}: {told}"
    );
}

/// What a second server says that does not start; its lines are those of the first one, changed.
fn refused_beside(server: &Server, origin: &Origin, change: &dyn Fn(&str) -> String) -> String {
    let text = change(&text(origin, "")).replace("127.0.0.1:%PORT%", "127.0.0.1:%PORT1%");
    let text = server.site().fill(&text);
    let text = format!("daemon off; pid nginx.pid; events {{}} http {{ {text} }}");
    match Server::try_start(&text) {
        Err(refused) => refused.stderr,
        Ok(_) => panic!("it started"),
    }
}

#[test]
fn lines_that_do_not_fit_are_refused() {
    let Some(site) = site() else { return };
    let origin = origin();
    let server = Server::start_on(site, "", &text(&origin, ""));
    for (from, to, sentence) in [
        (
            "files=%DIR%/cache",
            "files_size=1g",
            "\"files_size\" is for a device",
        ),
        (
            "files=%DIR%/cache",
            "files=%DIR%/cache store=files",
            "which has \"store=segments\"",
        ),
        (
            "files=%DIR%/cache",
            "files=%DIR%/a,/b",
            "a directory for each device",
        ),
        (
            "files=%DIR%/cache",
            "files=%DIR%/c2 files_size=1m",
            "must be at least 18m",
        ),
        ("%DIR%/device", "%DIR%/none", "No such file"),
    ] {
        let told = refused_beside(&server, &origin, &|text| text.replace(from, to));
        assert!(told.contains(sentence), "{sentence}: {told}");
    }
}
