//! `freewheel proxy ORIGIN`: a caching proxy without a configuration.
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

#[test]
fn a_large_body_is_passed_on_though_there_is_no_prefix() {
    let site = Site::new();
    let origin = Origin::start(|request| Answer::ok(request.body.len().to_string()));
    let said = site.path("said");
    let mut child = Command::new(blackbox::binary())
        .args(["proxy", &format!("http://{}", origin.address())])
        .args(["--listen", &format!("127.0.0.1:{}", site.port(0))])
        .arg("--cache")
        .arg(site.path("cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let said = || text_of(&std::fs::read(&said).unwrap());
    while !said().contains("Serving ") {
        assert!(Instant::now() < deadline, "{}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, site.port(0))).unwrap();
    let mut connection = Connection::new(stream);
    connection.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    connection.send(vec![b'x'; 200_000]);
    let reply = connection.reply();
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (200, "200000"),
        "{}",
        said()
    );
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
}
