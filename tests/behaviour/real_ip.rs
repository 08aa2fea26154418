//! The client's address as a trusted proxy tells it.

use blackbox::{Answer, Origin, Server};

/// What is seen of the client.
const SEEN: &str = "add_header X-Seen '$remote_addr $remote_port|$realip_remote_addr' always;";

fn seen(server: &Server, path: &str, headers: &str) -> String {
    let reply = server.get_with(path, headers);
    let seen = reply.header("X-Seen").expect("the header").to_owned();
    // The port of a connection is any.
    let (client, connected) = seen.split_once('|').expect("two parts");
    let (address, port) = client.split_once(' ').expect("address and port");
    let port = if address == "127.0.0.1" { "*" } else { port };
    format!("{address} {port}|{connected}")
}

#[test]
fn who_is_trusted_names_the_client() {
    let server = Server::start(&format!(
        "{SEEN} server {{ listen 127.0.0.1:%PORT%; return 204;
             location / {{ }} }}
         server {{ listen 127.0.0.1:%PORT%; server_name one; set_real_ip_from 127.0.0.0/8;
             location /last {{ real_ip_header X-Forwarded-For; try_files /none =204; }}
             location /recursive {{ real_ip_header X-Forwarded-For; real_ip_recursive on;
                 set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; try_files /none =204; }}
             location /other {{ set_real_ip_from 192.0.2.0/24; try_files /none =204; }}
             location /any {{ real_ip_header CF-Connecting-IP; try_files /none =204; }}
             location / {{ try_files /none =204; }} }}"
    ));
    assert_eq!(
        seen(&server, "/", "X-Real-IP: 192.0.2.1\r\n"),
        "127.0.0.1 *|127.0.0.1",
        "nobody is trusted"
    );
    let one = |path: &str, headers: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: one\r\nConnection: close\r\n{headers}\r\n");
        let reply = server.connect().send(request).reply();
        let seen = reply.header("X-Seen").expect("the header").to_owned();
        match seen.split_once('|') {
            Some((client, _)) if client.starts_with("127.0.0.1 ") => "nobody".to_owned(),
            Some((client, "127.0.0.1")) => client.to_owned(),
            _ => panic!("{seen}"),
        }
    };
    for (path, headers, client) in [
        ("/", "", "nobody"),
        ("/", "X-Real-IP: 192.0.2.1\r\n", "192.0.2.1 "),
        ("/", "X-Real-IP: 192.0.2.1:88\r\n", "192.0.2.1 88"),
        ("/", "x-real-ip: 2001:db8::1\r\n", "2001:db8::1 "),
        ("/", "X-Real-IP: nobody\r\n", "nobody"),
        ("/", "X-Forwarded-For: 192.0.2.1\r\n", "nobody"),
        // The server has said X-Real-IP before the location was found.
        (
            "/last",
            "X-Real-IP: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n",
            "192.0.2.1 ",
        ),
        (
            "/last",
            "X-Forwarded-For: 192.0.2.9, 192.0.2.1\r\n",
            "192.0.2.1 ",
        ),
        (
            "/last",
            "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-For: 192.0.2.1\r\n",
            "192.0.2.1 ",
        ),
        (
            "/recursive",
            "X-Forwarded-For: 192.0.2.9, 192.0.2.1, 10.0.0.1\r\n",
            "192.0.2.1 ",
        ),
        (
            "/recursive",
            "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.0.0.1\r\n",
            "192.0.2.1 ",
        ),
        ("/any", "CF-Connecting-IP: 192.0.2.1\r\n", "192.0.2.1 "),
        ("/other", "", "nobody"),
    ] {
        assert_eq!(one(path, headers), client, "{path} {headers}");
    }
}

#[test]
fn rules_logs_and_servers_see_the_new_address() {
    let origin = Origin::start(|_| Answer::ok("passed"));
    let server = Server::start(&format!(
        "log_format seen '$remote_addr $uri';
         server {{ listen 127.0.0.1:%PORT%; set_real_ip_from 127.0.0.1; access_log logs/access.log seen;
             location /denied {{ deny 192.0.2.1; try_files /none =204; }}
             location /sub {{ auth_request /auth; try_files /none =204; }}
             location = /auth {{ internal; deny 192.0.2.1; return 204; }}
             location /passed {{ proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                 proxy_pass http://{}; }}
             location = /hidden {{ deny all; }} }}",
        origin.address()
    ));
    let mut connection = server.connect();
    let mut status = |path: &str, headers: &str| {
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
        connection.reply().status
    };
    let behind = "X-Real-IP: 192.0.2.1\r\n";
    assert_eq!(status("/denied", behind), 403);
    // The next request of the connection is its own client's again.
    assert_eq!(status("/denied", ""), 204);
    assert_eq!(status("/sub", behind), 204);
    assert_eq!(status("/passed", behind), 200);
    assert_eq!(origin.last().header("X-Forwarded-For"), Some("192.0.2.1"));
    server.wait_for(
        "access forbidden by rule, client: 192.0.2.1",
        "whose line it is",
    );
    let log = server.access_log(4);
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [
            "192.0.2.1 /denied",
            "127.0.0.1 /denied",
            "192.0.2.1 /sub",
            "192.0.2.1 /passed"
        ]
    );
}

#[test]
fn an_address_that_a_sub_request_finds_is_the_request_s() {
    let server = Server::start(&format!(
        "{SEEN} server {{ listen 127.0.0.1:%PORT%;
             location / {{ auth_request /auth; error_page 403 /denied; try_files /none =204; }}
             location /passed {{ auth_request /open; try_files /none =204; }}
             location = /auth {{ internal; set_real_ip_from 127.0.0.0/8; return 403; }}
             location = /open {{ internal; set_real_ip_from 127.0.0.0/8; try_files /none =204; }}
             location = /denied {{ set_real_ip_from 127.0.0.0/8; allow 127.0.0.0/8; deny all; try_files /none =204; }} }}"
    ));
    let behind = "X-Real-IP: 192.0.2.1\r\n";
    assert_eq!(server.get_with("/", behind).status, 403);
    let passed = seen(&server, "/passed", behind);
    assert!(
        passed.starts_with("192.0.2.1 ") && passed.ends_with("|127.0.0.1"),
        "{passed}"
    );
    server.forget_log();
}
