//! Groups of servers: which one is asked, what becomes of one that fails, connections that are kept, names that are looked up.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blackbox::{Answer, Origin, Server, is_nginx};

/// Origins that answer with their letter.
fn origins(count: u8) -> Vec<Origin> {
    let letter = |number| char::from(b'a' + number).to_string();
    let origin = |number| Origin::start(move |_| Answer::ok(letter(number)));
    (0..count).map(origin).collect()
}

/// A server that passes `/` on to `u`; `%0%`, `%1%`, … are the origins.
fn server_with(main: &str, origins: &[Origin], http: &str, location: &str) -> Server {
    let mut text = format!(
        "{http} server {{ listen 127.0.0.1:%PORT%; location / {{ {location} proxy_pass http://u; }} }}"
    );
    for (number, origin) in origins.iter().enumerate() {
        text = text.replace(&format!("%{number}%"), &origin.address());
    }
    Server::start_with(main, &text)
}

fn server(origins: &[Origin], upstream: &str) -> Server {
    server_with("", origins, &format!("upstream u {{ {upstream} }}"), "")
}

/// Who answers so many requests; `-` is an error.
fn answers(server: &Server, count: usize, path: impl Fn(usize) -> String) -> String {
    let answer = |number| {
        let reply = server.get(&path(number));
        match reply.status {
            200 => reply.text(),
            _ => "-".to_owned(),
        }
    };
    (0..count).map(answer).collect()
}

fn root(_: usize) -> String {
    "/".to_owned()
}

/// Until it holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + blackbox::PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What `error_log %DIR%/logs/other.log` has, once something has.
fn other_log(server: &Server) -> String {
    wait_until("a line is written", || {
        !server.read("logs/other.log").is_empty()
    });
    server.read("logs/other.log")
}

#[test]
fn servers_take_turns_by_their_weight() {
    let origins = origins(3);
    for (upstream, expected) in [
        ("server %0%; server %1%; server %2%;", "abcabcabc"),
        (
            "server %0% weight=5; server %1%; server %2%;",
            "aabacaaaabacaa",
        ),
        ("server %0%; server %1% down; server %2%;", "acacac"),
        ("server %0% backup; server %1%; server %2%;", "bcbcbc"),
        ("server %0% down; server %1% backup;", "bbb"),
        ("ip_hash; server %0%; server %1%; server %2%;", "ccc"),
        ("least_conn; server %0%; server %1% weight=2;", "babbab"),
    ] {
        let server = server(&origins, upstream);
        assert_eq!(
            answers(&server, expected.len(), root),
            expected,
            "{upstream}"
        );
    }
    let server = server(&origins, "hash $arg_k; server %0%; server %1%; server %2%;");
    let spread = answers(&server, 12, |number| format!("/?k={number}"));
    assert_eq!(spread, "cbcbabaaccac");
}

#[test]
fn loops_share_what_they_know_of_a_zone() {
    let origins = origins(2);
    let upstream = "upstream u { zone z 1m; server %0%; server %1%; }";
    let server = server_with("worker_processes 4;", &origins, upstream, "");
    assert_eq!(answers(&server, 20, root), "ab".repeat(10));
}

#[test]
fn a_server_that_fails_is_left_alone_for_a_while() {
    let sick = Origin::start(|_| Answer::with("500 No", "", "x"));
    let well = Origin::start(|_| Answer::ok("b"));
    let origins = [sick, well];
    let upstream = "upstream u { server %0% max_fails=2 fail_timeout=60s; server %1%; }";
    let next = "proxy_next_upstream http_500; add_header X-Tried $upstream_addr;";
    let server = server_with("", &origins, upstream, next);
    assert_eq!(answers(&server, 10, root), "b".repeat(10));
    assert_eq!(origins[0].received().len(), 2, "then it is left alone");
    assert_eq!(server.get("/").all("X-Tried"), [origins[1].address()]);
    server.wait_for("upstream server temporarily disabled", "failures");
    server.forget_log();
}

