//! What a disk, a file or a pool does to a request, and to others.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they touch files"
)]

use crate::forbidden::FORBIDDING;
use blackbox::{Answer, Connection, Origin, Server, Site, is_nginx};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file whose reads fail with EIO, whoever asks: the kernel has such attributes of devices that cannot sleep.
fn unreadable() -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/devices").ok()?;
    devices
        .flatten()
        .map(|device| device.path().join("power/autosuspend_delay_ms"))
        .find(|path| {
            std::fs::read(path).is_err_and(|error| error.raw_os_error() == Some(5 /* EIO */))
        })
}

#[test]
fn a_disk_that_cannot_be_read_is_500_and_one_line_names_the_file() {
    let (Some(file), false) = (unreadable(), is_nginx()) else {
        return;
    };
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; location = /bad {{ alias {}; }} location / {{ return 200 fine; }} }}",
        file.display()
    ));
    assert_eq!(server.get("/bad").status, 500);
    assert_eq!(server.get("/").text(), "fine");
    let line = format!(
        "read() \"{}\" failed (5: Input/output error), client: 127.0.0.1",
        file.display()
    );
    server.wait_for(&line, "the line about the disk");
    let log = server.error_log();
    assert_eq!(log.matches("[crit]").count(), 1, "{log}");
    server.forget_log();
}

#[test]
fn a_file_truncated_while_it_is_sent_ends_that_connection_only() {
    const LENGTH: u64 = 64 << 20;
    for sendfile in ["on", "off"] {
        let server = Server::start(&format!(
            "server {{ listen 127.0.0.1:%PORT%; sendfile {sendfile}; }}"
        ));
        server.file("small", "small");
        let path = server.file("large", "");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(LENGTH).unwrap();
        let mut reading = server.connect();
        reading.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        reading.read(1000);
        // More than the sockets hold is still to come.
        file.set_len(100_000).unwrap();
        let rest = reading.rest().len() as u64;
        assert!(rest < LENGTH - 1000, "sendfile {sendfile}: {rest}");
        assert_eq!(server.get("/small").text(), "small");
        if !is_nginx() {
            server.wait_for("file was truncated: ", "the reason");
            let named = "while sending response to client: \"%DIR%/html/large\"";
            server.wait_for(&server.site().fill(named), "the file");
        }
        assert!(!server.error_log().contains("exited on signal"));
        server.forget_log();
    }
}

#[test]
fn a_full_pool_is_503_with_retry_after_and_the_waiting_request_is_answered_later() {
    if is_nginx() {
        return;
    }
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    std::fs::write(&hold, "").unwrap();
    // What lies in procfs always goes through the pool.
    let server = Server::start_on(
        site,
        "thread_pool narrow threads=1 max_queue=0;",
        "server { listen 127.0.0.1:%PORT%; aio threads=narrow; location = /slow { alias /proc/self/limits; }
            location / { return 200 fine; } }",
    );
    let ask = "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // The pools stand still from the first look at the file on.
    let mut waiting = Vec::new();
    let full = loop {
        let mut connection = server.connect();
        connection.send(ask);
        if server.error_log().contains("queue overflow") {
            waiting.push(connection);
            break waiting.pop().unwrap().reply();
        }
        waiting.push(connection);
        assert!(waiting.len() < 1000, "no overflow:\n{}", server.error_log());
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert_eq!((full.status, full.header("retry-after")), (503, Some("1")));
    assert_eq!(server.get("/").text(), "fine", "others are answered");
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains("queue overflow"));
    assert!(
        line.is_some_and(|line| line.contains("[error]")
            && line.contains("thread pool \"narrow\" queue overflow: ")
            && line.contains(" tasks waiting, client: 127.0.0.1")),
        "{log}"
    );
    std::fs::remove_file(hold).unwrap();
    let answers: Vec<u16> = waiting
        .iter_mut()
        .map(|connection| connection.reply().status)
        .collect();
    assert!(answers.contains(&200), "{answers:?}");
    assert!(
        answers.iter().all(|status| [200, 503].contains(status)),
        "{answers:?}"
    );
}

/// Bytes of a file that gets a copy in memory.
const SMALL_BYTES: usize = 60_000;
/// Requests whose lines in the access log are together larger than the limit below.
const LONG_LINES: usize = 200;

