//! Values that variables have, in answers and in logs.

use blackbox::{Server, is_nginx};

const FORMAT: &str =
    "log_format named '$uri: $status|$request_method|$sent_http_last_modified|$realpath_root';";
const LOG: &str = "access_log logs/access.log named;";

#[test]
fn the_real_path_of_the_root_is_found_without_links() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location / { root %DIR%/html/link/../link; return 200 $realpath_root; }
            location /by-host { root %DIR%/html/$arg_d; return 200 \"$realpath_root|$document_root\"; }
            location /missing { root %DIR%/none; return 200 \"[$realpath_root]\"; } }",
    );
    server.file("real/files/a", "found");
    let html = server.site().path("html");
    std::os::unix::fs::symlink("real", html.join("link")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test")]
    let real = std::fs::canonicalize(html.join("real")).unwrap();
    let real = real.display().to_string();
    assert_eq!(server.get("/").text(), real);
    assert_eq!(
        server.get("/by-host?d=link").text(),
        format!("{real}|{}/link", html.display())
    );
    assert_eq!(server.get("/missing").text(), "[]");
    server.wait_for(
        "/none\" failed (2: No such file or directory)",
        "the root that is not there",
    );
    server.forget_log();
}

#[test]
fn the_real_path_of_the_root_asks_for_no_value_too_early() {
    let server = Server::start(&format!(
        "{FORMAT} map $site $folder {{ default a; two b; }} map $auth $allowed {{ default a; two b; }} map $realpath_root $known {{ default no; ~/b$ yes; }}
        server {{ listen 127.0.0.1:%PORT%; {LOG} set $site one;
            if ($http_x_site = two) {{ set $site two; }}
            root %DIR%/html/$folder; add_header X-Real $realpath_root;
            location /said {{ return 200 \"$document_root $known\"; }}
            location /set {{ set $site two; set $before $realpath_root; return 200 $before; }}
            location /if {{ set $site two; if ($known = yes) {{ return 200 yes; }} return 200 no; }}
            location /rewritten {{ set $site two; rewrite ^ /page? break; }}
            location = /yes {{ internal; return 204; }}
            location /auth {{ auth_request /yes; auth_request_set $auth two; root %DIR%/html/$allowed; try_files /page =404; }} }}"
    ));
    server.file("a/page", "one");
    server.file("b/page", "two");
    let two = server.site().path("html/b").display().to_string();
    let other = |target: &str| server.get_with(target, "X-Site: two\r\n");
    assert_eq!(server.get("/page").text(), "one");
    assert_eq!(other("/page").text(), "two");
    assert_eq!(other("/said").text(), format!("{two} yes"));
    assert_eq!(other("/said").header("X-Real"), Some(two.as_str()));
    assert_eq!(server.get("/set").text(), two);
    assert_eq!(server.get("/if").text(), "yes");
    assert_eq!(server.get("/rewritten").text(), "two");
    assert_eq!(server.get("/auth").text(), "two");
}

#[test]
fn a_connection_closed_without_a_byte_is_logged_as_444() {
    let server = Server::start(&format!(
        "{FORMAT} server {{ listen 127.0.0.1:%PORT%; {LOG} location / {{ return 444; }}
            location /tried {{ try_files /none =444; }} location /page {{ error_page 404 =444 /none; }} }}"
    ));
    for target in ["/a", "/tried"] {
        assert_eq!(server.raw(format!("GET {target} HTTP/1.0\r\n\r\n")), "");
    }
    let log = server.access_log(2);
    assert!(
        log.starts_with("/a: 444|GET|") && log.contains("\n/tried: 444|GET|"),
        "{log}"
    );
}

#[test]
fn an_error_page_makes_the_method_get() {
    let server = Server::start(&format!(
        "{FORMAT} server {{ listen 127.0.0.1:%PORT%; {LOG} error_page 405 =200 /page; location = /page {{ return 200 $request_method; }} }}"
    ));
    server.file("a", "a");
    assert_eq!(server.request("DELETE", "/a", "").text(), "GET");
    assert!(server.access_log(1).starts_with("/page: 200|GET|-|"));
}

#[test]
fn a_status_that_has_no_date_logs_none() {
    let server = Server::start(&format!(
        "{FORMAT} server {{ listen 127.0.0.1:%PORT%; {LOG} error_page 404 /page; }}"
    ));
    server.file("page", "not here");
    assert_eq!(server.get("/none").header("last-modified"), None);
    assert!(server.access_log(1).starts_with("/page: 404|GET|-|"));
}

#[test]
fn port_0_is_no_port() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; return 200 \"$host$is_request_port$request_port\"; }",
    );
    let ask = |host: &str| {
        let reply = server.raw(format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"));
        reply.rsplit("\r\n").next().unwrap_or_default().to_owned()
    };
    assert_eq!([ask("a:0"), ask("a:81")], ["a", "a:81"]);
}

#[test]
fn a_prefix_by_itself_is_a_name() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location / { return 200 [$arg_][$http_][$cookie_][$sent_http_][$upstream_http_][$upstream_cookie_]; } }",
    );
    let reply = server.get_with("/?=y&a=b", "Cookie: =x; a=b\r\n");
    assert_eq!(reply.text(), "[][][x][][][]");
}

#[test]
fn a_value_made_of_values_has_an_end() {
    if is_nginx() {
        // It takes what memory there is.
        return;
    }
    let doubled = "set $a $a$a; ".repeat(40);
    let mut maps = String::from("map $uri $m0 { default 0123456789abcdef; }\n");
    for number in 0..40 {
        maps += &format!(
            "map $uri $m{} {{ default $m{number}$m{number}; }}\n",
            number + 1
        );
    }
    let server = Server::start(&format!(
        "{maps} server {{ listen 127.0.0.1:%PORT%;
             location /set {{ set $a 0123456789abcdef; {doubled} return 200 set; }}
             location /map {{ return 200 \"[$m40]\"; }}
             location /few {{ set $a 0123456789abcdef; set $a $a$a; set $a $a$a; return 200 $m2$a; }}
             location /rewrite {{ {} return 200 rewritten; }} }}",
        "rewrite ^(.*)$ $1$1; ".repeat(40),
    ));
    assert_eq!(server.get("/set").status, 500);
    assert_eq!(server.get("/rewrite").status, 500);
    assert_eq!(server.get("/map").status, 200);
    server.wait_for("a value is longer than 16777216 bytes", "the reason");
    assert_eq!(server.get("/few").body.len(), 128);
    server.forget_log();
}
