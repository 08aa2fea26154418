//! `auth_basic`: who knows a password of a file may pass.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they may look at files"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use blackbox::{Reply, Server, Site, is_nginx};

/// The password is the name with `-secret` behind it.
const USERS: &str = "# comment:\n\
    des:ab9HqKX6eRv9c\n\
    md5:$1$salt$luhzvqMyPyM849q1YfAZj.\r\n\
    apr1:$apr1$salt$FsjEd8xgPoTQKjWKEzmjm0:a remark\n\
    sha256:$5$rounds=1000$salt$MGL4GwfG49p27ns3l7OZqOVTgt0zJ59h6IfO9xilyT4\n\
    sha512:$6$rounds=1000$salt$a1T0ZN9nvYeebvWaVd9yYkeb0vYDYGZ5IaLctfk6c92DfQLpfZELzJTr3ZqZiH.7maUSTOJIc1B5GXyORDwEq.\n\
    bcrypt:$2y$04$abcdefghijklmnopqrstuukIPMvMTJviSj4tZSaBERVEVDHY8sM3q\n\
    plain:{PLAIN}plain-secret\n\
    sha:{SHA}KkPcK3XYeA35EhWhKYmaCyAgadY=\n\
    ssha:{SSHA}nwMg0Lvq3tXJ/jaC33I8XrFhMztzYWx0\n\
    broken:$apr1$\n\
    broken2:{SSHA}!\n\
    broken3:x\n\
    empty:\n\
    last:{PLAIN}last-secret";

fn base64(text: &str) -> String {
    message::base64::encode(text.as_bytes())
}

fn ask(server: &Server, path: &str, user: &str, password: &str) -> Reply {
    let said = base64(&format!("{user}:{password}"));
    server.get_with(path, &format!("Authorization: Basic {said}\r\n"))
}

fn status(server: &Server, path: &str, user: &str) -> u16 {
    ask(server, path, user, &format!("{user}-secret")).status
}

#[test]
fn passwords_in_all_forms() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; auth_basic \"closed $arg_x\"; auth_basic_user_file html/users;
             location / { try_files /none =410; } location /open { auth_basic off; try_files /none =410; } }",
    );
    server.file("users", USERS);
    let users = [
        "des", "md5", "apr1", "sha256", "sha512", "bcrypt", "plain", "sha", "ssha", "last",
    ];
    for user in users {
        // Twice, since the second time the answer is known.
        assert_eq!(status(&server, "/", user), 410, "{user}");
        assert_eq!(status(&server, "/", user), 410, "{user}");
        let other = ask(&server, "/?x=y", user, "other");
        assert_eq!(other.status, 401, "{user}");
        let challenge = other.header("www-authenticate");
        assert_eq!(challenge, Some("Basic realm=\"closed y\""));
    }
    for user in [
        "broken",
        "broken2",
        "broken3",
        "empty",
        "comment",
        "# comment",
        "none",
        "plai",
    ] {
        assert_eq!(status(&server, "/", user), 401, "{user}");
        assert_eq!(ask(&server, "/", user, "").status, 401, "{user}");
    }
    assert_eq!(server.get("/").status, 401);
    for header in ["Basic", "Basic !", "Basic cGxhaW4=", "Bearer cGxhaW46eA=="] {
        let reply = server.get_with("/", &format!("Authorization: {header}\r\n"));
        assert_eq!(reply.status, 401, "{header}");
    }
    assert_eq!(server.get("/open").status, 410);
    server.wait_for("user \"plain\": password mismatch", "one reason");
    server.wait_for(
        "user \"broken2\": the password in \"",
        "what is wrong with it",
    );
    server.wait_for("user \"broken2\": password mismatch", "what is counted");
    server.wait_for("user \"none\" was not found in \"", "another");
    server.forget_log();
}

