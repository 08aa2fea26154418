//! `freewheel serve DIR`: a directory over HTTP without a configuration, as a user at a terminal or a script meets it.
#![expect(clippy::unwrap_used, reason = "tests: a failure is a panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests have no event loop: blocking sockets and files"
)]

use blackbox::acme::{AcmeAuthority, Rules};
use blackbox::tls::TlsClient;
use blackbox::{Connection, PATIENCE, Site, text_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// `freewheel serve`, running; what it says goes to the file `said` of the site.
struct Serve<'a> {
    site: &'a Site,
    child: Child,
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(blackbox::binary());
    command.arg("serve").arg(directory).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Runs it to its end: status, standard output, standard error.
fn run(directory: &Path, arguments: &[&str]) -> (ExitStatus, String, String) {
    let mut command = command(directory, arguments);
    let output = command.stdout(Stdio::piped()).output().unwrap();
    (
        output.status,
        text_of(&output.stdout),
        text_of(&output.stderr),
    )
}

fn listen(site: &Site) -> String {
    format!("127.0.0.1:{}", site.port(0))
}

impl Serve<'_> {
    /// Starts, and waits until it says that it serves.
    fn start<'a>(site: &'a Site, directory: &Path, arguments: &[&str]) -> Serve<'a> {
        let said = File::create(site.path("said")).unwrap();
        let mut command = command(directory, &["--listen", &listen(site)]);
        command.env("STATE_DIRECTORY", site.path("state"));
        let child = command.args(arguments).stderr(said).spawn().unwrap();
        let serve = Serve { site, child };
        let deadline = Instant::now() + PATIENCE;
        while !serve.said().contains("Serving ") {
            assert!(Instant::now() < deadline, "{}", serve.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        serve
    }

    fn said(&self) -> String {
        text_of(&std::fs::read(self.site.path("said")).unwrap())
    }

    fn get(&self, path: &str) -> String {
        let address = (Ipv4Addr::LOCALHOST, self.site.port(0));
        let mut connection = Connection::new(TcpStream::connect(address).unwrap());
        connection.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        text_of(&connection.rest())
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(process, signal).unwrap();
    }

    /// Sends a signal and waits for the end: status and all that was said.
    fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        (status, self.said())
    }
}

