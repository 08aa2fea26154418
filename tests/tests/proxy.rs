//! `freewheel proxy ORIGIN --cache DIR[,DIR…]`: a caching proxy without a configuration.
#![expect(clippy::unwrap_used, reason = "tests: a failure is a panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests have no event loop: blocking sockets and files"
)]

use blackbox::{Answer, Connection, Origin, PATIENCE, Site, text_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn command(site: &Site, origin: &Origin, directories: &[&str]) -> Command {
    let paths: Vec<String> = directories
        .iter()
        .map(|name| site.path(name).display().to_string())
        .collect();
    let mut command = Command::new(blackbox::binary());
    command.args(["proxy", &origin.address(), "--max-size", "100m", "--cache"]);
    command.arg(paths.join(","));
    command
        .arg("--listen")
        .arg(format!("127.0.0.1:{}", site.port(0)));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn get(site: &Site, path: &str) -> String {
    let mut connection =
        Connection::new(TcpStream::connect((Ipv4Addr::LOCALHOST, site.port(0))).unwrap());
    connection.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
    text_of(&connection.rest())
}

fn origin() -> Origin {
    Origin::start(|request| {
        let body = request.target().to_owned();
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", body)
    })
}

#[test]
fn what_it_prints_is_a_configuration_that_is_accepted() {
    let (site, origin) = (Site::new(), origin());
    let mut command = command(&site, &origin, &["one", "two", "th ree"]);
    let output = command.arg("--print-config").stdout(Stdio::piped());
    let output = output.output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    std::fs::write(site.path("printed.conf"), &output.stdout).unwrap();
    let (status, said) = site.run(&["-t", "-c", "printed.conf"]);
    assert!(status.success(), "{said}");
}

#[test]
fn keys_are_spread_over_the_disks_and_answered_from_them() {
    let (site, origin) = (Site::new(), origin());
    let said = File::create(site.path("said")).unwrap();
    let mut command = command(&site, &origin, &["one", "t$wo"]);
    let mut child = command.stderr(said).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !text_of(&std::fs::read(site.path("said")).unwrap()).contains("Serving ") {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..20 {
        let path = format!("/{number}");
        while !get(&site, &path).contains("X-Cache-Status: HIT") {
            assert!(Instant::now() < deadline, "{path} is not stored");
        }
        assert!(get(&site, &path).ends_with(&path));
    }
    for name in ["one", "t$wo"] {
        assert!(
            std::fs::read_dir(site.path(name)).unwrap().count() > 1,
            "{name}"
        );
    }
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(process, Signal::SIGQUIT).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn why_nothing_is_stored_is_told_and_valid_stores_what_names_no_lifetime() {
    let silent = Origin::start(|request| match request.target() {
        "/cookie" => Answer::with(
            "200 OK",
            "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            "x",
        ),
        "/fresh" => Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "x"),
        "/none" => Answer::Talk(Box::new(drop)),
        _ => Answer::ok("x"),
    });
    for (valid, first, second) in [
        (
            None,
            "freewheel; fwd=uri-miss; detail=\"not stored: no lifetime\"",
            "freewheel; fwd=uri-miss; detail=\"not stored: no lifetime\"",
        ),
        (
            Some("10m"),
            "freewheel; fwd=uri-miss; stored",
            "freewheel; hit",
        ),
    ] {
        let site = Site::new();
        let said = File::create(site.path("said")).unwrap();
        let mut command = command(&site, &silent, &["one"]);
        command.args(valid.map(|time| ["--valid", time]).into_iter().flatten());
        let mut child = command.stderr(said).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let status = |path: &str| {
            let reply = get(&site, path);
            let line = reply
                .lines()
                .find_map(|line| line.strip_prefix("Cache-Status: "));
            line.unwrap_or_default().to_owned()
        };
        while !text_of(&std::fs::read(site.path("said")).unwrap()).contains("Serving ") {
            assert!(Instant::now() < deadline, "it does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Until the cache is open requests pass by it.
        while status("/fresh") != "freewheel; hit" {
            assert!(Instant::now() < deadline, "the cache does not open");
        }
        assert_eq!(status("/silent"), first);
        while status("/silent") != second {
            assert!(Instant::now() < deadline, "{valid:?}");
        }
        let cookie = "freewheel; fwd=uri-miss; detail=\"not stored: Set-Cookie\"";
        assert_eq!(status("/cookie"), cookie);
        let none = "freewheel; fwd=uri-miss; detail=\"not stored: no answer\"";
        assert_eq!(status("/none"), none);
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