#[test]
fn without_a_server_there_is_502() {
    let origins = origins(1);
    let server = server_with(
        "",
        &origins,
        "upstream u { server %0% down; }",
        "error_log %DIR%/logs/other.log; add_header X-Tried \"$upstream_addr|$upstream_status\" always;",
    );
    let reply = server.get("/");
    assert_eq!(reply.status, 502);
    assert_eq!(reply.all("X-Tried"), ["u|502"]);
    let log = other_log(&server);
    assert!(
        log.contains("no live upstreams while connecting to upstream"),
        "{log}"
    );
}

#[test]
fn a_full_server_is_passed_over() {
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let slow = Origin::start(move |_| {
        wait_until("the gate opens", || open.load(Ordering::SeqCst));
        Answer::ok("a")
    });
    let well = Origin::start(|_| Answer::ok("b"));
    let origins = [slow, well];
    let server = server(&origins, "zone z 1m; server %0% max_conns=1; server %1%;");
    let mut first = server.connect();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origins[0].wait(1);
    assert_eq!(answers(&server, 5, root), "bbbbb");
    gate.store(true, Ordering::SeqCst);
    assert_eq!(first.reply().text(), "a");
    let later = answers(&server, 4, root);
    assert!(later.contains("ab"), "{later}");
}

#[test]
fn a_client_that_leaves_gives_the_place_back() {
    let origins = [Origin::start(|request| match request.target() {
        "/never" => Answer::Talk(Box::new(|stream| {
            std::thread::sleep(Duration::from_secs(60));
            drop(stream);
        })),
        _ => Answer::ok("a"),
    })];
    let log = "error_log %DIR%/logs/other.log;";
    let upstream = "upstream u { zone z 1m; server %0% max_conns=1; }";
    let server = server_with("", &origins, upstream, log);
    for round in 1..4 {
        let mut client = server.connect();
        client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("it is asked", || {
            let received = origins[0].received();
            received
                .iter()
                .filter(|one| one.target() == "/never")
                .count()
                == round
        });
        assert_eq!(server.get("/").status, 502, "it is full");
        drop(client);
        wait_until("there is place", || server.get("/").status == 200);
    }
}

#[test]
fn connections_are_kept_within_their_limits() {
    for (keepalive, requests, connections) in [
        ("keepalive 2;", 6, 1),
        ("keepalive 2; keepalive_requests 2;", 6, 3),
        ("keepalive 0;", 3, 3),
        ("", 4, 1),
    ] {
        let origins = origins(1);
        let server = server(&origins, &format!("server %0%; {keepalive}"));
        for _ in 0..requests {
            assert_eq!(server.get("/").status, 200);
            // What is kept is kept once the answer has gone out.
            std::thread::sleep(Duration::from_millis(50));
        }
        let seen = origins[0].wait(requests);
        let last = seen.iter().map(|one| one.connection).max().unwrap();
        assert_eq!(last + 1, connections, "{keepalive}");
    }
}

#[test]
fn a_connection_that_idles_too_long_is_closed() {
    let (sender, closed) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    let origin = Origin::start(move |_| {
        let sender = sender.lock().unwrap().clone();
        Answer::Talk(Box::new(move |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
            let end = stream.read(&mut [0; 16]);
            let _ = sender.send(end.is_ok_and(|len| len == 0));
        }))
    });
    let server = server(
        &[origin],
        "server %0%; keepalive 2; keepalive_timeout 100ms;",
    );
    assert_eq!(server.get("/").text(), "a");
    assert_eq!(closed.recv_timeout(blackbox::PATIENCE), Ok(true));
}

#[test]
fn a_kept_connection_that_died_costs_nobody_his_answer() {
    // Closes each connection after its first answer, without saying so before.
    let origin = Origin::start(|_| {
        Answer::Talk(Box::new(|mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
            std::thread::sleep(Duration::from_millis(2));
        }))
    });
    let server = server(&[origin], "server %0%; keepalive 4;");
    assert_eq!(answers(&server, 30, root), "a".repeat(30));
}

