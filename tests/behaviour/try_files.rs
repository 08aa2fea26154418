//! `try_files`.

use blackbox::Server;

#[test]
fn files_then_directories_then_the_last() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location / { try_files $uri $uri/ /fallback.html; }
            location /code/ { try_files $uri =418; }
            location /named/ { try_files $uri @named; }
            location /file-only/ { try_files $uri =404; }
            location @named { return 200 named:$uri; } }",
    );
    server.file("a", "a");
    server.file("dir/index.html", "index");
    server.file("fallback.html", "fallback");
    server.file("file-only/sub/x", "x");
    for (target, status, body) in [
        ("/a", 200, "a"),
        ("/dir/", 200, "index"),
        ("/none", 200, "fallback"),
        ("/named/x", 200, "named:/named/x"),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, body),
            "{target}"
        );
    }
    assert_eq!(server.get("/code/x").status, 418);
    assert_eq!(
        server.get("/file-only/sub").status,
        404,
        "without a slash only files count"
    );
}

#[test]
fn below_an_alias_the_name_is_taken_off_where_there_are_variables() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location /var { alias %DIR%/html/other; try_files $uri =404; }
            location /lit { alias %DIR%/html/other; try_files /lit/a =404; } }",
    );
    server.file("other/a", "a");
    assert_eq!(server.get("/var/a").text(), "a");
    assert_eq!(server.get("/lit/a").status, 404);
}
