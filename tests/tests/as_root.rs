//! The server as it is installed: started by root, with files and directories of root, serving as `nobody`. What the master may and the
//! worker may not, in every kind of context. Skipped, with a word, where the tests are not run by root.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use blackbox::slow::{HELD_MAX, Source, body, slow, whole};
use blackbox::{Answer, Connection, Origin, PATIENCE, Port, Server, Site};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};

/// Unless `user` says otherwise the worker is `nobody`.
const AS_NOBODY: &str = "worker_processes 2;";

fn nobody() -> Uid {
    User::from_name("nobody").unwrap().unwrap().uid
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    blackbox::until(what, PATIENCE, || is_so().then_some(()));
}

/// Lets the worker's user have a directory.
fn give(site: &Site, name: &str) {
    let path = site.path(name);
    std::fs::create_dir_all(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(nobody().as_raw()), None).unwrap();
}

fn workers(server: &Server) -> Vec<String> {
    let pid = server.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_worker_is_nobody() {
    let Some(site) = Site::of_root() else { return };
    let server = Server::start_on(
        site,
        AS_NOBODY,
        "server { listen 127.0.0.1:%PORT%; return 200 $pid; }",
    );
    let pid = server.get("/").text();
    assert!(workers(&server).contains(&pid));
    assert_eq!(
        std::fs::metadata(format!("/proc/{pid}")).unwrap().uid(),
        nobody().as_raw()
    );
}

#[test]
fn a_server_without_listen_is_served_at_port_80() {
    let Some(site) = Site::of_root() else { return };
    let Some(port) = Port::exactly(80) else {
        println!("skipped: port 80 is somebody else's");
        return;
    };
    let server = Server::start_on(
        site,
        AS_NOBODY,
        "server { return 200 \"none $server_port\"; }
         server { listen 127.0.0.1:%PORT%; return 200 other; }
         server { server_name named; return 200 named; }",
    );
    let ask = |host: &str| {
        let stream = TcpStream::connect(("127.0.0.1", port.number())).unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        Connection::new(stream).send(request).reply().text()
    };
    assert_eq!(
        (ask("a"), ask("named")),
        ("none 80".to_owned(), "named".to_owned())
    );
    assert_eq!(server.get("/").text(), "other");
    server.reload_with(AS_NOBODY, "server { return 200 again; }");
    assert_eq!(ask("a"), "again");
}

/// A name that stands in a file which only root may read.
#[test]
fn names_lead_where_they_led_the_master() {
    let Some(site) = Site::of_root() else { return };
    site.secret("hosts", "127.0.0.1 localhost of-root.test\n");
    let in_namespace = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        "mount --bind %DIR%/hosts /etc/hosts && exec \"$@\"",
        "sh",
    ];
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("skipped: there is no unshare(1), or it is not allowed");
        return;
    }
    let origin = Origin::start(|_| Answer::ok("of the origin"));
    let port = origin.port();
    let server = Server::start_on(
        site.run_by(&in_namespace),
        AS_NOBODY,
        &format!(
            "upstream u {{ server of-root.test:{port}; }}
             error_log syslog:server=of-root.test:%PORT3% crit;
             server {{ listen of-root.test:%PORT%; set_real_ip_from of-root.test;
               location / {{ return 200 listening; }}
               location /u/ {{ proxy_pass http://u; }} location /p/ {{ proxy_pass http://of-root.test:{port}; }}
               location /f/ {{ fastcgi_pass of-root.test:%PORT2%; }} }}"
        ),
    );
    assert_eq!(server.get("/").text(), "listening");
    for path in ["/u/", "/p/"] {
        assert_eq!(server.get(path).text(), "of the origin", "{path}");
    }
    assert_eq!(server.get("/f/").status, 502, "nobody listens there");
    std::fs::write(server.site().path("logs/error.log"), "").unwrap();
}

#[test]
fn texts_that_only_root_may_read_are_read() {
    let Some(site) = Site::of_root() else { return };
    site.secret("server.conf", "include %DIR%/inner.conf;");
    site.secret(
        "inner.conf",
        "location / { return 200 \"$mapped $placed $default_type_\"; } location /file { types { include %DIR%/types; } }",
    );
    site.secret("map", "a mapped;\n");
    site.secret("geo", "127.0.0.0/8 here;\n");
    site.secret("types", "text/of-root html;\n");
    site.file("file.html", "x");
    let text = "map $arg_a $mapped { include %DIR%/map; } geo $placed { include %DIR%/geo; }
         map $host $default_type_ { default d; }
         server { listen 127.0.0.1:%PORT%; include %DIR%/server.conf; }";
    let server = Server::start_on(site, AS_NOBODY, text);
    let look = || {
        assert_eq!(server.get("/?a=a").text(), "mapped here d");
        let file = server.get("/file.html");
        assert_eq!(file.header("content-type"), Some("text/of-root"));
    };
    look();
    server.reload_with(AS_NOBODY, text);
    look();
    // A worker that is started later has nothing but the bundle.
    for worker in workers(&server) {
        let worker = nix::unistd::Pid::from_raw(worker.parse().unwrap());
        nix::sys::signal::kill(worker, Signal::SIGKILL).unwrap();
    }
    look();
    server.forget_log();
}

#[test]
fn logs_of_every_level_lie_where_only_root_may_write() {
    let Some(site) = Site::of_root() else { return };
    let server = Server::start_on(
        site,
        AS_NOBODY,
        "log_format short $uri; error_log logs/http.log info; access_log logs/access.log short;
         server { listen 127.0.0.1:%PORT%; error_log logs/server.log info; access_log logs/server-access.log short;
           location / { return 204; }
           location /in/ { error_log logs/location.log info; access_log logs/in.log short buffer=1k flush=1s; }
           location /zip/ { access_log logs/zip.gz short gzip=1 flush=1s; return 204; } }
         server { listen 127.0.0.1:%PORT1%; location / { return 204; } }",
    );
    let all = [
        "error.log",
        "http.log",
        "access.log",
        "server.log",
        "server-access.log",
        "location.log",
        "in.log",
        "zip.gz",
    ];
    let path = |name: &str| server.site().path("logs").join(name);
    let ask_all = || {
        server.get("/a");
        server.get("/in/missing");
        server.get("/zip/");
        let other = "GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        server.connect_to(1).send(other).reply();
    };
    let has_text = |name: &str, text: &str| server.read(&format!("logs/{name}")).contains(text);
    let wait_for_all = || {
        until("the lines", || {
            has_text("server-access.log", "/a")
                && has_text("access.log", "/b")
                && has_text("in.log", "/in/missing")
                && has_text("location.log", "/in/missing\" failed (2:")
                && path("zip.gz").metadata().is_ok_and(|file| file.len() > 0)
        });
    };
    ask_all();
    wait_for_all();
    for name in all {
        let file = path(name).metadata().unwrap();
        assert_eq!((file.uid(), file.mode() & 0o777), (0, 0o644), "{name}");
        std::fs::rename(path(name), path(&format!("{name}.old"))).unwrap();
    }
    server.signal(Signal::SIGUSR1);
    until("all logs anew", || {
        all.iter().all(|name| path(name).exists())
    });
    // The worker is told behind it.
    until("lines in the new ones", || {
        server.get("/a");
        has_text("server-access.log", "/a")
    });
    ask_all();
    wait_for_all();
}

#[test]
fn caches_and_temporary_files_are_the_workers() {
    let Some(site) = Site::of_root() else { return };
    let origin = Origin::start(|request| match request.target() {
        "/large" => Answer::ok("l".repeat(300_000)),
        _ => Answer::ok("small"),
    });
    let address = origin.address();
    let server = Server::start_on(
        site,
        AS_NOBODY,
        &format!(
            "proxy_cache_path %DIR%/cache levels=1:2 keys_zone=c:1m; proxy_temp_path %DIR%/proxy_temp 1 2;
             client_body_temp_path %DIR%/bodies 1; client_body_buffer_size 1k; client_max_body_size 10m;
             fastcgi_temp_path %DIR%/fastcgi_temp; uwsgi_temp_path %DIR%/uwsgi_temp; scgi_temp_path %DIR%/scgi_temp;
             server {{ listen 127.0.0.1:%PORT%; proxy_cache_valid 1h; add_header X-Cache $upstream_cache_status;
               location / {{ proxy_cache c; proxy_pass http://{address}; }}
               location /pass/ {{ proxy_pass http://{address}; }} }}"
        ),
    );
    for path in ["/small", "/large"] {
        let first = server.get(path).text();
        until("a hit", || {
            let again = server.get(path);
            assert_eq!(again.text(), first);
            again.header("x-cache") == Some("HIT")
        });
    }
    let body = "b".repeat(100_000);
    let length = body.len();
    let head = format!(
        "POST /pass/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    let reply = server.connect().send(head + &body).reply();
    assert_eq!(reply.text(), "small");
    assert_eq!(origin.last().body.len(), length);
    for name in [
        "cache",
        "proxy_temp",
        "bodies",
        "fastcgi_temp",
        "uwsgi_temp",
        "scgi_temp",
    ] {
        let made = server.site().path(name).metadata().unwrap();
        assert_eq!(
            (made.uid(), made.mode() & 0o777),
            (nobody().as_raw(), 0o700),
            "{name}"
        );
    }
}

#[test]
fn what_the_worker_reads_and_writes_for_requests_it_does_as_nobody() {
    let Some(site) = Site::of_root() else { return };
    give(&site, "html/own");
    give(&site, "stored");
    site.file("page.html", "<!--#include virtual=\"/part.html\" -->");
    site.file("part.html", "part");
    site.secret("html/secret", "s");
    let users = site.secret("users", "u:{PLAIN}p\n");
    let hidden = site.secret("hidden-users", "u:{PLAIN}p\n");
    std::fs::set_permissions(&users, Permissions::from_mode(0o644)).unwrap();
    let origin = Origin::start(|_| Answer::ok("of the origin"));
    let address = origin.address();
    let hidden = hidden.display();
    let server = Server::start_on(
        site,
        AS_NOBODY,
        &format!(
            "limit_req_zone $binary_remote_addr zone=l:1m rate=1000r/s; client_body_temp_path %DIR%/bodies;
             server {{ listen 127.0.0.1:%PORT%; location / {{ ssi on; limit_req zone=l burst=100; mirror /mirror; }}
               location = /mirror {{ internal; proxy_pass http://{address}; }}
               location /own/ {{ dav_methods PUT DELETE; }} location /roots/ {{ dav_methods PUT; alias %DIR%/html/; }}
               location /auth {{ auth_basic a; auth_basic_user_file %DIR%/users; try_files /part.html =404; }}
               location /hidden {{ auth_basic a; auth_basic_user_file {hidden}; }}
               location /store/ {{ alias %DIR%/stored/; proxy_store on; proxy_pass http://{address}; }} }}
             server {{ listen unix:%DIR%/socket; return 200 unix; }}"
        ),
    );
    let put = |path: &str| {
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nput"
        );
        server.connect().send(request).reply().status
    };
    assert_eq!(server.get("/page.html").text(), "part");
    origin.wait(1);
    assert_eq!(server.get("/secret").status, 403);
    assert_eq!(put("/own/file"), 201);
    let made = server.site().path("html/own/file").metadata().unwrap();
    assert_eq!(made.uid(), nobody().as_raw());
    assert_eq!(put("/roots/file"), 500);
    assert_eq!(server.get("/auth").status, 401);
    let known = "Authorization: Basic dTpw\r\n";
    assert_eq!(server.get_with("/auth", known).text(), "part");
    assert_eq!(server.get_with("/hidden", known).status, 500);
    assert_eq!(server.get("/store/file").text(), "of the origin");
    until("the stored file", || {
        server.read("stored/file") == "of the origin"
    });
    let socket = server.site().path("socket");
    assert_eq!(socket.metadata().unwrap().mode() & 0o777, 0o666);
    assert!(ask_unix(&socket).ends_with("unix"));
    server.forget_log();
}

fn ask_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A site whose logs' directory is the worker's user's, as Debian has it, and a file that is not.
fn with_given_logs() -> Option<Site> {
    let site = Site::of_root()?;
    give(&site, "logs");
    site.secret("victim", "v");
    Some(site)
}

fn link(site: &Site, name: &str, to: &Path) {
    let path = site.path(name);
    let _ = std::fs::remove_file(&path);
    std::os::unix::fs::symlink(to, &path).unwrap();
    nix::unistd::fchownat(
        nix::fcntl::AT_FDCWD,
        &path,
        Some(nobody()),
        None,
        nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW,
    )
    .unwrap();
}

const PLAIN: &str = "server { listen 127.0.0.1:%PORT%; return 204; }";

#[test]
fn logs_that_the_worker_could_have_replaced_are_not_followed_when_opened_anew() {
    let Some(site) = with_given_logs() else {
        return;
    };
    let server = Server::start_on(site, AS_NOBODY, PLAIN);
    let site = server.site();
    let victim = site.path("victim");
    let refused = |text: &str| {
        server.signal(Signal::SIGUSR1);
        server.wait_for(text, "the reason");
        server.get("/");
        assert_eq!(server.read("victim"), "v");
    };
    link(site, "logs/access.log", &victim);
    refused("is a symbolic link in a directory that is not root's alone");
    std::fs::remove_file(site.path("logs/access.log")).unwrap();
    std::fs::hard_link(&victim, site.path("logs/access.log")).unwrap();
    refused("it has another name (a hard link)");
    std::fs::remove_file(site.path("logs/access.log")).unwrap();
    // A pipe that nobody reads keeps the master from nothing.
    let permissions = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::unistd::mkfifo(&site.path("logs/access.log"), permissions).unwrap();
    refused("(6: No such device or address)");
    std::fs::remove_file(site.path("logs/access.log")).unwrap();
    // And so is a directory in between.
    std::fs::create_dir(site.path("elsewhere")).unwrap();
    std::fs::rename(site.path("logs"), site.path("kept")).unwrap();
    std::fs::create_dir(site.path("logs")).unwrap();
    give(site, "logs/given");
    link(site, "logs/given/in", &site.path("elsewhere"));
    let text = format!("{PLAIN} access_log logs/given/in/log;");
    let log = "daemon off; pid nginx.pid; error_log kept/error.log info; events { }";
    server.reload_file(&format!("{log} http {{ {text} }}"));
    until("the reason", || {
        let log = server.read("kept/error.log");
        log.matches("is a symbolic link").count() == 2
    });
    assert!(!site.path("elsewhere/log").exists());
    std::fs::remove_dir_all(site.path("logs")).unwrap();
    std::fs::rename(site.path("kept"), site.path("logs")).unwrap();
    server.forget_log();
}

#[test]
fn a_start_and_a_test_follow_no_link_of_the_worker() {
    let Some(site) = with_given_logs() else {
        return;
    };
    let victim = site.path("victim");
    let text = "daemon off; pid %DIR%/logs/nginx.pid; error_log %DIR%/error.log; events { }
         http { access_log logs/access.log; server { listen 127.0.0.1:%PORT%; } }";
    site.configure(text);
    for name in ["logs/access.log", "logs/nginx.pid", "logs/error.log"] {
        link(&site, name, &victim);
        for arguments in [&["-t"][..], &[]] {
            if name == "logs/error.log" && arguments.is_empty() {
                // That of `-e` alone is no reason not to start.
                continue;
            }
            let (status, said) = site.run(arguments);
            assert!(
                said.contains("is a symbolic link in a directory that is not root's alone"),
                "{said}"
            );
            assert_eq!(status.success(), name == "logs/error.log", "{said}");
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "v", "{name}");
        std::fs::remove_file(site.path(name)).unwrap();
    }
}

#[test]
fn links_that_are_roots_word_are_followed_and_streams_are_streams() {
    let Some(site) = with_given_logs() else {
        return;
    };
    let link_of_root = |name: &str, to: &Path| {
        std::os::unix::fs::symlink(to, site.path(name)).unwrap();
    };
    link_of_root("log", &site.path("html/log"));
    link_of_root("logs/stream", Path::new("/dev/stderr"));
    let server = Server::start_on(
        site,
        AS_NOBODY,
        "server { listen 127.0.0.1:%PORT%; location / { access_log %DIR%/log; return 204; }
           location /stream { access_log logs/stream; return 204; } }",
    );
    server.get("/followed");
    server.get("/stream");
    until("both lines", || {
        server.read("html/log").contains("/followed") && server.read("stderr").contains("/stream")
    });
}

#[test]
fn a_directory_of_root_that_a_link_leads_to_is_not_given_away() {
    let Some(site) = with_given_logs() else {
        return;
    };
    std::fs::create_dir(site.path("of-root")).unwrap();
    give(&site, "given");
    let of_root = site.path("of-root");
    std::os::unix::fs::symlink(&of_root, site.path("cache")).unwrap();
    link(&site, "logs/cache", &of_root);
    for (place, why) in [
        (
            "cache",
            "is a link to a directory of root, which is not given to \"nobody\"",
        ),
        (
            "logs/cache",
            "is a symbolic link in a directory that is not root's alone",
        ),
    ] {
        for line in [
            "proxy_cache_path %PLACE% keys_zone=c:1m;",
            "client_body_temp_path %PLACE%;",
        ] {
            let line = line.replace("%PLACE%", place);
            site.configure(&format!(
                "daemon off; pid nginx.pid; events {{ }} http {{ {line} server {{ listen 127.0.0.1:%PORT%; }} }}"
            ));
            for arguments in [&["-t"][..], &[]] {
                let (status, said) = site.run(arguments);
                assert!(said.contains(why) && !status.success(), "{line} {said}");
                assert_eq!(of_root.metadata().unwrap().uid(), 0, "{line}");
            }
        }
    }
    std::fs::remove_file(site.path("cache")).unwrap();
    std::os::unix::fs::symlink(site.path("given"), site.path("cache")).unwrap();
    let lines = format!("proxy_cache_path cache keys_zone=c:1m; {PLAIN}");
    let server = Server::start_on(site, AS_NOBODY, &lines);
    server.forget_log();
    assert_eq!(server.get("/").status, 204);
}

#[test]
fn a_disk_of_temporary_files_that_is_full_or_read_only_loses_nothing() {
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("skipped: there is no unshare(1), or it is not allowed");
        return;
    }
    for (is_full, errno) in [
        (true, "(28: No space left on device)"),
        (false, "(30: Read-only file system)"),
    ] {
        let Some(site) = Site::of_root() else { return };
        std::fs::create_dir(site.path("disk")).unwrap();
        let disk = site.path("disk");
        let script = "mount -t tmpfs -o size=256k tmpfs %DIR%/disk && exec \"$@\"";
        let body = body();
        let source = Source::of(&body);
        let server = Server::start_on(
            site.run_by(&["unshare", "--mount", "sh", "-c", script, "sh"]),
            AS_NOBODY,
            &format!(
                "server {{ listen 127.0.0.1:%PORT% sndbuf=16k; proxy_socket_rcvbuf 16k;
                   proxy_temp_path %DIR%/disk/temporary; location /small {{ return 200 small; }}
                   location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
                source.port
            ),
        );
        if !is_full {
            let mounts = format!("--mount=/proc/{}/ns/mnt", server.pid());
            let told = Command::new("nsenter")
                .args([&mounts, "mount", "-o", "remount,ro"])
                .arg(&disk)
                .status();
            assert!(told.unwrap().success());
        }
        let mut clients: Vec<Connection> = (0..4).map(|_| slow(&server, "/")).collect();
        let taken = source.held_at();
        assert!(taken < 4 * HELD_MAX, "{taken} bytes taken");
        assert_eq!(server.get("/small").text(), "small");
        for client in &mut clients {
            assert!(whole(client).body == body, "{errno}");
        }
        let log = server.error_log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("[crit]")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains(errno), "{log}");
        assert!(
            lines[0].contains("so the server waits for the client"),
            "{log}"
        );
        server.forget_log();
    }
}

#[test]
fn without_dev_null_a_daemon_says_what_is_missing() {
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("skipped: there is no unshare(1), or it is not allowed");
        return;
    }
    let script = "mount -t tmpfs tmpfs /dev && exec \"$@\"";
    let site = Site::new().run_by(&["unshare", "--mount", "sh", "-c", script, "sh"]);
    site.configure("pid nginx.pid; events { } http { server { listen 127.0.0.1:%PORT%; } }");
    let (status, said) = site.run(&[]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains("[emerg] open(\"/dev/null\") failed (2: No such file or directory)"),
        "{said}"
    );
}