#[test]
fn unix_sockets_are_servers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nu");
        }
    });
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), all.clone()).unwrap();
        std::fs::set_permissions(&path, all).unwrap();
    }
    let path = path.to_str().unwrap();
    let server = server_with(
        "",
        &[],
        &format!("upstream u {{ server unix:{path}; }}"),
        "add_header X-Tried $upstream_addr always; error_log %DIR%/logs/other.log;",
    );
    let reply = server.get("/");
    assert_eq!((reply.status, reply.text()), (200, "u".into()));
    assert_eq!(reply.all("X-Tried"), [format!("unix:{path}")]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(server.get("/").status, 502);
    let log = other_log(&server);
    let said = format!("connect() to unix:{path} failed (2: No such file or directory)");
    assert!(log.contains(&said) && log.contains("[crit]"), "{log}");
}

#[test]
fn a_session_stays_at_its_server() {
    let origins = origins(3);
    let upstream = "server %0% route=ra; server %1% route=rb; server %2% route=rc;";
    let server = server(
        &origins,
        &format!(
            "{upstream} sticky cookie s domain=.a.test path=/p expires=max httponly secure samesite=lax;"
        ),
    );
    let reply = server.get("/");
    assert_eq!(reply.text(), "a");
    assert_eq!(
        reply.all("Set-Cookie"),
        [
            "s=ra; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000; domain=.a.test; httponly; secure; samesite=lax; path=/p"
        ]
    );
    for _ in 0..4 {
        assert_eq!(server.get_with("/", "Cookie: s=rc\r\n").text(), "c");
    }
    assert_ne!(server.get_with("/", "Cookie: s=none\r\n").text(), "");
}