#[test]
fn a_limit_of_file_sizes_ends_no_worker() {
    if is_nginx() {
        return;
    }
    // Blocks of 512 or of 1024 bytes.
    let site = Site::new().run_by(&["sh", "-c", "ulimit -f 300; exec \"$0\" \"$@\""]);
    let bodies: Vec<String> = (0..8).map(|n| n.to_string().repeat(SMALL_BYTES)).collect();
    for (n, body) in bodies.iter().enumerate() {
        site.file(&n.to_string(), body);
    }
    let server = Server::start_on(
        site,
        "worker_processes 1;",
        "server { listen 127.0.0.1:%PORT%; access_log logs/access.log;
             location = /pid { access_log off; return 200 $pid; } }",
    );
    let worker = server.get("/pid").text();
    for _ in 0..4 {
        for (n, body) in bodies.iter().enumerate() {
            assert!(server.get(&format!("/{n}")).text() == *body, "{n}");
        }
    }
    let long = format!("/0?{}", "x".repeat(2000));
    for _ in 0..LONG_LINES {
        assert_eq!(server.get(&long).status, 200);
    }
    assert_eq!(server.get("/pid").text(), worker);
    server.forget_log();
}

#[test]
fn descriptors_that_run_out_are_taken_from_what_idles() {
    let server = Server::start_with(
        "worker_processes 1; worker_rlimit_nofile 64;",
        "server { listen 127.0.0.1:%PORT%; }",
    );
    let mut kept = Vec::new();
    for number in 0..100 {
        let name = format!("f{number}");
        server.file(&name, vec![b'x'; 70_000]);
        let mut connection = server.connect();
        connection.send(format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let reply = connection.reply();
        assert_eq!((reply.status, reply.body.len()), (200, 70_000), "{name}");
        kept.push(connection);
    }
    server.wait_for(
        "accept4() failed (24: Too many open files) while accepting new connection on 127.0.0.1:",
        "nothing else was tried here",
    );
    server.quit_and_forget_log();
}

/// A server of one word, at so many sockets.
fn at_sockets(word: &str, sockets: usize) -> String {
    let listen = |i| format!("listen 127.0.0.{i}:%PORT%;");
    let listen: String = (1..=sockets).map(listen).collect();
    format!("server {{ {listen} location = /word {{ return 200 {word}; }} }}")
}

/// More sockets than a worker of 64 descriptors has left beside [`occupied`].
const SOCKETS: usize = 20;

/// Connections that nothing is taken from: a response is on its way over each, until descriptors run out.
fn occupied(server: &Server) -> Vec<Connection> {
    server.file("large", vec![b'x'; 16 << 20]);
    let begin = |_| {
        let mut connection = server.connect();
        connection.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        connection
    };
    let begun = (0..70).map(begin).collect();
    server.wait_for("accept4() failed (24: Too many open files)", "they ran out");
    begun
}

#[test]
fn a_worker_without_a_descriptor_left_gets_its_logs_and_a_new_configuration() {
    let main = "worker_processes 1; worker_rlimit_nofile 64;";
    let server = Server::start_with(main, &at_sockets("old", 1));
    let begun = occupied(&server);
    let log = server.site().path("logs/access.log");
    std::fs::rename(&log, log.with_extension("old")).expect("it is there");
    server.signal(Signal::SIGUSR1);
    server.reload_with(main, &at_sockets("new", SOCKETS));
    drop(begun);
    assert_eq!(server.get("/word").text(), "new");
    // The master has made the new file, but only the worker writes to it.
    assert!(!server.access_log(1).is_empty());
    server.quit_and_forget_log();
}

/// More sockets than a worker has room for whose limit is 64, and fewer than its master has.
const SOCKETS_TOO_MANY: usize = 44;

#[test]
fn where_the_system_gives_no_more_descriptors_the_old_configuration_goes_on() {
    if is_nginx() {
        return;
    }
    let limited = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let site = Site::new().run_by(&[&limited[..], &[FORBIDDING, "setrlimit", "1"]].concat());
    let main = "worker_processes 1;";
    let server = Server::start_on(site, main, &at_sockets("old", 1));
    let reload = |sockets| {
        server.reload_file(&format!(
            "daemon off; pid nginx.pid; error_log logs/error.log info; {main} events {{ }} http {{ {} }}",
            server.site().fill(&at_sockets("new", sockets))
        ));
    };
    reload(SOCKETS_TOO_MANY);
    server.wait_for(
        "the configuration is not taken: the worker process may not have more",
        "why",
    );
    server.wait_for("the new configuration is not served", "what follows it");
    assert_eq!(server.get("/word").text(), "old");
    reload(2);
    server.wait_for("is served now", "one that there is room for");
    assert_eq!(server.get("/word").text(), "new");
    server.forget_log();
}

#[test]
fn descriptors_that_run_out_are_taken_from_heads_that_do_not_come_to_their_end() {
    let server = Server::start_with(
        "worker_processes 1; worker_rlimit_nofile 64;",
        "server { listen 127.0.0.1:%PORT%; return 200 x; }",
    );
    let begin = |_| {
        let mut connection = server.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
        connection
    };
    let begun: Vec<_> = (0..100).map(begin).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "x");
    }
    server.wait_for("accept4() failed (24: Too many open files)", "they ran out");
    drop(begun);
    server.quit_and_forget_log();
}

