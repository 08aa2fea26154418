//! `rewrite`, `if`, `set`, `break` and `return`, in the order in which they stand.

use std::time::Duration;

use blackbox::{Answer, Origin, PATIENCE, Server, Site, is_nginx};

/// The `Location` of an answer, behind the server's own name.
fn location(server: &Server, target: &str) -> String {
    let reply = server.get(target);
    let location = reply.header("location").unwrap_or("none").to_owned();
    let own = format!("http://localhost:{}", server.site().port(0));
    match location.strip_prefix(&own) {
        Some(path) => path.to_owned(),
        None => location,
    }
}

#[test]
fn a_rewritten_uri_finds_its_location() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             rewrite ^/server/(.*)$ /second/$1?x=$1;
             location /first/ { rewrite ^/first/(.*)$ /second/$1; return 200 never; }
             location /last/ { rewrite ^/last/(.*)$ /second/$1? last; }
             location /break/ { rewrite ^/break/(.*)$ /second/$1 break; return 200 never; root %DIR%/html; }
             location /both/ { rewrite ^ /a; rewrite ^/a$ /second/b; break; root %DIR%/html; }
             location /second/ { return 200 $uri?$args; }
             location / { return 200 root:$uri; } }",
    );
    server.file("second/x", "file");
    server.file("second/b", "both");
    for (target, expected) in [
        ("/server/y?z", "/second/y?x=y&z"),
        ("/last/x?y", "/second/x?"),
        ("/break/x", "file"),
        ("/both/", "both"),
        ("/other", "root:/other"),
    ] {
        assert_eq!(server.get(target).text(), expected, "{target}");
    }
    // Without a flag the next instruction follows.
    assert_eq!(server.get("/first/x").text(), "never");
}

#[test]
fn redirects_keep_the_arguments_unless_a_question_mark_ends_them() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             rewrite ^/plain/(.*)$ /new/$1 redirect;
             rewrite ^/gone/(.*)$ /new/$1 permanent;
             rewrite ^/none/(.*)$ /new/$1? redirect;
             rewrite ^/args/(.*)$ /new/?a=$1 redirect;
             rewrite ^/url/(.*)$ https://other.example/$1;
             rewrite ^/scheme/(.*)$ $scheme://other.example/$1 last;
             rewrite ^/moved/(.*)$ http://other.example/$1 permanent; }",
    );
    for (target, expected) in [
        ("/plain/x?y=1", "/new/x?y=1"),
        ("/plain/x", "/new/x"),
        ("/none/x?y=1", "/new/x"),
        ("/args/x?y=1", "/new/?a=x&y=1"),
        ("/url/x?y", "https://other.example/x?y"),
        ("/scheme/x", "http://other.example/x"),
    ] {
        assert_eq!(location(&server, target), expected, "{target}");
        assert_eq!(server.get(target).status, 302, "{target}");
    }
    assert_eq!(server.get("/gone/x").status, 301);
    assert_eq!(server.get("/moved/x").status, 301);
}

#[test]
fn captures_are_escaped_behind_the_question_mark_and_in_redirects() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location /args/ { rewrite ^/args/(.*)$ /show?c=$1; }
             location /uri/ { rewrite ^/uri/(.*)$ /show/$1 last; }
             location /redirect/ { rewrite ^/redirect/(.*)$ /to/$1?c=$1 redirect; }
             location ~ ^/set/(.*)$ { set $c $1; return 200 $c|$1; }
             location ~ ^/after/(.*)$ { rewrite ^/after/(.*)$ /x; set $c $1; return 200 $c|$1; }
             location /show { return 200 $uri?$args; } }",
    );
    for (target, expected) in [
        ("/args/a%20b%26c", "/show?c=a%20b%26c"),
        ("/args/a&b", "/show?c=a&b"),
        ("/args/a+b&c", "/show?c=a%2Bb%26c"),
        ("/uri/a%20b%3fc", "/show/a b?c?"),
        ("/set/a%20b", "a%20b|a b"),
        ("/set/a&b", "a&b|a&b"),
        ("/after/a%20b", "a b|a b"),
    ] {
        assert_eq!(server.get(target).text(), expected, "{target}");
    }
    for (target, expected) in [
        // What is escaped for the arguments is undone before the question mark, as far as it may be printed.
        ("/redirect/a%26b", "/to/a&b?c=a%26b"),
        ("/redirect/a%01b", "/to/a%01b?c=a%01b"),
        ("/redirect/a%20b", "/to/a%20b?c=a%20b"),
    ] {
        assert_eq!(location(&server, target), expected, "{target}");
    }
}