impl Drop for Serve<'_> {
    fn drop(&mut self) {
        // It takes its temporary directory away.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal(Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

#[test]
fn what_it_prints_is_a_configuration_that_is_accepted() {
    let site = Site::new();
    let directory = site.path("html");
    let (status, text, _) = run(&directory, &["--print-config", "--autoindex"]);
    assert!(status.success() && text.contains("autoindex on;"), "{text}");
    assert!(text.contains(&format!("root {};", directory.display())));
    std::fs::write(site.path("printed.conf"), text).unwrap();
    let (status, said) = site.run(&["-t", "-c", "printed.conf"]);
    assert!(
        status.success() && said.contains("test is successful"),
        "{said}"
    );
}

#[test]
fn a_directory_may_have_any_name() {
    for name in [
        "sp ace",
        "do$lar",
        "qu\"o'te",
        "back\\slash",
        "semi;{}#",
        "räder",
    ] {
        let site = Site::new();
        site.file(&format!("{name}/index.html"), name);
        let directory = site.path("html").join(name);
        let serve = Serve::start(&site, &directory, &[]);
        let answer = serve.get("/");
        assert!(answer.ends_with(name), "{answer}");
        let (status, printed, said) = run(&directory, &["--print-config"]);
        assert!(status.success(), "{said}");
        std::fs::write(site.path("printed.conf"), printed).unwrap();
        let (status, said) = site.run(&["-t", "-c", "printed.conf"]);
        assert!(status.success(), "{said}");
    }
}

#[test]
fn it_says_where_it_serves_and_what_was_asked_for_and_ends_quietly() {
    let site = Site::new();
    let directory = site.path("html");
    site.file("a.md", "text");
    let serve = Serve::start(&site, &directory, &["--autoindex"]);
    assert!(serve.get("/a.md").contains("\r\n\r\ntext"));
    assert!(serve.get("/").contains("<a href=\"a.md\">a.md</a>"));
    assert!(serve.get("/missing").starts_with("HTTP/1.1 404 "));
    let (status, said) = serve.end(Signal::SIGINT);
    assert!(status.success(), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let url = format!("http://{}/", listen(&site));
    assert_eq!(
        lines[0],
        format!("Serving {} at {url}", directory.display())
    );
    assert!(
        lines[1].starts_with("Dashboard at http://127.0.0.1:"),
        "{said}"
    );
    assert!(
        lines[2].starts_with("127.0.0.1 - - [")
            && lines[2].contains("] \"GET /a.md HTTP/1.0\" 200 "),
        "{said}"
    );
    assert!(lines[4].contains("\" 404 "), "{said}");
    assert_eq!(lines.len(), 5, "{said}");
}

#[test]
fn the_dashboard_is_on_an_address_of_its_own() {
    let site = Site::new();
    let serve = Serve::start(&site, &site.path("html"), &[]);
    let deadline = Instant::now() + PATIENCE;
    let address = loop {
        let said = serve.said();
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("Dashboard at http://"));
        if let Some(address) = line {
            break address.trim_end_matches('/').to_owned();
        }
        assert!(Instant::now() < deadline, "{said}");
    };
    let ask = |path: &str, host: &str| {
        let mut connection = Connection::new(TcpStream::connect(&address).unwrap());
        connection.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ));
        text_of(&connection.rest())
    };
    assert!(ask("/", &address).contains("<title>freewheel</title>"));
    // The answers of the other address are a zone's, so that their charts are filled.
    serve.get("/");
    let zone = "freewheel_zone_requests_running{zone=\"site\"}";
    assert!(ask("/metrics", "localhost").contains(zone));
    assert!(ask("/status.json", "localhost").contains("\"freewheel_"));
    assert!(ask("/other", "localhost").starts_with("HTTP/1.1 404 "));
    // The name of another site that was made to lead here.
    assert!(ask("/", "elsewhere.example").starts_with("HTTP/1.1 421 "));
    assert!(serve.end(Signal::SIGTERM).0.success());
    let address = format!("127.0.0.2:{}", site.port(1));
    let serve = Serve::start(&site, &site.path("html"), &["--dashboard", &address]);
    let mut connection = Connection::new(TcpStream::connect(&address).unwrap());
    connection.send(format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    ));
    assert!(text_of(&connection.rest()).starts_with("HTTP/1.1 200 "));
    assert!(serve.end(Signal::SIGTERM).0.success());
    let serve = Serve::start(&site, &site.path("html"), &["--dashboard", "off"]);
    assert!(!serve.end(Signal::SIGTERM).1.contains("Dashboard"));
}

#[test]
fn without_an_index_it_says_how_to_get_a_list() {
    let site = Site::new();
    let hint = "It has no index.html; --autoindex lists what is there\n";
    let serve = Serve::start(&site, &site.path("html"), &[]);
    assert!(serve.end(Signal::SIGTERM).1.contains(hint));
    site.file("index.html", "");
    let serve = Serve::start(&site, &site.path("html"), &[]);
    assert!(!serve.end(Signal::SIGTERM).1.contains(hint));
}