#[test]
fn a_connection_to_a_server_gets_the_descriptor_of_what_idles() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = Server::start_with(
        "worker_processes 1; worker_rlimit_nofile 64;",
        &format!(
            "server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://{}; proxy_http_version 1.0; }} }}",
            origin.address()
        ),
    );
    let mut kept = Vec::new();
    for number in 0..100 {
        let mut connection = server.connect();
        connection.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(connection.reply().status, 200, "{number}");
        kept.push(connection);
    }
    server.quit_and_forget_log();
}

/// A lack of descriptors here says nothing about the servers.
#[test]
fn servers_are_not_to_blame_for_descriptors_that_run_out() {
    let directory = tempfile::tempdir().expect("a directory");
    for is_unix in [false, true] {
        let gate = Arc::new(AtomicBool::new(false));
        let name = |number| directory.path().join(format!("{number}"));
        let servers: Vec<String> = (0..2)
            .map(|number| match is_unix {
                true => gated(UnixListener::bind(name(number)).expect("a socket"), &gate),
                false => gated(TcpListener::bind("127.0.0.1:0").expect("a port"), &gate),
            })
            .collect();
        for path in [directory.path().to_owned(), name(0), name(1)] {
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            let _ = std::fs::set_permissions(path, all); // the sockets may be ports
        }
        let server = Server::start_with(
            "worker_processes 1; worker_rlimit_nofile 64;",
            &format!(
                "upstream u {{ server {}; server {}; }}
                 server {{ listen 127.0.0.1:%PORT%; http2 on; location / {{ proxy_pass http://u; }} }}",
                servers[0], servers[1]
            ),
        );
        let mut client = server.connect_http2();
        let streams: Vec<u32> = (0..80).map(|_| client.get("/")).collect();
        let told = "failed (24: Too many open files) while connecting to upstream";
        server.wait_for(told, "they ran out");
        gate.store(true, Ordering::SeqCst);
        let statuses: Vec<u16> = streams
            .iter()
            .map(|one| client.reply(*one).status)
            .collect();
        assert!(
            statuses.contains(&200) && statuses.contains(&500),
            "{statuses:?}"
        );
        assert!(
            statuses.iter().all(|status| [200, 500].contains(status)),
            "{statuses:?}"
        );
        assert_eq!(server.get("/").status, 200, "both are asked still");
        drop(client);
        server.quit_and_forget_log();
    }
}

/// A socket that accepts connections.
trait Accepts: Send + 'static {
    /// What a `server` line calls it.
    fn place(&self) -> String;
    /// The next connection.
    fn next(&self) -> Box<dyn ReadWrite>;
}

trait ReadWrite: Read + Write + Send {}

impl<T: Read + Write + Send> ReadWrite for T {}

impl Accepts for TcpListener {
    fn place(&self) -> String {
        self.local_addr().expect("an address").to_string()
    }

    fn next(&self) -> Box<dyn ReadWrite> {
        Box::new(self.accept().expect("a connection").0)
    }
}

impl Accepts for UnixListener {
    fn place(&self) -> String {
        let address = self.local_addr().expect("an address");
        format!("unix:{}", address.as_pathname().expect("a path").display())
    }

    fn next(&self) -> Box<dyn ReadWrite> {
        Box::new(self.accept().expect("a connection").0)
    }
}

/// Answers each connection when the gate has opened; returns its place.
fn gated(listener: impl Accepts, gate: &Arc<AtomicBool>) -> String {
    let (place, gate) = (listener.place(), Arc::clone(gate));
    std::thread::spawn(move || {
        loop {
            let (mut stream, gate) = (listener.next(), Arc::clone(&gate));
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                while !gate.load(Ordering::SeqCst) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
                let _ = stream.write_all(head.as_bytes());
            });
        }
    });
    place
}