#[test]
fn a_file_of_users_is_looked_at_each_time() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location / { auth_basic closed; auth_basic_user_file %DIR%/html/$arg_file; try_files /none =410; }
             location /none { auth_basic closed; auth_basic_user_file html/missing; try_files /none =410; }
             location /half { auth_basic closed; try_files /none =410; }
             location /realm { auth_basic $arg_realm; auth_basic_user_file html/a; try_files /none =410; } }",
    );
    server.file("a", "a:{PLAIN}a-secret\n");
    let long = format!("{}b:{{PLAIN}}b-secret\n", "x:y\n".repeat(100_000));
    server.file("b", long);
    assert_eq!(status(&server, "/?file=a", "a"), 410);
    assert_eq!(status(&server, "/?file=a", "b"), 401);
    assert_eq!(status(&server, "/?file=b", "b"), 410);
    assert_eq!(status(&server, "/?file=b", "a"), 401);
    server.file("a", "a:{PLAIN}another\n");
    assert_eq!(status(&server, "/?file=a", "a"), 401);
    assert_eq!(ask(&server, "/?file=a", "a", "another").status, 410);
    server.file("a", "");
    assert_eq!(ask(&server, "/?file=a", "a", "another").status, 401);
    assert_eq!(server.get("/none").status, 401, "it is not asked for");
    assert_eq!(status(&server, "/none", "a"), 403);
    assert_eq!(server.get("/half").status, 410);
    assert_eq!(server.get("/realm?realm=off").status, 410);
    assert_eq!(server.get("/realm?realm=on").status, 401);
    server.wait_for(
        "/html/missing\" failed (2: No such file or directory)",
        "the reason",
    );
    server.forget_log();
}

#[test]
fn one_of_several_judges_is_enough() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; auth_basic closed; auth_basic_user_file html/users;
             location /all { deny all; try_files /none =410; }
             location /any { satisfy any; deny all; try_files /none =410; }
             location /address { satisfy any; allow all; try_files /none =410; }
             location /both { satisfy any; auth_request /refused; try_files /none =410; }
             location /page { error_page 401 /401; try_files /none =410; }
             location = /401 { auth_basic off; add_header X-User $remote_user always; return 200 page; }
             location /inner/ { add_header X-User $remote_user always; auth_request /auth; try_files /none =410; }
             location = /auth { return 204; }
             location = /refused { return 401; } }",
    );
    server.file("users", "a:{PLAIN}a-secret\n");
    for (path, with, without) in [
        ("/all", 403, 403),
        ("/any", 410, 401),
        ("/address", 410, 410),
        ("/both", 410, 401),
        ("/page", 410, 401),
        ("/inner/", 410, 401),
    ] {
        assert_eq!(status(&server, path, "a"), with, "{path} with a password");
        assert_eq!(server.get(path).status, without, "{path} without");
    }
    let page = ask(&server, "/page", "a", "wrong");
    assert_eq!((page.status, page.text().as_str()), (401, "page"));
    assert_eq!(
        page.header("www-authenticate"),
        Some("Basic realm=\"closed\"")
    );
    assert_eq!(page.header("x-user"), Some("a"));
    assert_eq!(
        ask(&server, "/inner/", "a", "a-secret").header("x-user"),
        Some("a")
    );
    server.forget_log();
}

#[test]
fn who_is_refused_waits() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; auth_delay 300ms; auth_basic closed; auth_basic_user_file html/users;
             location / { try_files /none =410; } location /forbidden { deny all; } }",
    );
    server.file("users", "a:{PLAIN}a-secret\n");
    let mut refused = server.connect();
    let mut left = server.connect();
    left.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    let begun = Instant::now();
    refused.send("GET /refused HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(left);
    // Others do not wait meanwhile.
    assert_eq!(status(&server, "/", "a"), 410);
    assert_eq!(server.get("/forbidden").status, 403);
    assert_eq!(refused.reply().status, 401);
    assert!(begun.elapsed() >= Duration::from_millis(300), "too early");
    let log = server.access_log(4);
    assert!(log.contains("\"GET /left HTTP/1.1\" 499 "), "{log}");
    server.forget_log();
}