#[test]
fn conditions_compare_match_and_look_at_files() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             set $r \"\";
             if ($arg_v) { set $r ${r}v; }
             if ($arg_e = a) { set $r ${r}e; }
             if ($arg_e != a) { set $r ${r}E; }
             if ($arg_e = \"$arg_f\") { set $r ${r}s; }
             if ($arg_m ~ ^x(.)) { set $r ${r}m$1; }
             if ($arg_m ~* ^X) { set $r ${r}i; }
             if ($arg_m !~ ^x) { set $r ${r}M; }
             if ($arg_m !~* ^X) { set $r ${r}I; }
             if (-f %DIR%/html/$arg_p) { set $r ${r}f; }
             if (!-f %DIR%/html/$arg_p) { set $r ${r}F; }
             if (-d %DIR%/html/$arg_p) { set $r ${r}d; }
             if (!-d %DIR%/html/$arg_p) { set $r ${r}D; }
             if (-e %DIR%/html/$arg_p) { set $r ${r}e; }
             if (!-e %DIR%/html/$arg_p) { set $r ${r}E; }
             if (-x %DIR%/html/$arg_p) { set $r ${r}x; }
             if (!-x %DIR%/html/$arg_p) { set $r ${r}X; }
             return 200 $r; }",
    );
    server.file("file", "");
    server.file("dir/file", "");
    for (target, expected) in [
        ("/?p=file", "EsMIfDeX"),
        ("/?p=dir", "EsMIFdex"),
        ("/?p=none", "EsMIFDEX"),
        ("/?v=0&p=file", "EsMIfDeX"),
        ("/?v=00&p=file", "vEsMIfDeX"),
        ("/?e=a&f=a&p=file", "esMIfDeX"),
        ("/?m=xy&p=file", "EsmyifDeX"),
        ("/?m=Xy&p=file", "EsiMfDeX"),
    ] {
        assert_eq!(server.get(target).text(), expected, "{target}");
    }
}