#[test]
fn whatever_answers_has_the_cookie_of_the_server_that_was_asked() {
    let origin = Origin::start(|request| match request.target() {
        "/none" => Answer::with("404 Not Found", "", ""),
        "/elsewhere" => Answer::with("200 OK", "X-Accel-Redirect: /page\r\n", ""),
        _ => Answer::ok("live"),
    });
    let server = Server::start(&format!(
        "upstream dead {{ server 127.0.0.1:%PORT1% max_fails=0; sticky cookie dead; }}
         upstream live {{ server {}; sticky cookie live; }}
         server {{ listen 127.0.0.1:%PORT%; error_page 404 /page;
             location / {{ proxy_pass http://live; }}
             location /none {{ proxy_intercept_errors on; proxy_pass http://live; }}
             location = /page {{ return 200 page; }}
             location /dead/ {{ proxy_pass http://dead; }}
             location /dead/page {{ error_page 502 /page; proxy_pass http://dead; }}
             location /dead/other {{ error_page 502 = @live; proxy_pass http://dead; }}
             location @live {{ proxy_pass http://live; }} }}",
        origin.address()
    ));
    for (path, status, body, cookies) in [
        ("/", 200, "live", &["live="][..]),
        ("/none", 404, "page", &["live="]),
        ("/elsewhere", 200, "page", &["live="]),
        ("/dead/", 502, "", &["dead="]),
        ("/dead/page", 502, "page", &["dead="]),
        // A browser keeps the last one of a name.
        ("/dead/other", 200, "live", &["dead=", "live="]),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, status, "{path}");
        assert!(body.is_empty() || reply.text() == body, "{path}");
        let set = reply.all("set-cookie");
        assert_eq!(set.len(), cookies.len(), "{path}: {set:?}");
        for (set, name) in set.iter().zip(cookies) {
            assert!(set.starts_with(name), "{path}: {set}");
        }
    }
    server.forget_log();
}

#[test]
fn sessions_are_learned_from_answers() {
    let origin = |name: &'static str| {
        Origin::start(move |request| match request.target() {
            "/login" => Answer::with(
                "200 OK",
                &format!("Set-Cookie: id={name}1; path=/\r\n"),
                name,
            ),
            _ => Answer::ok(name),
        })
    };
    let origins = [origin("a"), origin("b"), origin("c")];
    let server = server(
        &origins,
        "server %0%; server %1%; server %2%;
         sticky learn create=$upstream_cookie_id lookup=$cookie_id zone=sessions:1m;",
    );
    assert_eq!(answers(&server, 2, |_| "/login".into()), "ab");
    for (cookie, expected) in [
        ("id=b1", "b"),
        ("id=a1", "a"),
        ("id=b1", "b"),
        ("id=b1", "b"),
    ] {
        assert_eq!(
            server
                .get_with("/", &format!("Cookie: {cookie}\r\n"))
                .text(),
            expected
        );
    }
}

/// A name server: `x.test` leads to 127.0.0.1, unless told otherwise; anything else is not found.
pub(crate) struct NameServer {
    pub(crate) port: u16,
    /// The last number of the address; 0: not found; 255: no answer as long as it is so.
    last: Arc<AtomicU8>,
}

pub(crate) fn name_server() -> NameServer {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let port = socket.local_addr().expect("it is bound").port();
    let last = Arc::new(AtomicU8::new(1));
    let told = Arc::clone(&last);
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let mut answer = buffer[..len].to_vec();
            answer[2] = 0x81;
            let is_known = buffer[12..len].starts_with(b"\x01x\x04test\x00");
            let mut last = told.load(Ordering::SeqCst);
            while last == 255 {
                std::thread::sleep(Duration::from_millis(10));
                last = told.load(Ordering::SeqCst);
            }
            let is_a = buffer[..len].ends_with(&[0, 1, 0, 1]);
            if !is_known || last == 0 {
                answer[3] = 3;
            } else if is_a {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 127, 0, 0, last]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    NameServer { port, last }
}

#[test]
fn names_made_of_variables_are_resolved() {
    let (origins, names) = (origins(1), name_server());
    let port = origins[0].port();
    let server = server_with(
        "",
        &origins,
        &format!("resolver 127.0.0.1:{} valid=60s; upstream u {{ server %0%; }}", names.port),
        &format!(
            "add_header X-Tried $upstream_addr always; error_log %DIR%/logs/other.log;
             proxy_pass http://$arg_n:{port}; }} location /u {{ proxy_pass http://u; }} location /none {{"
        ),
    );
    let reply = server.get("/?n=x.test");
    assert_eq!((reply.status, reply.text()), (200, "a".into()));
    assert_eq!(reply.all("X-Tried"), [format!("127.0.0.1:{port}")]);
    assert_eq!(server.get("/?n=127.0.0.1").status, 200);
    assert_eq!(server.get("/?n=gone.test").status, 502);
    let log = other_log(&server);
    assert!(
        log.contains("gone.test could not be resolved (3: Host not found)"),
        "{log}"
    );
    names.last.store(0, Ordering::SeqCst);
    assert_eq!(server.get("/?n=X.test").status, 200, "it is known");
}

#[test]
fn what_is_updated_behind_a_client_looks_the_name_up_behind_him_too() {
    let (origins, names) = (origins(1), name_server());
    let port = origins[0].port();
    let server = server_with(
        "",
        &origins,
        &format!(
            "resolver 127.0.0.1:{} valid=1s; upstream u {{ server %0%; }}
             proxy_cache_path %DIR%/cache keys_zone=c:1m;",
            names.port
        ),
        &format!(
            "proxy_cache c; proxy_cache_key $uri; proxy_cache_valid 200 1s; add_header X-Cache $upstream_cache_status always;
             proxy_cache_use_stale updating; proxy_cache_background_update on; resolver_timeout 1h;
             proxy_pass http://$arg_n:{port}; }} location /u {{"
        ),
    );
    let cache = |path: &str| {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.text()), (200, "a".into()));
        reply.all("X-Cache").concat()
    };
    wait_until("it is stored", || cache("/?n=x.test") == "HIT");
    names.last.store(255, Ordering::SeqCst);
    wait_until("it is stale, and looked for where nobody answers", || {
        cache("/?n=y.test") == "STALE"
    });
    assert_eq!(cache("/?n=y.test"), "UPDATING");
    // So that it ends.
    names.last.store(1, Ordering::SeqCst);
}

#[test]
fn servers_come_and_go_with_their_names() {
    let (origins, names) = (origins(1), name_server());
    let port = origins[0].port();
    let server = server_with(
        "",
        &origins,
        &format!(
            "resolver 127.0.0.1:{} valid=1s; upstream u {{ zone z 1m; server x.test:{port} resolve; }}",
            names.port
        ),
        "proxy_connect_timeout 1s; add_header X-Tried $upstream_addr always; error_log %DIR%/logs/other.log;",
    );
    let tried = || server.get("/").all("X-Tried").join(" ");
    wait_until("the name is resolved", || server.get("/").status == 200);
    assert_eq!(tried(), format!("127.0.0.1:{port}"));
    names.last.store(2, Ordering::SeqCst);
    wait_until("it has another address", || {
        tried() == format!("127.0.0.2:{port}")
    });
    names.last.store(0, Ordering::SeqCst);
    wait_until("it is gone", || tried() == "u");
    names.last.store(1, Ordering::SeqCst);
    // A name that is not found is asked for again after `valid`.
    wait_until("it is back", || server.get("/").status == 200);
    server.forget_log();
}

#[test]
fn a_reload_loses_no_request() {
    let origins = origins(2);
    let text = |weight: u32| {
        format!(
            "upstream u {{ zone z 1m; server {} weight={weight}; server {}; keepalive 8; }}
             server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://u; }} }}",
            origins[0].address(),
            origins[1].address()
        )
    };
    let server = Server::start_with("worker_processes 2;", &text(1));
    let (is_over, count) = (AtomicBool::new(false), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(server.get("/").status, 200);
                    *count.lock().unwrap() += 1;
                }
            });
        }
        for weight in [1, 2, 3, 1] {
            server.reload(&text(weight));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(*count.lock().unwrap() > 0);
}

#[test]
fn a_reload_keeps_idle_connections() {
    if is_nginx() {
        return; // its new worker begins with none
    }
    let origins = origins(1);
    let text = format!(
        "upstream u {{ server {}; keepalive 8; }}
         server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://u; }} }}",
        origins[0].address()
    );
    let server = Server::start(&text);
    assert_eq!(server.get("/").status, 200);
    server.reload(&text);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(origins[0].wait(2).last().unwrap().connection, 0);
}

/// A request that began before a reload keeps its connection by the limits that hold now.
#[test]
fn a_connection_that_ends_its_request_behind_a_reload_has_the_new_limits() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let text = |keepalive: u32| {
        format!(
            "upstream u {{ server {address}; keepalive {keepalive}; keepalive_timeout 1h; }}
             server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://u; }}
                location /now {{ return 200 {keepalive}; }} }}"
        )
    };
    let server = Server::start_with("", &text(4));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (mut stream, _) = listener.accept().expect("it is asked");
    let patience = stream.set_read_timeout(Some(blackbox::PATIENCE));
    patience.expect("a time that is not 0");
    assert!(stream.read(&mut [0; 4096]).expect("a request") > 0);
    server.reload_file(&format!(
        "daemon off; pid nginx.pid; error_log logs/error.log info; events {{}} http {{ {} }}",
        text(0)
    ));
    let is_new = || (server.get("/now").text() == "0").then_some(());
    blackbox::until("the new configuration", blackbox::PATIENCE, is_new);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    stream.write_all(answer).expect("it is read");
    assert_eq!(client.reply().text(), "x");
    assert_eq!(stream.read(&mut [0; 1]).expect("its end"), 0);
}
