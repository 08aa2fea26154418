//! The example as its users see it: configured in nginx.conf, asked over HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests run on no loop"
)]

use std::path::Path;

use blackbox::{Connection, Server, Site, text_of};

const ITEM: &str =
    r#"location = /item { sqlite_query "SELECT id, name FROM item WHERE id = ?" $arg_id; }"#;

fn site() -> Site {
    let site = Site::of(Path::new(env!("CARGO_BIN_EXE_sqlite-module")));
    let database = rusqlite::Connection::open(site.path("shop.db")).unwrap();
    let text = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item (name) VALUES ('wheel'), ('hub');";
    database.execute_batch(text).unwrap();
    site
}

fn start(main: &str, http: &str) -> Server {
    Server::start_on(site(), main, &format!("sqlite_database shop.db;\n{http}"))
}

/// The output of `-t` for a configuration.
fn refusal(main: &str, http: &str) -> String {
    let site = site();
    site.configure(&format!("{main}\nevents {{ }}\nhttp {{ {http} }}"));
    let (status, said) = site.run(&["-t"]);
    assert!(!status.success(), "{said}");
    said
}

#[test]
fn rows_are_answered() {
    let server = start("", &format!("server {{ listen 127.0.0.1:%PORT%; {ITEM} }}"));
    let reply = server.get("/item?id=2");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (200, "[{\"id\":2,\"name\":\"hub\"}]\n")
    );
    assert_eq!(reply.header("Content-Type"), Some("application/json"));
    assert_eq!(server.get("/item?id=3").text(), "[]\n");
    assert_eq!(server.get("/item?id=1%20OR%201=1").text(), "[]\n");
    assert_eq!(server.request("POST", "/item?id=1", "").status, 405);
    assert_eq!(server.request("HEAD", "/item?id=1", "").status, 200);
}

#[test]
fn the_module_has_a_variable() {
    let line = "add_header X-Rows $sqlite_rows; add_header X-Many $many;";
    let http = format!(
        "map $sqlite_rows $many {{ 0 no; default yes; }}\nserver {{ listen 127.0.0.1:%PORT%; {line} {ITEM} }}"
    );
    let server = start("", &http);
    let reply = server.get("/item?id=2");
    assert_eq!(
        (reply.header("X-Rows"), reply.header("X-Many")),
        (Some("1"), Some("yes"))
    );
    assert_eq!(server.get("/item?id=3").header("X-Rows"), Some("0"));
    assert!(refusal("", "server { set $sqlite_rows 1; }").contains("duplicate"));
}

#[test]
fn a_failing_query_is_500_and_named_in_the_log() {
    let http =
        r#"server { listen 127.0.0.1:%PORT%; location / { sqlite_query "SELECT nowhere"; } }"#;
    let server = start("", http);
    assert_eq!(server.get("/").status, 500);
    server.wait_for("SQLite: no such column", "the line about the query");
}

#[test]
fn loops_go_on_while_queries_sleep_and_a_full_pool_answers_503() {
    let main = "worker_processes 1; thread_pool database threads=2 max_queue=0;";
    let http = r#"sqlite_pool database;
        server {
            listen 127.0.0.1:%PORT%;
            location = /slow { sqlite_query "SELECT sleep(CAST(? AS INTEGER)) AS ms" $arg_ms; }
        }"#;
    let server = start(main, http);
    server.file("hot.txt", "hot");
    assert_eq!(server.get("/hot.txt").text(), "hot");
    let mut slow: Vec<Connection> = (0..2).map(|_| ask_slowly(&server)).collect();
    // Until both have their thread, a third query finds one free.
    while server.get("/slow?ms=0").status == 200 {}
    let refused = server.get("/slow?ms=0");
    assert_eq!(
        (refused.status, refused.header("Retry-After")),
        (503, Some("1"))
    );
    // How many wait depends on how soon the threads wake: none or one.
    server.wait_for(
        "thread pool \"database\" queue overflow: ",
        "the line about the overflow",
    );
    for _ in 0..100 {
        assert_eq!(server.get("/hot.txt").text(), "hot");
    }
    for connection in &slow {
        let stream = connection.stream();
        stream.set_nonblocking(true).unwrap();
        let early = stream.peek(&mut [0]).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
    }
    for connection in &mut slow {
        assert!(text_of(&connection.rest()).ends_with("[{\"ms\":3000}]\n"));
    }
}

fn ask_slowly(server: &Server) -> Connection {
    let mut connection = server.connect();
    connection.send("GET /slow?ms=3000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    connection
}

#[test]
fn a_reload_changes_the_query() {
    let server = start("", &format!("server {{ listen 127.0.0.1:%PORT%; {ITEM} }}"));
    assert_eq!(
        server.get("/item?id=1").text(),
        "[{\"id\":1,\"name\":\"wheel\"}]\n"
    );
    server.reload(
        r#"sqlite_database shop.db;
        server { listen 127.0.0.1:%PORT%; location / { sqlite_query "SELECT count(*) AS items FROM item"; } }"#,
    );
    assert_eq!(server.get("/item?id=1").text(), "[{\"items\":2}]\n");
}

#[test]
fn what_is_wrong_is_told_at_its_place() {
    let said = refusal("", &format!("server {{ {ITEM} }}"));
    assert!(
        said.contains("\"sqlite_query\" needs a \"sqlite_database\" in "),
        "{said}"
    );
    let said = refusal("", "sqlite_database a.db b.db;");
    assert!(
        said.contains("invalid number of arguments in \"sqlite_database\""),
        "{said}"
    );
    let said = refusal(
        "",
        &format!("sqlite_database a.db; sqlite_pool nowhere; server {{ {ITEM} }}"),
    );
    assert!(
        said.contains("unknown thread pool \"nowhere\" in "),
        "{said}"
    );
    let said = refusal("", "sqlite_databse a.db;");
    assert!(said.contains("did you mean \"sqlite_database\"?"), "{said}");
    let said = refusal("", "server { sqlite_query \"SELECT 1\"; }");
    assert!(
        said.contains("\"sqlite_query\" directive is not allowed here"),
        "{said}"
    );
}

#[test]
fn its_directives_are_explained() {
    let mut explain = std::process::Command::new(env!("CARGO_BIN_EXE_sqlite-module"));
    let output = explain
        .args(["--explain", "sqlite_query"])
        .output()
        .unwrap();
    let text = text_of(&output.stdout);
    assert!(
        text.starts_with("Syntax:   sqlite_query statement [value …];\n"),
        "{text}"
    );
}
