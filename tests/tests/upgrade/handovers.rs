//! Many upgrades under load, also from nginx and to it: `cargo xtask upgrade`, which takes minutes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use blackbox::tls::Certificate;
use blackbox::{Origin, Site, binary, is_running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::{Daemon, put_program, until};
use crate::load::{self, Counts, Load, Lost};

/// How long both programs run, and how long the old one waits between WINCH and QUIT.
const PAUSE: Duration = Duration::from_millis(300);

fn rounds() -> usize {
    let text = std::env::var("UPGRADE_ROUNDS");
    text.map_or(5, |text| text.parse().unwrap())
}

/// A site whose program is `%DIR%/server`, a copy that can be replaced.
fn site(program: &Path) -> Site {
    let directory = tempfile::tempdir().unwrap().keep();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let site = Site::of(&directory.join("server"));
    replace(&directory, program);
    Certificate::of("localhost").write(&site, "c");
    for number in 0..load::NAMES {
        let path = format!("/s/{number}");
        site.file(&path[1..], load::content(&path));
    }
    site
}

/// Puts another program at the path, as a package does: a new file under the old name.
fn replace(directory: &Path, program: &Path) {
    let new = directory.join("new");
    put_program(program, &new);
    std::fs::rename(new, directory.join("server")).unwrap();
}

fn directory(daemon: &Daemon) -> PathBuf {
    let program = daemon.0.command().get_program().to_owned();
    Path::new(&program).parent().unwrap().to_owned()
}

fn text(origin: &Origin) -> String {
    format!(
        "worker_processes 2; pid nginx.pid; error_log logs/error.log info; events {{ worker_connections 1024; }}
         http {{ access_log off; proxy_temp_path %DIR%/temp; client_body_temp_path %DIR%/body;
         fastcgi_temp_path %DIR%/f; uwsgi_temp_path %DIR%/u; scgi_temp_path %DIR%/g;
         proxy_cache_path %DIR%/cache keys_zone=c:1m max_size=100m;
         upstream o {{ server {}; keepalive 16; }}
         server {{ listen 127.0.0.1:%PORT%; listen 127.0.0.1:%PORT1% ssl; http2 on;
         ssl_certificate %DIR%/c.crt; ssl_certificate_key %DIR%/c.key;
         proxy_http_version 1.1; proxy_set_header Connection \"\";
         root %DIR%/html;
         location /s/ {{ }}
         location /p/ {{ proxy_pass http://o; }}
         location /c/ {{ proxy_pass http://o; proxy_cache c; }} }} }}",
        origin.address()
    )
}

/// One upgrade by nginx's sequence. `leaving`: the old program, as its `Server` field begins.
fn hand_over(daemon: &Daemon, counts: &Counts, leaving: &'static str) {
    let (old, _) = daemon.upgrade();
    std::thread::sleep(PAUSE);
    *counts.leaving.lock().unwrap() = leaving;
    kill(old, Signal::SIGWINCH).unwrap();
    std::thread::sleep(PAUSE);
    kill(old, Signal::SIGQUIT).unwrap();
    until("the end of the old master", || !is_running(old));
    std::thread::sleep(PAUSE);
    *counts.leaving.lock().unwrap() = "";
}

/// Asks for everything that is cached until the origin is no longer asked for it.
fn warm(daemon: &Daemon, origin: &Origin) {
    let asked = || {
        let all = origin.received();
        all.iter()
            .filter(|asked| asked.target().starts_with("/c/"))
            .count()
    };
    until("all is stored", || {
        let before = asked();
        for number in 0..load::NAMES {
            let mut client = blackbox::Connection::new(
                std::net::TcpStream::connect(("127.0.0.1", daemon.0.port(0))).unwrap(),
            );
            let head = format!("GET /c/{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert_eq!(client.send(head).reply().status, 200);
        }
        asked() == before
    });
    origin.take();
}

/// How often entries were fetched that had been stored before [`warm`] ended.
fn fetched(origin: &Origin) -> usize {
    let all = origin.received();
    all.iter()
        .filter(|asked| asked.target().starts_with("/c/"))
        .count()
}

fn tell(what: &str, counts: &Counts, fetched: usize) {
    let lost = counts.lost.lock().unwrap();
    let by_nginx = lost.iter().filter(|lost| lost.is_by_nginx()).count();
    println!(
        "{what}: answered {}, of these over TLS {}, HTTP/2 {}; sent again on another connection {}, after a GOAWAY {:?}; \
         lost {}, of these on a connection that nginx had {by_nginx}; wrong {}, fetched again {fetched}",
        counts.answered.load(Relaxed),
        counts.tls.load(Relaxed),
        counts.http2.load(Relaxed),
        counts.again.load(Relaxed),
        counts.refused.lock().unwrap(),
        lost.len(),
        counts.wrong.lock().unwrap().len(),
    );
}

/// Fails if there is one; shows the first.
fn none(all: &[impl std::fmt::Debug]) {
    assert!(all.is_empty(), "{:?}", &all[..all.len().min(10)]);
}

/// What was lost on connections that nginx did not have.
fn lost_here(counts: &Counts) -> Vec<Lost> {
    let all = counts.lost.lock().unwrap();
    all.iter()
        .filter(|lost| !lost.is_by_nginx())
        .cloned()
        .collect()
}

#[test]
#[ignore = "minutes: cargo xtask upgrade"]
fn freewheel_to_freewheel() {
    let origin = load::origin();
    let daemon = Daemon::start_at(site(binary()), &text(&origin));
    warm(&daemon, &origin);
    let load = Load::start(&daemon.0);
    (0..rounds()).for_each(|_| hand_over(&daemon, &load.counts, "freewheel/"));
    let counts = load.end();
    tell("freewheel to freewheel", &counts, fetched(&origin));
    none(&counts.lost.lock().unwrap());
    none(&counts.wrong.lock().unwrap());
    none(&Vec::from_iter(&*counts.refused.lock().unwrap()));
    assert_eq!(fetched(&origin), 0);
}

#[test]
#[ignore = "minutes, needs nginx: cargo xtask upgrade"]
fn nginx_to_freewheel_and_back() {
    let nginx = PathBuf::from(std::env::var("UPGRADE_NGINX").unwrap());
    let origin = load::origin();
    let daemon = Daemon::start_at(site(&nginx), &text(&origin));
    let load = Load::start(&daemon.0);
    for _ in 0..rounds() {
        for (program, leaving) in [(binary(), "nginx/"), (&nginx, "freewheel/")] {
            replace(&directory(&daemon), program);
            hand_over(&daemon, &load.counts, leaving);
        }
    }
    let counts = load.end();
    // The formats of cached responses differ: each program fetches its own.
    tell(
        "nginx to freewheel to nginx",
        &counts,
        load::refetched(&origin),
    );
    none(&lost_here(&counts));
    none(&counts.wrong.lock().unwrap());
    let refused = counts.refused.lock().unwrap();
    let here = refused
        .iter()
        .filter(|(server, _)| !server.starts_with("nginx/"));
    none(&Vec::from_iter(here));
}

/// What nginx loses when it replaces itself: with that the losses on its connections above are to be compared.
#[test]
#[ignore = "minutes, needs nginx: cargo xtask upgrade"]
fn nginx_to_nginx() {
    let nginx = PathBuf::from(std::env::var("UPGRADE_NGINX").unwrap());
    let origin = load::origin();
    let daemon = Daemon::start_at(site(&nginx), &text(&origin));
    let load = Load::start(&daemon.0);
    (0..rounds()).for_each(|_| hand_over(&daemon, &load.counts, "nginx/"));
    let counts = load.end();
    tell("nginx to nginx", &counts, load::refetched(&origin));
    none(&lost_here(&counts));
    none(&counts.wrong.lock().unwrap());
}

/// A number below `end`, different in each run.
fn random(end: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.unwrap().subsec_nanos()) / 1000 % end
}

/// The child processes of a master: its workers (and the master that it has started).
fn children(master: Pid) -> Vec<Pid> {
    let path = format!("/proc/{master}/task/{master}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect()
}

#[test]
#[ignore = "minutes: cargo xtask upgrade"]
fn processes_are_killed_at_random_moments() {
    let origin = load::origin();
    let daemon = Daemon::start_at(site(binary()), &text(&origin));
    warm(&daemon, &origin);
    let load = Load::start(&daemon.0);
    for round in 0..rounds() as u64 {
        let old = daemon.master();
        kill(old, Signal::SIGUSR2).unwrap();
        std::thread::sleep(Duration::from_millis(random(250)));
        if random(2) == 0 {
            let _ = kill(old, Signal::SIGWINCH);
            std::thread::sleep(Duration::from_millis(random(100)));
        }
        let new = daemon.number("nginx.pid").filter(|new| *new != old);
        let victim = match round % 4 {
            0 => Some(old),
            1 => children(old).into_iter().find(|child| Some(*child) != new),
            2 => new.or_else(|| children(old).pop()),
            _ => new.and_then(|new| children(new).pop()),
        };
        if let Some(victim) = victim {
            let _ = kill(victim, Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
        // Whatever is left becomes one master.
        until("a master with its pid file", || {
            daemon.number("nginx.pid").is_some_and(is_running)
        });
        let left = daemon.master();
        if left == old {
            kill(old, Signal::SIGHUP).unwrap();
        } else if is_running(old) {
            kill(old, Signal::SIGQUIT).unwrap();
            until("the end of the old master", || !is_running(old));
        }
        let _ = std::fs::remove_file(daemon.0.path("nginx.pid.oldbin"));
        let before = load.counts.answered.load(Relaxed);
        until("the service goes on", || {
            load.counts.answered.load(Relaxed) > before + 200
        });
    }
    let counts = load.end();
    tell("killed at random moments", &counts, fetched(&origin));
    let lost = counts.lost.lock().unwrap().clone();
    println!("lost with the killed: {:?}", &lost[..lost.len().min(5)]);
    none(&counts.wrong.lock().unwrap());
    assert_eq!(fetched(&origin), 0);
}
