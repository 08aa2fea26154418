//! Which location a URI belongs to.

use blackbox::Server;

#[test]
fn exact_longest_prefix_regex_in_this_order() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location / { return 200 root; }
            location = / { return 200 exact; }
            location /pre { return 200 prefix; }
            location /pre/longer { return 200 longer; }
            location ^~ /stop { return 200 stop; }
            location ~ \\.txt$ { return 200 regex; }
            location ~* \\.PNG$ { return 200 caseless; }
            location ~ ^/(?<word>[a-z]+)/capture$ { return 200 $word-$1; }
        }",
    );
    for (target, expected) in [
        ("/", "exact"),
        ("/x", "root"),
        ("/prefix", "prefix"),
        ("/pre/longer/x", "longer"),
        ("/pre/a.txt", "regex"),
        ("/stop/a.txt", "stop"),
        ("/a.TXT", "root"),
        ("/a.png", "caseless"),
        ("/some/capture", "some-some"),
    ] {
        assert_eq!(server.get(target).text(), expected, "{target}");
    }
}

#[test]
fn nested_locations_are_searched_within_their_prefix() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
            location /out { return 200 out; location /out/in { return 200 in; location ~ deep$ { return 200 deep; } } }
        }",
    );
    for (target, expected) in [
        ("/out", "out"),
        ("/out/in", "in"),
        ("/out/in/deep", "deep"),
        ("/out/deep", "out"),
    ] {
        assert_eq!(server.get(target).text(), expected, "{target}");
    }
    assert_eq!(server.get("/deep").status, 404);
}

#[test]
fn redirects_are_completed_unless_relative() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; server_name named.example;
            location /moved { return 301 /to; }
            location /elsewhere { return 302 https://other.example/; }
            location /named { server_name_in_redirect on; port_in_redirect off; return 307 /to; }
            location /relative { absolute_redirect off; return 308 /to; }
        }",
    );
    let port = server.site().port(0);
    for (target, status, location) in [
        ("/moved", 301, format!("http://localhost:{port}/to")),
        ("/elsewhere", 302, "https://other.example/".to_owned()),
        ("/named", 307, "http://named.example/to".to_owned()),
        ("/relative", 308, "/to".to_owned()),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.header("location")),
            (status, Some(location.as_str())),
            "{target}"
        );
    }
}

#[test]
fn status_444_closes_without_a_byte() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 444; }");
    assert_eq!(server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "");
}

#[test]
fn an_exact_name_that_is_passed_on_is_reached_without_its_slash() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location = /t/ { proxy_pass http://127.0.0.1:9; } location /u { return 200 u; }
            location = /u/ { proxy_pass http://127.0.0.1:9; } location = /v/ { return 200 v; } location = /v { return 200 exact; } }",
    );
    for (path, to) in [("/t", "/t/"), ("/t?a", "/t/?a"), ("/u", "")] {
        let reply = server.get(path);
        let location = reply.header("location").unwrap_or_default();
        assert!(location.ends_with(to), "{path}: {location}");
        assert_eq!(
            reply.status,
            if to.is_empty() { 200 } else { 301 },
            "{path}"
        );
    }
    assert_eq!(server.get("/t/x").status, 404);
    assert_eq!(server.get("/v").text(), "exact");
}

/// As in nginx: `uwsgi_pass` and `scgi_pass` with variables do not have it, the others do.
#[test]
fn a_location_that_passes_on_is_reached_without_its_slash() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; set $port 1; root %DIR%/www;
         location /proxy/ { proxy_pass http://127.0.0.1:$port; }
         location /fastcgi/ { fastcgi_pass 127.0.0.1:$port; }
         location /uwsgi/ { uwsgi_pass 127.0.0.1:1; }
         location /uwsgi-made/ { uwsgi_pass 127.0.0.1:$port; }
         location /scgi/ { scgi_pass 127.0.0.1:1; }
         location /scgi-made/ { scgi_pass 127.0.0.1:$port; } }",
    );
    for (path, status) in [
        ("/proxy", 301),
        ("/fastcgi", 301),
        ("/uwsgi", 301),
        ("/uwsgi-made", 404),
        ("/scgi", 301),
        ("/scgi-made", 404),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
}