#[test]
fn an_if_of_a_location_is_a_location_of_its_own() {
    let origin = Origin::start(|_| Answer::ok("origin"));
    let server = Server::start(&format!(
        "log_format if '$uri $scope'; access_log %DIR%/logs/if.log if;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{
                 add_header X-Outer yes; set $scope outer;
                 if ($arg_root) {{ root %DIR%/html/other; set $scope root; }}
                 if ($arg_header) {{ add_header X-Inner yes; }}
                 if ($arg_error) {{ error_page 404 =200 /page; }}
                 if ($arg_quiet) {{ access_log off; }}
                 if ($arg_pass) {{ proxy_pass http://{origin}; }}
                 if ($arg_break) {{ break; add_header X-Break yes; }}
                 set $scope \"$scope end\";
             }}
             location = /page {{ return 200 page; }}
             location /passed/ {{
                 proxy_pass http://{origin}/upstream/; add_header X-Outer yes;
                 if ($arg_header) {{ add_header X-Inner yes; }}
                 if ($arg_rewrite) {{ rewrite ^ /new break; }} }} }}",
        origin = origin.address()
    ));
    server.file("a", "outer");
    server.file("other/a", "inner");
    let headers = |target: &str| {
        let reply = server.get(target);
        let has = |name: &str| reply.header(name).is_some();
        (reply.text(), has("x-outer"), has("x-inner"), has("x-break"))
    };
    let of = |text: &str, outer, inner, is_break| (text.to_owned(), outer, inner, is_break);
    for _ in 0..2 {
        assert_eq!(headers("/a"), of("outer", true, false, false));
        assert_eq!(headers("/a?root=1"), of("inner", true, false, false));
        assert_eq!(headers("/a?header=1"), of("outer", false, true, false));
        // The last one that holds is where the request goes on.
        assert_eq!(
            headers("/a?root=1&header=1"),
            of("outer", false, true, false)
        );
        assert_eq!(headers("/a?break=1"), of("outer", false, false, true));
        assert_eq!(headers("/none?error=1").0, "page");
        assert_eq!(headers("/a?pass=1"), of("origin", true, false, false));
        assert_eq!(origin.last().target(), "/a?pass=1");
    }
    assert_eq!(headers("/passed/a"), of("origin", true, false, false));
    assert_eq!(origin.last().target(), "/upstream/a");
    assert_eq!(
        headers("/passed/a?header=1"),
        of("origin", false, true, false)
    );
    assert_eq!(origin.last().target(), "/upstream/a?header=1");
    assert_eq!(headers("/passed/a?rewrite=1").0, "origin");
    assert_eq!(origin.last().target(), "/new?rewrite=1");
    assert_eq!(server.get("/quiet?quiet=1").status, 404);
    assert_eq!(server.get("/a?last").status, 200);
    server.access_log(18);
    let log = server.read("logs/if.log");
    assert!(!log.contains("/quiet"), "{log}");
    assert!(log.contains("/a root end\n"), "{log}");
    assert!(log.contains("/a outer\n"), "{log}");
    assert!(log.ends_with("/a outer end\n"), "{log}");
}

#[test]
fn variables_are_set_where_the_request_comes_by() {
    let server = Server::start(
        "map $arg_m $mapped { default no; 1 yes; }
         server { listen 127.0.0.1:%PORT%;
             location /args { set $args new=$arg_a; return 200 $args|$arg_new|$request_uri; }
             location /family { if ($arg_a) { set $http_foo set; set $arg_b B; } return 200 $http_foo|$arg_b; }
             location /map { if ($arg_a) { set $mapped set; } return 200 $mapped; }
             location /rate { set $limit_rate 40k; return 200 $limit_rate; }
             location /bad { set $limit_rate 4x; return 200 $limit_rate; }
             location /unset { set $unset_args $http_none; return 200 [$never]; set $never 1; }
             location /case { set $MixedCase yes; return 200 $mixedcase; }
         }",
    );
    for (target, expected) in [
        ("/args?a=1", "new=1|1|/args?a=1"),
        ("/family?a=1&b=2", "set|B"),
        ("/family?b=2", "client|2"),
        ("/map?a=1&m=1", "set"),
        ("/map?m=1", "yes"),
        ("/rate", "40960"),
        ("/bad", "0"),
        ("/unset", "[]"),
        ("/case", "yes"),
    ] {
        let reply = server.get_with(target, "Foo: client\r\n");
        assert_eq!(reply.text(), expected, "{target}");
    }
    server.wait_for("using uninitialized \"never\" variable", "the warning");
    server.wait_for("invalid $limit_rate \"4x\"", "the reason");
    server.forget_log();
}

#[test]
fn a_variable_that_is_made_of_itself_is_named() {
    let server = Server::start(
        "map x $one { default $other; }
         map x $other { default $one; }
         server { listen 127.0.0.1:%PORT%; return 200 $one; }",
    );
    assert_eq!(server.get("/").status, 200);
    server.wait_for(
        "cycle while evaluating variable \"one\"",
        "the line about the cycle",
    );
    server.forget_log();
}