#[test]
fn a_tunnel_is_asked_for_in_lines_of_its_own() {
    let server = Server::start(
        "log_format user '$remote_user $status';
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log user; auth_basic closed; auth_basic_user_file html/users;
             tunnel_pass 127.0.0.1:%PORT%; }",
    );
    server.file("users", "a:{PLAIN}a-secret\n");
    let connect = |header: &str| {
        let mut connection = server.connect();
        let head = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n{header}\r\n");
        connection.send(head).reply_to("HEAD")
    };
    let said = format!("Authorization: Basic {}\r\n", base64("a:a-secret"));
    let refused = connect(&said);
    assert_eq!(refused.status, 407);
    assert_eq!(
        refused.header("proxy-authenticate"),
        Some("Basic realm=\"closed\"")
    );
    assert_eq!(refused.header("www-authenticate"), None);
    assert_eq!(connect(&format!("Proxy-{said}")).status, 200);
    let log = server.access_log(2);
    assert!(log.contains("- 407") && log.contains("a 200"), "{log}");
}

/// A server whose pools for work that takes processor time stand still while the file exists.
pub fn holdable(http: &str) -> (Server, PathBuf) {
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD_CPU", "%DIR%/hold");
    let hold = site.path("hold");
    (Server::start_on(site, "worker_processes 1;", http), hold)
}

#[test]
fn a_password_that_is_being_checked_keeps_nobody_else() {
    if is_nginx() {
        return;
    }
    let (server, hold) = holdable(
        "server { listen 127.0.0.1:%PORT%; location /open { return 200 open; }
             location / { auth_basic closed; auth_basic_user_file html/users; try_files /none =410; } }",
    );
    server.file("users", "a:{PLAIN}a-secret\nb:{PLAIN}b-secret\n");
    assert_eq!(status(&server, "/", "a"), 410);
    std::fs::write(&hold, "").unwrap();
    // Until the pools stand still, a check is done; each has another password, so none is known.
    let mut waiting;
    let mut number = 0;
    loop {
        waiting = server.connect();
        let said = base64(&format!("b:{number}"));
        waiting.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {said}\r\n\r\n"
        ));
        let stream = waiting.stream();
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        if stream.peek(&mut [0]).is_err() {
            break;
        }
        number += 1;
    }
    assert_eq!(server.get("/open").text(), "open");
    assert_eq!(status(&server, "/", "a"), 410, "it is known still");
    std::fs::remove_file(&hold).unwrap();
    waiting
        .stream()
        .set_read_timeout(Some(blackbox::PATIENCE))
        .unwrap();
    assert_eq!(waiting.reply().status, 401);
    server.forget_log();
}

#[test]
fn who_has_left_waits_for_no_check() {
    if is_nginx() {
        return;
    }
    let (server, hold) = holdable(
        "log_format left '$status';
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log left;
             auth_basic closed; auth_basic_user_file html/users; try_files /none =410; }",
    );
    server.file("users", "a:{PLAIN}a-secret\n");
    std::fs::write(&hold, "").unwrap();
    // As many as are checked at a time do not see it: more than the machine has cores.
    let said = base64("a:other");
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {said}\r\n\r\n");
    for _ in 0..200 {
        server.connect().send(&request);
    }
    let log = server.access_log(20);
    assert!(
        log.lines().all(|line| line == "499" || line == "401"),
        "{log}"
    );
    assert!(
        log.lines().filter(|line| *line == "499").count() > 10,
        "{log}"
    );
    std::fs::remove_file(&hold).unwrap();
    assert_eq!(status(&server, "/", "a"), 410);
    server.forget_log();
}

#[test]
fn a_password_may_be_as_long_as_a_head() {
    let server = Server::start(
        "large_client_header_buffers 4 32k;
         server { listen 127.0.0.1:%PORT%; auth_basic closed; auth_basic_user_file html/users; try_files /none =410; }",
    );
    let password = "p".repeat(7000);
    server.file("users", format!("a:{{PLAIN}}{password}\n"));
    assert_eq!(ask(&server, "/", "a", &password).status, 410);
    assert_eq!(ask(&server, "/", "a", &password[1..]).status, 401);
    server.forget_log();
}
