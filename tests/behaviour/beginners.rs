//! Mistakes of those who write their first configuration: nginx's sentence, and beside it what helps.

use std::os::unix::net::UnixListener;
use std::process::Command;

use blackbox::{Server, Site, binary, is_nginx};

/// Whole texts (`\n` ends a line), nginx's sentence, what the help says; in the order in which they are made.
const MISTAKES: &str = r##"
    events {}\nhttp {\nserver {\nlisten 127.0.0.1:%PORT%\nserver_name a.b;\n}\n}\n => invalid parameter "server_name" => is a ";" missing before "server_name", at the end of line 4?
    events {}\nhttp {\nserver {\nroot /srv\nindex index.html;\n}\n}\n => invalid number of arguments in "root" directive => is a ";" missing before "index", at the end of line 4?
    events {}\nhttp {\nserver {\nroot /srv\nlocation / {\n}\n}\n}\n => directive "root" is not terminated by ";" => is a ";" missing before "location", at the end of line 4?
    events {}\nhttp {\nserver {\nlocation / {\nproxy_pass http://127.0.0.1:3000\n}\n}\n}\n => unexpected "}" => is a ";" missing behind the directive "proxy_pass"?
    events {}\nhttp {\n  server {\n    location /a {\n      return 200;\n    location /b {\n      return 200;\n    }\n  }\n}\n => unexpected end of file, expecting "}" => is a "}" missing before line 6? The block "location" of line 4
    events {}\nhttp {\n  server {\n    listen 127.0.0.1:%PORT%;\n  server {\n    listen 127.0.0.1:%PORT%;\n  }\n}\n => "server" directive is not allowed here => is a "}" missing before line 5? The block "server" of line 3
    events {\n  worker_connections 512;\nhttp {\n}\n => "http" directive is not allowed here => is a "}" missing before line 3? The block "events" of line 1
    events {}\nhttp {\n  server {\n    location /a {\n    }\n    }\n    listen 127.0.0.1:%PORT%;\n  }\n}\n => "listen" directive is not allowed here => is the "}" of line 6 one too many?
    events {}\nhttp {\nserver {\nlocation / { proxy_pass 127.0.0.1:3000; }\n}\n}\n => invalid URL prefix => did you mean "http://127.0.0.1:3000"?
    events {}\nhttp {\nserver {\nlocation / { proxy_pass ws://127.0.0.1:3000; }\n}\n}\n => invalid URL prefix => did you mean "http://127.0.0.1:3000"?
    events {}\nhttp {\nserver {\nif ($host == "a.b") { return 403; }\n}\n}\n => unexpected "==" in condition => equality is "=" here
    events {}\nhttp {\nserver {\nif ($host = a && $uri = /b) { return 403; }\n}\n}\n => invalid condition "$host" => an "if" has one condition
    events {}\nhttp {\nserver {\nif($host = a) { return 403; }\n}\n}\n => unknown directive "if($host" => a space must stand between "if" and "("
    events {}\nhttp {\nserver {\nif ($host = a) { return 403; } else { return 200; }\n}\n}\n => unknown directive "else" => there is no "else"
    events {}\nhttp {\n// a comment\nserver { }\n}\n => unknown directive "//" => a comment begins with "#"
    events {}\nhttp {\n/* a comment */\nserver { }\n}\n => unknown directive "/*" => a comment begins with "#"
    events {}\nhttp {\nserver { root /srv; // a comment\n}\n}\n => unexpected "}" => a comment begins with "#"
    events {}\nhttp {\nserver { add_header X “a b”; }\n}\n => invalid parameter "b”" => “ is a quote of typesetting
    %BOM%events {}\nhttp {}\n => unknown directive "%BOM%events" => the file begins with a byte order mark
    events {}\nhttp {\nserver { root%NBSP%/srv; }\n}\n => unknown directive "root%NBSP%/srv" => a character that looks like a space stands here (U+00A0)
    events {}\nhttp {\nserver { rооt /srv; }\n}\n => unknown directive "rооt" => "о" (U+043E) is no ASCII letter
    events {}\nhttp {\nlimit_req_zone $uri zone=one:1m rate=1r/s;\nserver { limit_req zone=oen; }\n}\n => zero size shared memory zone "oen" => nginx.conf:4 names it; did you mean "one"?
    events {}\nhttp {\nserver { limit_req zone=one; }\n}\n => zero size shared memory zone "one" => no "limit_req_zone" declares it
    events {}\nhttp {\nlimit_conn_zone $uri zone=one:1m;\nserver { limit_conn per_address 1; }\n}\n => zero size shared memory zone "per_address" => "limit_conn_zone" declares "one"
    events {}\nhttp {\nproxy_cache_path c keys_zone=cache:1m;\nserver { proxy_cache cahce; }\n}\n => "proxy_cache" zone "cahce" is unknown => did you mean "cache"?
    events {}\nhttp {\nserver { access_log logs/a.log combinde; }\n}\n => unknown log format "combinde" => did you mean "combined"?
    events {}\nhttp {\nupstream backend { server 127.0.0.1:1; }\nserver { location / { proxy_pass http://backned; } }\n}\n => host not found in upstream "backned" => did you mean "backend"?
    http {\n}\n => no "events" section in configuration => put a line "events { }"
    events {}\nhttp {\nserver { return 200 $geoip_country_code; }\n}\n => unknown "geoip_country_code" variable => databases of MaxMind's GeoIP is not built yet
    events {}\nhttp {\nserver { return 200 $http3; }\n}\n => unknown "http3" variable => HTTP/3 is not built yet
    events {}\nhttp {\nserver { return 200 $geoip2_data_city; }\n}\n => unknown "geoip2_data_city" variable => it belongs to ngx_http_geoip2_module
    events {}\nhttp {\nserver { return 200 $requst_uri; }\n}\n => unknown "requst_uri" variable => did you mean "$request_uri"?
    events {}\nhttp {\nserver { location / { content_by_lua_block { } } }\n}\n => unknown directive "content_by_lua_block" => it belongs to lua-nginx-module
    events {}\nhttp {\nserver { passenger_enabled on; }\n}\n => unknown directive "passenger_enabled" => it belongs to Passenger
    events {}\nhttp {\nserver { location ~ ^/\d{3}$ { return 200; } }\n}\n => unknown directive "3}$" => put the whole pattern in quotes
    events {}\nhttp {\nserver { add_header X "abc; }\n}\n => unexpected end of file, expecting ";" or "}" => the quote " that opens here is never closed
    events {}\nhttp {\nserver { listen: 80; }\n}\n => unknown directive "listen:" => did you mean "listen"?
    events {}\nhttp {\nclient_max_body_size 10MB;\n}\n => "client_max_body_size" directive invalid value => a size is a number, with "k", "m" or "g" behind it
"##;

/// Directives of modules from outside, and whose they are.
const FOREIGN: &str = "
    access_by_lua_block lua-nginx-module
    js_import njs
    geoip2 ngx_http_geoip2_module
    rtmp nginx-rtmp-module
    vhost_traffic_status_zone nginx-module-vts
    modsecurity ModSecurity-nginx
    SecRulesEnabled naxsi
    pagespeed ngx_pagespeed
    fancyindex ngx-fancyindex
    echo echo-nginx-module
    set_md5 set-misc-nginx-module
    subs_filter ngx_http_substitutions_filter_module
    passenger_enabled Passenger
    upload_pass nginx-upload-module
    cache_purge_response_type ngx_cache_purge
";

#[test]
fn thirty_six_mistakes_have_nginx_s_sentence_and_what_helps() {
    let site = Site::new();
    let rows: Vec<&str> = MISTAKES.lines().map(str::trim_start).collect();
    assert!(rows.iter().filter(|row| !row.is_empty()).count() >= 36);
    for row in rows.into_iter().filter(|row| !row.is_empty()) {
        let row = row.replace("%BOM%", "\u{feff}").replace("%NBSP%", "\u{a0}");
        let parts: Vec<&str> = row.split(" => ").collect();
        let [text, sentence, help] = parts[..] else {
            panic!("a row has three parts: {row}")
        };
        site.configure(&text.replace("\\n", "\n"));
        let (status, said) = site.run(&["-t"]);
        assert_eq!(status.code(), Some(1), "{text}\n{said}");
        let told = said
            .lines()
            .find(|line| line.starts_with("nginx: [emerg] "));
        let told = told.unwrap_or_default();
        assert!(
            told.starts_with(&format!("nginx: [emerg] {sentence}")),
            "{text}\n{said}"
        );
        if !is_nginx() {
            let helps = |line: &&str| {
                line.trim_start()
                    .trim_start_matches("= help: ")
                    .contains(help)
            };
            let line = said.lines().find(helps);
            assert!(line.is_some(), "{text}\n{said}");
        }
    }
}

#[test]
fn directives_of_modules_from_outside_name_their_module() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    for row in FOREIGN.lines().filter(|row| !row.trim().is_empty()) {
        let (name, module) = row.trim().split_once(' ').unwrap();
        site.configure(&format!("events {{}} http {{ {name} on; }}"));
        let (status, said) = site.run(&["-t"]);
        assert!(!status.success());
        assert!(said.contains(&format!("[emerg] unknown directive \"{name}\"")));
        assert!(
            said.contains(&format!("it belongs to {module}, ")),
            "{said}"
        );
    }
}

#[test]
fn a_line_that_is_swallowed_without_an_error_is_warned_of() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    for (server, is_warned) in [
        ("server_name a.b\nroot /srv;", true),
        ("server_name a.b\n    www.a.b;", false),
        ("index index.html\nerror_page 404 /x;", true),
        ("index index.html\n    index;", false),
        ("root “/srv/www”;", true),
        ("root \"/srv/“quoted”\";", false),
    ] {
        site.configure(&format!(
            "events {{}}\nhttp {{\nserver {{\nlisten 127.0.0.1:%PORT%;\n{server}\n}}\n}}\n"
        ));
        let (status, said) = site.run(&["-t"]);
        assert!(status.success(), "{said}");
        assert_eq!(said.contains("freewheel: [warn] "), is_warned, "{said}");
    }
}

#[test]
fn what_has_the_port_is_told() {
    if is_nginx() {
        return;
    }
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 204; }");
    let site = Site::new();
    let port = server.site().port(0);
    site.configure(&format!(
        "daemon off; events {{}} http {{ server {{ listen 127.0.0.1:{port}; }} }}"
    ));
    let (status, said) = site.run(&[]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!(
            "nginx: [emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)"
        )),
        "{said}"
    );
    let told = said
        .lines()
        .find(|line| line.starts_with("  = help: process "));
    let program = binary().file_name().expect("a file").display();
    assert!(
        told.is_some_and(|told| told.ends_with(&format!(
            "({program}) listens on 127.0.0.1:{port}: stop it, or let \"listen\" name another port"
        ))),
        "{said}"
    );
}

#[test]
fn a_directory_of_logs_that_is_not_there_is_told_with_what_makes_it() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "error_log none/error.log; events {} http { server { listen 127.0.0.1:%PORT%; } }",
    );
    let (status, said) = site.run(&["-t"]);
    assert_eq!(status.code(), Some(1));
    assert!(
        said.contains(&site.fill(
            "nginx: [emerg] open() \"%DIR%/none/error.log\" failed (2: No such file or directory)"
        )),
        "{said}"
    );
    assert!(
        said.contains(
            &site.fill("= help: there is no directory \"%DIR%/none\": mkdir -p \"%DIR%/none\"")
        ),
        "{said}"
    );
}

#[test]
fn words_that_are_no_command_are_answered_with_the_right_call() {
    if is_nginx() {
        return;
    }
    let run = |word: &str| {
        let output = Command::new(blackbox::binary()).arg(word).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    for (word, call) in [
        ("run", "freewheel -c FILE"),
        ("start", "freewheel -c FILE"),
        ("validate", "freewheel -t -c FILE"),
        ("test", "freewheel -t -c FILE"),
        ("stop", "freewheel -s quit"),
        ("reload", "freewheel -s reload"),
        ("status", "freewheel top URL"),
        ("srve", "did you mean \"serve\"?"),
        ("nonsense", "freewheel serve DIR"),
    ] {
        let (is_done, _, said) = run(word);
        assert!(!is_done, "{word}");
        assert!(
            said.starts_with(&format!("freewheel: there is no command \"{word}\"\n")),
            "{said}"
        );
        assert!(said.contains(call) && said.contains("Commands:"), "{said}");
        assert!(!said.contains("nginx:"), "{said}");
    }
    let (is_done, told, _) = run("help");
    assert!(is_done && told.starts_with("Usage: freewheel "), "{told}");
    let (is_done, told, _) = run("version");
    assert!(is_done && told.starts_with("freewheel version: "), "{told}");
}

#[test]
fn directives_without_effect_are_one_line_but_in_a_test() {
    if is_nginx() {
        return;
    }
    let lines =
        "debug_points stop; events { debug_connection ::1; worker_aio_requests 32; use epoll; }";
    let met = "types_hash_max_size 1024; server_names_hash_bucket_size 64; gzip_buffers 16 8k;";
    let site = Site::new();
    site.configure(&format!(
        "pid %DIR%/nginx.pid; daemon off; error_log logs/error.log warn; {lines} http {{ {met} server {{ listen 127.0.0.1:%PORT%; return 204; }} }}"
    ));
    let (status, said) = site.run(&["-t"]);
    assert!(status.success());
    assert_eq!(said.matches("freewheel: [warn] ").count(), 3, "{said}");
    assert!(said.contains("\"debug_points\" directive is ignored: "));
    let server = site.start().unwrap_or_else(|refused| panic!("{refused:?}"));
    assert_eq!(server.get("/").status, 204);
    let told = server.read("stderr");
    let sum = "freewheel: [warn] 3 directives have no effect here; freewheel -t shows them\n";
    assert_eq!(told, sum);
    let log = server.error_log();
    assert_eq!(log.matches("no effect").count(), 1, "{log}");
    assert!(!log.contains("is ignored"), "{log}");
}

#[test]
fn a_server_is_not_told_to_stop_its_own_worker() {
    if is_nginx() {
        return;
    }
    let server = Server::start("server { listen 127.0.0.1:%PORT%; return 200 one; }");
    server.reload_file(
        "daemon off; pid nginx.pid; error_log logs/error.log info; events {}
         http { server { listen %PORT%; return 200 two; } }",
    );
    let port = server.site().port(0);
    server.wait_for(
        &format!("this server itself listens on 127.0.0.1:{port}: an address and its wildcard cannot change places"),
        "the hint",
    );
    let log = server.error_log();
    assert!(!log.contains("stop it"), "{log}");
    assert_eq!(server.get("/").text(), "one");
    server.forget_log();
}

#[test]
fn a_socket_file_that_a_killed_server_left_is_told_as_such() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let path = site.path("socket");
    let refused = || {
        let (status, said) = site.run(&[]);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(
            said.contains("failed (98: Address already in use)"),
            "{said}"
        );
        said
    };
    site.configure("daemon off; events {} http { server { listen unix:%DIR%/socket; } }");
    let left = UnixListener::bind(&path).expect("the directory can be written");
    let said = refused();
    assert!(said.contains(") listens on unix:"), "{said}");
    drop(left);
    let said = refused();
    let advice = site.fill(
        "= help: nothing listens there, the file is left over from a server that was killed: \
         remove it (rm \"%DIR%/socket\")",
    );
    assert!(said.contains(&advice), "{said}");
}

#[test]
fn a_server_without_file_descriptors_says_what_it_wanted_one_for() {
    if is_nginx() {
        return;
    }
    let site = Site::new().run_by(&["sh", "-c", "ulimit -n 26; exec \"$0\" \"$@\""]);
    site.configure(
        "daemon off; pid nginx.pid; worker_processes 2; events {}
         http { server { listen 127.0.0.1:%PORT%; } }",
    );
    let (status, said) = site.run(&[]);
    assert!(!status.success(), "{said}");
    assert!(
        said.contains("cannot be started (24: Too many open files)"),
        "{said}"
    );
}