#[test]
fn a_match_that_fails_or_has_no_groups_takes_the_captures_away() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location ~ ^/fails/(.*) { if ($arg_a ~ x) { } return 200 [$1]; }
             location ~ ^/plain/(.*) { if ($uri ~ plain) { } return 200 [$1]; }
             location ~ ^/kept/(.*) { if ($arg_a) { } return 200 [$1]; } }",
    );
    assert_eq!(server.get("/fails/x").text(), "[]");
    assert_eq!(server.get("/plain/x").text(), "[]");
    assert_eq!(server.get("/kept/x").text(), "[x]");
}

#[test]
fn uris_change_ten_times_and_no_more() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             location ~ ^/ten/(x*)$ { rewrite ^/ten/x(x*)$ /ten/$1 last; return 200 done; }
             location /round { rewrite ^ /round; }
             location /page { error_page 500 /sorry; rewrite ^ /page; }
             location = /sorry { return 200 sorry; } }",
    );
    assert_eq!(server.get("/ten/xxxxxxxxxx").text(), "done");
    assert_eq!(server.get("/ten/xxxxxxxxxxx").status, 500);
    assert_eq!(server.get("/round").status, 500);
    // No change is left for the page.
    assert!(server.get("/page").text().contains("500 Internal"));
    server.wait_for(
        "rewrite or internal redirection cycle while processing \"/round\"",
        "the reason",
    );
    server.forget_log();
}

#[test]
fn what_the_server_says_is_obeyed_once() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%;
             rewrite ^/a$ /b; rewrite ^/c$ /d;
             set $times \"${times}x\";
             location /b { rewrite ^ /c last; }
             location /c { return 200 c:$times; }
             location /d { return 200 d:$times; }
             location /redirect { try_files /none /c; }
             location / { return 200 none; } }",
    );
    assert_eq!(server.get("/a").text(), "c:x");
    // But again after an internal redirect.
    assert_eq!(server.get("/redirect").text(), "d:xx");
    server.forget_log();
}

#[test]
fn a_break_keeps_the_uri_of_proxy_pass_and_alias_out() {
    let origin = Origin::start(|_| Answer::ok("origin"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%;
             location /a/ {{ proxy_pass http://{0}/b/; rewrite ^/a/(.*)$ /c/$1 break; }}
             location /raw/ {{ proxy_pass http://{0}; }}
             location /args/ {{ proxy_pass http://{0}; set $args x; }}
             location /alias/ {{ alias %DIR%/html/; rewrite ^ /alias/x break; }} }}",
        origin.address()
    ));
    for (target, expected) in [
        ("/a/x%20y?z", "/c/x%20y?z"),
        ("/raw/%41?z", "/raw/%41?z"),
        ("/args/%41?z", "/args/A?x"),
    ] {
        assert_eq!(server.get(target).text(), "origin", "{target}");
        assert_eq!(origin.last().target(), expected, "{target}");
    }
    assert_eq!(server.get("/alias/a").status, 500);
    server.wait_for("where URI was rewritten", "the reason");
    server.forget_log();
}

#[test]
fn rewriting_is_logged_where_it_is_wanted() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; error_log %DIR%/logs/error.log notice;
             rewrite_log on;
             location /a { rewrite ^/a(.)$ /b$1?c; if ($uri ~ x) { } return 200; }
             location /r { rewrite ^/r$ /z redirect; } }",
    );
    server.get("/ab?d");
    server.get("/r");
    for text in [
        "\"^/a(.)$\" matches \"/ab\"",
        "rewritten data: \"/bb\", args: \"c&d\"",
        "\"x\" does not match \"/bb\"",
        "rewritten redirect: \"/z\"",
    ] {
        server.wait_for(text, "a line");
    }
}

#[test]
fn an_empty_uri_is_an_error() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location /a { rewrite ^/a(.*)$ $1 last; } location / { return 200 ok; } }",
    );
    assert_eq!(server.get("/a").status, 500);
    assert_eq!(server.get("/a/b").text(), "ok");
    server.wait_for("the rewritten URI has a zero length", "the reason");
    server.forget_log();
}