#[test]
fn on_a_terminal_it_writes_lines_for_people_and_leaves_with_the_terminal() {
    let site = Site::new();
    site.file("a.txt", "text");
    let terminal = nix::pty::openpty(None, None).unwrap();
    let stderr: OwnedFd = terminal.slave;
    let mut command = command(&site.path("html"), &["--listen", &listen(&site)]);
    let child = command.stderr(stderr).spawn().unwrap();
    drop(command);
    let serve = Serve { site: &site, child };
    let mut screen = File::from(terminal.master);
    let mut seen = String::new();
    let mut read_until = |wanted: &str| {
        while !seen.contains(wanted) {
            let mut bytes = [0; 4096];
            let count = screen.read(&mut bytes).unwrap();
            seen += &text_of(&bytes[..count]);
        }
        seen.clone()
    };
    read_until("Serving ");
    serve.get("/a.txt");
    let seen = read_until("127.0.0.1\r\n");
    assert!(
        seen.contains("  200  GET /a.txt HTTP/1.0  4 bytes  "),
        "{seen}"
    );
    std::fs::write(site.path("said"), "").unwrap();
    // What a terminal sends when it is closed.
    let (status, _) = serve.end(Signal::SIGHUP);
    assert!(status.success());
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let site = Site::new();
    let file = site.file("a", "");
    let refusals = [
        (site.path("missing"), "8080", "No such file or directory"),
        (file, "8080", "is not a directory"),
        (site.path("html"), "127.0.0.1:99999", "invalid port"),
        (site.path("html"), ":8080", "no host in \":8080\""),
    ];
    for (directory, listen, sentence) in refusals {
        let (status, _, said) = run(&directory, &["--listen", listen]);
        assert_eq!(status.code(), Some(1));
        assert!(
            said.starts_with("freewheel: ") && said.contains(sentence) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn on_a_port_that_is_taken_it_does_not_say_that_it_serves() {
    let site = Site::new();
    let first = Serve::start(&site, &site.path("html"), &[]);
    let (status, _, said) = run(&site.path("html"), &["--listen", &listen(&site)]);
    assert_eq!(status.code(), Some(1));
    assert!(
        said.contains("(98: Address already in use)") && !said.contains("Serving"),
        "{said}"
    );
    drop(first);
}

#[test]
fn a_domain_has_a_certificate_by_itself_and_port_80_leads_there() {
    let site = Site::new();
    site.file("index.html", "of a domain");
    let authority = AcmeAuthority::start(Rules {
        http_port: site.port(1),
        has_terms: true,
        ..Rules::default()
    });
    let ca = site.secret("ca.crt", authority.root());
    let (uri, ca) = (authority.uri(), ca.to_string_lossy().into_owned());
    let clear = format!("127.0.0.1:{}", site.port(1));
    let serve = Serve::start(
        &site,
        &site.path("html"),
        &[
            "--domain",
            "example.test,www.example.test",
            "--email",
            "admin@example.test",
            "--acme-directory",
            &uri,
            "--acme-ca",
            &ca,
            "--listen-http",
            &clear,
            "--dashboard",
            "off",
        ],
    );
    let said = serve.said();
    assert!(
        said.contains(&format!("at https://example.test:{}/", site.port(0))),
        "{said}"
    );
    assert!(
        said.contains(
            "Its certificate comes from localhost, to whose terms of service you agree by --domain"
        ),
        "{said}"
    );
    let client = TlsClient::new(None);
    let deadline = Instant::now() + PATIENCE;
    let seen = loop {
        match client.get(site.port(0), "www.example.test", "/") {
            Ok(seen) => break seen,
            Err(error) => assert!(Instant::now() < deadline, "{error}: {}", serve.said()),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(seen.reply.text(), "of a domain");
    let mut connection = Connection::new(TcpStream::connect(&clear).unwrap());
    connection.send("GET /a?b HTTP/1.0\r\nHost: example.test\r\n\r\n");
    let redirect = text_of(&connection.rest());
    let location = format!("Location: https://example.test:{}/a?b\r\n", site.port(0));
    assert!(
        redirect.contains("301 Moved") && redirect.contains(&location),
        "{redirect}"
    );
    assert_eq!(authority.contacts()[0][0], "mailto:admin@example.test");
    let (status, said) = serve.end(Signal::SIGTERM);
    assert!(status.success(), "{said}");
}
