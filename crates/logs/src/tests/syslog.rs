//! Syslog over sockets.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;

use super::{Fixture, LONG, text};
use crate::{ErrorLogs, Level, syslog};

fn receive(socket: &UdpSocket) -> String {
    let mut packet = [0; 4096];
    let length = socket.recv(&mut packet).unwrap();
    String::from_utf8(packet[..length].to_vec()).unwrap()
}

#[test]
fn syslog_gets_one_packet_for_each_line() {
    let fixture = Fixture::new();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(LONG)).unwrap();
    let peer = |rest: &str| {
        syslog::Peer::parse(format!("server={}{rest}", server.local_addr().unwrap()).as_bytes())
            .unwrap()
    };
    let errors = ErrorLogs::new(vec![(
        Level::Error,
        fixture.logs.syslog(&peer(",facility=user,severity=debug")),
    )]);
    let access = fixture.logs.syslog(&peer(",tag=SEETHIS,nohostname"));
    fixture.on_loop(async |feed| {
        feed.error(&errors, Level::Error, None, text("a line"));
        for _ in 0..2 {
            feed.line(&access, |out| {
                let head = access.syslog_head().unwrap();
                head.append(head.severity(), feed.clock(), out);
                out.extend_from_slice(b"/uri:200");
            });
        }
    });
    let error = receive(&server);
    assert!(error.starts_with("<11>"), "facility 1, severity 3: {error}");
    let host = nix::unistd::gethostname()
        .unwrap()
        .to_str()
        .unwrap()
        .to_lowercase();
    assert!(
        error[4 + 15..].starts_with(&format!(" {host} nginx: 20")),
        "{error}"
    );
    assert!(error.ends_with(": a line"), "no newline: {error}");
    for _ in 0..2 {
        let packet = receive(&server);
        assert!(
            packet.starts_with("<190>") && packet.ends_with(" SEETHIS: /uri:200"),
            "{packet}"
        );
        assert_eq!(packet.len(), 5 + 15 + " SEETHIS: /uri:200".len());
    }
}

#[test]
fn a_syslog_server_that_comes_back_is_written_to_again() {
    let fixture = Fixture::new();
    fixture.main_log();
    let path = fixture.path("socket");
    let peer = syslog::Peer::parse(format!("server=unix:{}", path.display()).as_bytes()).unwrap();
    let target = fixture.logs.syslog(&peer);
    let send = |line: &str| {
        fixture.on_loop(async |feed| feed.line(&target, text(line)));
        fixture.drain();
    };
    send("lost");
    let server = UnixDatagram::bind(&path).unwrap();
    send("kept");
    let mut packet = [0; 64];
    let length = server.recv(&mut packet).unwrap();
    assert_eq!(&packet[..length], b"kept");
    let log = fixture.read("error.log");
    let words = format!(
        "connect() failed (2: No such file or directory) while logging to syslog, server: unix:{}",
        path.display()
    );
    assert!(log.contains(&words) && log.contains("[error]"), "{log}");
    assert_eq!(fixture.logs.figures().failed, 1);
}