#[test]
fn an_internal_location_is_internal_for_every_method() {
    let origin = Origin::start(|_| Answer::ok("origin"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%;
             location /files {{ internal; limit_except POST {{ allow all; }} }}
             location /passed {{ internal; limit_except GET {{ allow all; }} proxy_pass http://{0}; }}
             location /folder/ {{ internal; proxy_pass http://{0}; }} }}",
        origin.address()
    ));
    server.file("files", "secret");
    for target in ["/files", "/passed", "/folder/", "/folder"] {
        for method in ["GET", "POST", "PUT"] {
            let reply = server.request(method, target, "");
            assert_eq!(reply.status, 404, "{method} {target}");
        }
    }
    assert_eq!(origin.received().len(), 0);
}

#[test]
fn a_body_is_not_measured_again_at_a_named_location() {
    let origin = Origin::start(|_| Answer::ok("origin"));
    let server = Server::start(&format!(
        "client_max_body_size 5;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ client_max_body_size 100; try_files $uri @app; }}
             location /page {{ client_max_body_size 100; error_page 404 = @app; }}
             location /small {{ try_files $uri @app; }}
             location @app {{ proxy_pass http://{0}; }} }}",
        origin.address()
    ));
    for (target, status) in [("/a", 200), ("/page", 200), ("/small", 413)] {
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789"
        );
        let reply = server.connect().send(request).reply();
        assert_eq!(reply.status, status, "{target}");
    }
}

#[test]
fn limit_except_is_a_scope_for_other_methods() {
    let origin = Origin::start(|_| Answer::ok("origin"));
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%;
             location / {{ limit_except GET POST {{ deny all; }} }}
             location /get/ {{ limit_except GET {{ deny all; }} }}
             location /passed/ {{ proxy_pass http://{0}/u/; limit_except POST {{ allow all; }} }}
             location /own/ {{ limit_except GET {{ proxy_pass http://{0}; }} }}
             location /rewritten {{ limit_except GET {{ allow all; }} return 204; }} }}",
        origin.address()
    ));
    server.file("a", "content");
    for (method, target, expected) in [
        ("GET", "/a", 200),
        ("HEAD", "/a", 200),
        ("POST", "/a", 405),
        ("PUT", "/a", 403),
        ("FOO", "/a", 403),
        ("POST", "/get/a", 403),
        ("GET", "/own/a", 404),
        ("PUT", "/own/a", 200),
        ("GET", "/passed/a", 200),
        ("GET", "/rewritten", 204),
        // What a location rewrites is not obeyed in the scope.
        ("PUT", "/rewritten", 405),
    ] {
        let reply = server.request(method, target, "");
        assert_eq!(reply.status, expected, "{method} {target}");
    }
    let targets: Vec<String> = origin
        .received()
        .iter()
        .map(|received| received.target().to_owned())
        .collect();
    assert_eq!(targets, ["/own/a", "/u/a"]);
    server.wait_for("access forbidden by rule", "the reason");
    server.forget_log();
}

#[test]
fn a_request_that_was_answered_goes_on_elsewhere() {
    let origin = Origin::start(|_| Answer::ok("origin"));
    let server = Server::start(&format!(
        "log_format after '$uri $status'; access_log %DIR%/logs/after.log after;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ post_action /done; }}
             location /named {{ post_action @done; return 200 named; }}
             location /if {{ if ($arg_a) {{ post_action /done; }} return 200 if; }}
             location /closed {{ post_action /done; return 444; }}
             location /round {{ post_action /round; return 200 round; }}
             location /done {{ internal; proxy_pass http://{0}/done?$uri-$request_uri-$body_bytes_sent-$request_completion; }}
             location @done {{ proxy_pass http://{0}; }} }}",
        origin.address()
    ));
    server.file("a", "content");
    for (target, expected) in [
        ("/a", Some("/done?/done-/a-7-OK")),
        ("/none", Some("/done?/done-/none-LENGTH-OK")),
        ("/named?b", Some("/named?b")),
        ("/if?a=1", Some("/done?/done-/if?a=1-2-OK")),
        ("/if", None),
        ("/round", None),
    ] {
        let before = origin.received().len();
        let mut connection = server.connect();
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let reply = connection.send(&head).reply();
        let expected = expected.map(|text| text.replace("LENGTH", &reply.text().len().to_string()));
        // The next request of a connection is served behind it. What leads into a circle ends it.
        let next = if target == "/round" {
            &mut server.connect()
        } else {
            &mut connection
        };
        next.send("GET /if HTTP/1.1\r\nHost: a\r\n\r\n").reply();
        let all = origin.received();
        let last = all.get(before).map(|received| received.target());
        assert_eq!(last, expected.as_deref(), "{target}");
    }
    assert_eq!(server.raw("GET /closed HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    server.access_log(13);
    let log = server.read("logs/after.log");
    assert!(
        log.starts_with("/done 200\n/if 200\n/done 404\n/if 200\n/named 200\n"),
        "{log}"
    );
    assert!(log.ends_with("/closed 444\n"), "{log}");
    server.wait_for(
        "cycle while internally redirecting to \"/round\"",
        "the reason",
    );
    server.forget_log();
}

#[test]
fn an_if_keeps_the_cache_of_its_location() {
    let origin =
        Origin::start(|_| Answer::with("200 OK", "Cache-Control: max-age=100\r\n", "origin"));
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=one:1m;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ proxy_pass http://{0}/up/; proxy_cache one; proxy_cache_key $scope$uri;
                 add_header X-Cache $upstream_cache_status;
                 set $scope outer; set $skip \"\"; if ($arg_a) {{ set $scope inner; }}
                 if ($arg_skip) {{ set $skip 1; }} proxy_cache_bypass $skip; }} }}",
        origin.address()
    ));
    for (target, expected) in [
        ("/x", "MISS"),
        ("/x?b=1", "HIT"),
        ("/x?a=1", "MISS"),
        ("/x?a=2", "HIT"),
        ("/x?skip=1", "BYPASS"),
    ] {
        let reply = server.get(target);
        assert_eq!(reply.header("x-cache"), Some(expected), "{target}");
    }
    let all = origin.received();
    let targets: Vec<_> = all.iter().map(|received| received.target()).collect();
    assert_eq!(targets, ["/up/x", "/up/x?a=1", "/up/x?skip=1"]);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test may wait for the file that holds the pools"
)]
#[test]
fn a_look_at_a_file_that_waits_keeps_nobody_else() {
    if is_nginx() {
        return;
    }
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    // What lies in procfs always goes through the pool.
    let server = Server::start_on(
        site,
        "worker_processes 1;",
        "server { listen 127.0.0.1:%PORT%;
             location /slow { if (-f /proc/self/limits) { return 200 there; } return 200 none; }
             location /known { if (-f %DIR%/html/a) { return 200 there; } return 200 none; }
             location / { return 200 fine; } }",
    );
    server.file("a", "");
    assert_eq!(server.get("/known").text(), "there");
    let hold = server.site().path("hold");
    std::fs::write(&hold, "").expect("the directory is ours");
    // Until the pools stand still, a look is answered.
    let mut waiting = server.connect();
    loop {
        waiting.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        let stream = waiting.stream();
        let patience = Some(Duration::from_millis(100));
        stream.set_read_timeout(patience).expect("it is a socket");
        if stream.peek(&mut [0]).is_err() {
            break;
        }
        assert_eq!(waiting.reply().text(), "there");
    }
    assert_eq!(server.get("/").text(), "fine");
    assert_eq!(server.get("/known").text(), "there", "it is in memory");
    std::fs::remove_file(&hold).expect("it was there");
    let stream = waiting.stream();
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("it is a socket");
    assert_eq!(waiting.reply().text(), "there");
}
