//! Wrong configurations: the first line is nginx's, with the place; below it stands an excerpt.

use blackbox::{Site, is_nginx};

/// In a location, and the sentence.
const IN_A_LOCATION: &str = r#"
    try_files /a; => invalid number of arguments in "try_files" directive
    return; => invalid number of arguments in "return" directive
    return abc; => invalid return code "abc"
    return 1000; => invalid return code "1000"
    return 200 ${x; => the closing bracket in "x" variable is missing
    return 200 $; => invalid variable name
    error_page 404; => invalid number of arguments in "error_page" directive
    error_page 200 /x; => value "200" must be between 300 and 599
    error_page 700 /x; => value "700" must be between 300 and 599
    error_page abc /x; => invalid value "abc"
    error_page 404 =x /x; => invalid value "=x"
    expires 1x; => "expires" directive invalid value
    expires modified; => "expires" directive invalid value
    expires @25h; => "expires" directive daily time value must be less than 24 hours
    add_header X; => invalid number of arguments in "add_header" directive
    add_header X a sometimes; => invalid parameter "sometimes"
    allow 1.2.3.4.5; => invalid parameter "1.2.3.4.5"
    allow 1.2.3.4/33; => invalid parameter "1.2.3.4/33"
    deny; => invalid number of arguments in "deny" directive
    alias; => invalid number of arguments in "alias" directive
    alias /a; alias /b; => "alias" directive is duplicate
    root /a; alias /b; => "alias" directive is duplicate, "root" directive was specified earlier
    alias /a; root /b; => "root" directive is duplicate, "alias" directive was specified earlier
    aio threads=nosuch; => unknown thread pool "nosuch"
    aio maybe; => "aio" directive invalid value
    directio 1z; => "directio" directive invalid value
    output_buffers 0 1k; => "output_buffers" directive invalid value
    output_buffers 1; => invalid number of arguments in "output_buffers" directive
    open_file_cache inactive=1s; => "open_file_cache" must have the "max" parameter
    open_file_cache max=0; => invalid "open_file_cache" parameter "max=0"
    open_file_cache bogus; => invalid "open_file_cache" parameter "bogus"
    autoindex_format yaml; => invalid value "yaml"
    disable_symlinks maybe; => invalid parameter "maybe"
    disable_symlinks from=/a; => "disable_symlinks" must have "off", "on" or "if_not_owner" parameter
    disable_symlinks from=/a off; => "from=" cannot be used with "off" parameter
    disable_symlinks on if_not_owner; => duplicate parameters "on if_not_owner"
    etag 1; => invalid value "1" in "etag" directive, it must be "on" or "off"
    if_modified_since sometimes; => invalid value "sometimes"
    proxy_ssl_password_file /nope; => open() "/nope" failed (2: No such file or directory)
    uwsgi_ssl_password_file /nope; => open() "/nope" failed (2: No such file or directory)
    grpc_ssl_password_file /nope; => open() "/nope" failed (2: No such file or directory)
    max_ranges x; => "max_ranges" directive invalid number
    limit_rate x; => "limit_rate" directive invalid value
    internal x; => invalid number of arguments in "internal" directive
    default_type; => invalid number of arguments in "default_type" directive
    rewrite ^; => invalid number of arguments in "rewrite" directive
    rewrite ^ ""; => empty replacement
    rewrite ^ /x first; => invalid parameter "first"
    rewrite ( /x; => pcre2_compile() failed: missing closing parenthesis in "("
    set x y; => invalid variable name "x"
    set $ y; => invalid variable name "$"
    set $host y; => the duplicate "host" variable
    if ($x ~ (?<Host>.)) {} => the duplicate "Host" variable
    set $x; => invalid number of arguments in "set" directive
    break x; => invalid number of arguments in "break" directive
    if $x {} => invalid condition "$x"
    if ($x {} => invalid condition "$x"
    if (x) {} => invalid condition "x"
    if ($uri = a b) {} => invalid condition "$uri"
    if ($uri == b) {} => unexpected "==" in condition
    if ($uri ~ () {} => pcre2_compile() failed: missing closing parenthesis in "("
    if (-f a b) {} => invalid condition "-f"
    if (-y a) {} => invalid condition "-y"
    if ($nosuch) {} => unknown "nosuch" variable
    if ($uri) { if ($uri) {} } => "if" directive is not allowed here
    if ($uri) { location /x {} } => "location" directive is not allowed here
    if ($uri) { alias /x; } => "alias" directive is not allowed here
    if ($uri) { proxy_pass http://127.0.0.1/x; } => "proxy_pass" cannot have URI part in location given by regular expression, or inside named location, or inside "if" statement, or inside "limit_except" block
    limit_except GOT { deny all; } => invalid method "GOT"
    limit_except TRACE { deny all; } => invalid method "TRACE"
    limit_except GET { deny all; } limit_except PUT { deny all; } => "limit_except" directive is duplicate
    limit_except GET { return 200; } => "return" directive is not allowed here
    rewrite_log maybe; => invalid value "maybe" in "rewrite_log" directive, it must be "on" or "off"
    lingering_close maybe; => invalid value "maybe"
    keepalive_disable opera; => invalid value "opera"
    valid_referers; => invalid number of arguments in "valid_referers" directive
    valid_referers ""; => invalid referer ""
    valid_referers a..b; => invalid hostname or wildcard "a..b"
    valid_referers a.org A.org; => conflicting parameter "A.org"
    valid_referers ~; => empty regex in "~"
    valid_referers none; => the "none" or "blocked" referers are specified in the "valid_referers" directive without any valid referer
    secure_link_secret a; secure_link b; => "secure_link_secret" cannot be mixed with "secure_link" and "secure_link_md5"
    modern_browser lynx 1; => unknown browser name "lynx"
    modern_browser msie 1x; => invalid browser version "1x"
    userid maybe; => invalid value "maybe"
    userid_expires x; => "userid_expires" directive invalid value
    userid_mark ab; => "userid_mark" directive value must be "off" or a single letter, digit or "="
    userid_flags lax; => invalid value "lax"
    userid_service x; => "userid_service" directive invalid number
    empty_gif on; => invalid number of arguments in "empty_gif" directive
    proxy_pass http://[::zz]:80; => invalid IPv6 address in upstream "[::zz]:80"
    proxy_pass http://[::1]?a=b; => invalid host in upstream "[::1]?a=b"
    fastcgi_pass [::zz]:9000; => invalid IPv6 address in upstream "[::zz]:9000"
    proxy_redirect default; proxy_pass http://127.0.0.1; => "proxy_redirect default" should be placed after the "proxy_pass" directive
    proxy_pass http://127.0.0.1; location /a { proxy_redirect default; } => "proxy_redirect default" should be placed after the "proxy_pass" directive
    proxy_buffers 1 8k; => there must be at least 2 "proxy_buffers"
    proxy_buffer_size 64k; => "proxy_busy_buffers_size" must be less than the size of all "proxy_buffers" minus one buffer
    proxy_busy_buffers_size 1k; => "proxy_busy_buffers_size" must be equal to or greater than the maximum of the value of "proxy_buffer_size" and one of the "proxy_buffers"
    proxy_temp_file_write_size 1k; => "proxy_temp_file_write_size" must be equal to or greater than the maximum of the value of "proxy_buffer_size" and one of the "proxy_buffers"
    fastcgi_max_temp_file_size 1k; => "fastcgi_max_temp_file_size" must be equal to zero to disable temporary files usage or must be equal to or greater than the maximum of the value of "fastcgi_buffer_size" and one of the "fastcgi_buffers"
    random_index maybe; => invalid value "maybe" in "random_index" directive, it must be "on" or "off"
"#;

/// In a server, and the sentence.
const IN_A_SERVER: &str = r#"
    no_such on; => unknown directive "no_such"
    sendfle on; => unknown directive "sendfle"
    sendfile; => invalid number of arguments in "sendfile" directive
    sendfile on off; => invalid number of arguments in "sendfile" directive
    sendfile maybe; => invalid value "maybe" in "sendfile" directive, it must be "on" or "off"
    root; => invalid number of arguments in "root" directive
    root /a; root /b; => "root" directive is duplicate
    client_max_body_size 1x; => "client_max_body_size" directive invalid value
    keepalive_timeout 1q; => "keepalive_timeout" directive invalid value
    send_timeout -1; => "send_timeout" directive invalid value
    listen 127.0.0.1:99999; => invalid port in "127.0.0.1:99999" of the "listen" directive
    listen 127.0.0.1:x; => invalid port in "127.0.0.1:x" of the "listen" directive
    listen 18501 bogus; => invalid parameter "bogus"
    listen 18501 backlog=x; => invalid backlog "backlog=x"
    listen 18501 ipv6only=maybe; => invalid parameter "ipv6only=maybe"
    listen 18501 so_keepalive=30m1h; => invalid so_keepalive value: "30m1h"
    listen 18501 so_keepalive=0; => invalid so_keepalive value: "0"
    listen [::1:80; => invalid host in "[::1:80" of the "listen" directive
    listen 18501 default_server; } server { listen 18501 default_server; => a duplicate default server for 0.0.0.0:18501
    location / {} location / {} => duplicate location "/"
    location ~ ( { } => pcre2_compile() failed: missing closing parenthesis in "("
    location foo bar baz {} => invalid number of arguments in "location" directive
    location /a { location /b {} } => location "/b" is outside location "/a"
    location ~ /a { location = /b {} } => location "/b" is outside location "/a"
    location = /a { location /a/b {} } => location "/a/b" cannot be inside the exact location "/a"
    location @x { location /b {} } => location "/b" cannot be inside the named location "@x"
    location / { location @x {} } => named location "@x" can be on the server level only
    server_name ~(; => pcre2_compile() failed: missing closing parenthesis in "("
    server_name *a*.b; => server name "*a*.b" is invalid
    alias /x; => "alias" directive is not allowed here
    limit_except GET { deny all; } => "limit_except" directive is not allowed here
    if ($uri) { root /x; } => "root" directive is not allowed here
    if ($uri) { return 1000; } => invalid return code "1000"
    proxy_cache nosuch; => "proxy_cache" zone "nosuch" is unknown
    proxy_cache_valid 700 1m; => invalid status "700"
    proxy_cache_valid 200 x; => invalid time value "x"
    proxy_cache_use_stale sometimes; => invalid value "sometimes"
    proxy_cache_methods PUT; => invalid value "PUT"
    proxy_cache_min_uses x; => "proxy_cache_min_uses" directive invalid number
    proxy_cache_lock maybe; => invalid value "maybe" in "proxy_cache_lock" directive, it must be "on" or "off"
    proxy_cache_max_range_offset x; => "proxy_cache_max_range_offset" directive invalid value
    proxy_cache_bypass; => invalid number of arguments in "proxy_cache_bypass" directive
    proxy_cache_path /tmp/c keys_zone=c:1m; => "proxy_cache_path" directive is not allowed here
    large_client_header_buffers 4; => invalid number of arguments in "large_client_header_buffers" directive
    client_header_buffer_size x; => "client_header_buffer_size" directive invalid value
    max_headers x; => "max_headers" directive invalid number
    server_tokens maybe; => invalid value "maybe"
    underscores_in_headers 1; => invalid value "1" in "underscores_in_headers" directive, it must be "on" or "off"
"#;

/// Whole texts (`\n` ends a line), the sentence, and its line; 0: nginx names none.
const WHOLE: &str = r#"
    events {}\nhttp {\n server {\n => unexpected end of file, expecting "}" => 4
    events {}\nhttp {\n server { listen 80 } \n}\n => unexpected "}" => 3
    events {}\n}\n => unexpected "}" => 2
    events {}\nhttp {}\nhttp {}\n => "http" directive is duplicate => 3
    events {}\nhttp { root "abc; }\n => unexpected end of file, expecting ";" or "}" => 3
    events {}\nhttp { root "abc"d; }\n => unexpected "d" => 2
    events {};\nhttp {}\n => unexpected ";" => 1
    events {}\nhttp { ; }\n => unexpected ";" => 2
    events {}\nhttp { sendfile on\n}\n => unexpected "}" => 3
    events {}\nserver { listen 80; }\n => "server" directive is not allowed here => 2
    events {}\nlocation / {}\n => "location" directive is not allowed here => 2
    http { sendfile on; }\n => no "events" section in configuration => 0
    events {}\nhttp { location / {} }\n => "location" directive is not allowed here => 2
    events {}\nhttp {\n    server {\n        listen 127.0.0.1:%PORT%;\n        listen 127.0.0.1:%PORT%;\n    }\n}\n => a duplicate listen 127.0.0.1:%PORT% => 5
    user a b c;\nevents {}\n => invalid number of arguments in "user" directive => 1
    worker_processes x;\nevents {}\n => "worker_processes" directive invalid value => 1
    worker_processes 1 2;\nevents {}\n => invalid number of arguments in "worker_processes" directive => 1
    worker_cpu_affinity 012;\nevents {}\n => invalid character "2" in "worker_cpu_affinity" => 1
    worker_priority x;\nevents {}\n => "worker_priority" directive invalid number => 1
    worker_rlimit_nofile x;\nevents {}\n => "worker_rlimit_nofile" directive invalid number => 1
    pid;\nevents {}\n => invalid number of arguments in "pid" directive => 1
    error_log;\nevents {}\n => invalid number of arguments in "error_log" directive => 1
    error_log logs/x nolevel;\nevents {}\n => invalid log level "nolevel" => 1
    error_log logs/x debug debug_http;\nevents {}\n => invalid log level "debug_http" => 1
    error_log syslog:server=;\nevents {}\n => no host in syslog server "" => 1
    error_log syslog:bogus;\nevents {}\n => unknown syslog parameter "bogus" => 1
    daemon maybe;\nevents {}\n => invalid value "maybe" in "daemon" directive, it must be "on" or "off" => 1
    daemon on;\ndaemon on;\nevents {}\n => "daemon" directive is duplicate => 2
    thread_pool;\nevents {}\n => invalid number of arguments in "thread_pool" directive => 1
    thread_pool a;\nevents {}\n => invalid number of arguments in "thread_pool" directive => 1
    thread_pool a threads=0;\nevents {}\n => invalid threads value "threads=0" => 1
    thread_pool a threads=1;\nthread_pool a threads=2;\nevents {}\n => duplicate thread pool "a" => 2
    env;\nevents {}\n => invalid number of arguments in "env" directive => 1
    timer_resolution x;\nevents {}\n => "timer_resolution" directive invalid value => 1
    working_directory /a /b;\nevents {}\n => invalid number of arguments in "working_directory" directive => 1
    debug_points x;\nevents {}\n => invalid value "x" => 1
    worker_shutdown_timeout x;\nevents {}\n => "worker_shutdown_timeout" directive invalid value => 1
    events { worker_connections x; }\n => invalid number "x" => 1
    events { worker_connections 1; worker_connections 2; }\n => "worker_connections" directive is duplicate => 1
    events { worker_connections 1; }\nhttp { server { listen 127.0.0.1:%PORT%; } }\n => 1 worker_connections are not enough for 1 listening sockets => 0
    events { use kqueue; }\n => invalid event type "kqueue" => 1
    events { use nosuch; }\n => invalid event type "nosuch" => 1
    events {}\nevents {}\n => "events" directive is duplicate => 2
    events x {}\n => invalid number of arguments in "events" directive => 1
    events { multi_accept maybe; }\n => invalid value "maybe" in "multi_accept" directive, it must be "on" or "off" => 1
    events { sendfile on; }\n => "sendfile" directive is not allowed here => 1
    http {}\n => no "events" section in configuration => 0
    events {}\ninclude;\n => invalid number of arguments in "include" directive => 2
    events {}\ninclude a b;\n => invalid number of arguments in "include" directive => 2
    error_log syslog:server=unix:/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx;\nevents {}\n => too long path in the unix domain socket in syslog server "unix:/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" => 1
    error_log syslog:server=nosuch.invalid;\nevents {}\n => host not found in syslog server "nosuch.invalid" => 1
    events {}\nhttp { server { listen 127.0.0.1:%PORT%; location / {\naccess_log syslog:server=nosuch.invalid:514,tag=a; } } }\n => host not found in syslog server "nosuch.invalid:514" => 3
    events {}\nhttp { upstream u { server 127.0.0.1;\nresolver nosuch.invalid; } }\n => host not found in resolver "nosuch.invalid" => 3
    events {}\nhttp { log_format a; }\n => invalid number of arguments in "log_format" directive => 2
    events {}\nhttp { log_format a 'x'; log_format a 'y'; }\n => duplicate "log_format" name "a" => 2
    events {}\nhttp { access_log logs/a combined buffer=x; }\n => invalid buffer size "x" => 2
    events {}\nhttp { access_log logs/a combined flush=1s; }\n => no buffer is defined for access_log "logs/a" => 2
    events {}\nhttp { access_log logs/a combined bogus=1; }\n => invalid parameter "bogus=1" => 2
    events {}\nhttp { access_log off; access_log logs/a combined; log_format combined 'a'; }\n => duplicate "log_format" name "combined" => 2
    events {}\nhttp { server { listen 127.0.0.1:%PORT%; large_client_header_buffers 4 100; } }\n => the "large_client_header_buffers" size must be equal to or greater than "connection_pool_size" => 2
    events {}\nhttp { server { listen 127.0.0.1:%PORT%; proxy_store ""; } }\n => empty path => 2
    events {}\nhttp { proxy_store_access user:x; }\n => invalid value "user:x" => 2
    events {}\nhttp { proxy_store_access other:r; }\n => invalid value "other:r" => 2
    events {}\nhttp { access_log; }\n => invalid number of arguments in "access_log" directive => 2
    events {}\nhttp { log_format a escape=x '$uri'; access_log logs/q a; }\n => unknown log format escaping "x" => 2
    events {}\nhttp {\naccess_log logs/a late;\nlog_format late 'x'; }\n => unknown log format "late" => 3
    events {}\nhttp { server { location / { if ($uri) {\naccess_log logs/a late; } } }\nlog_format late 'x'; }\n => unknown log format "late" => 3
    events {}\nhttp { map $uri { default 1; } }\n => invalid number of arguments in "map" directive => 2
    events {}\nhttp { map $uri x { default 1; } }\n => invalid variable name "x" => 2
    events {}\nhttp { map $uri $x { default 1; default 2; } }\n => duplicate default map parameter => 2
    events {}\nhttp { map $uri $x { a b c; } }\n => invalid number of the map parameters => 2
    events {}\nhttp { map $uri $x { ~( 1; } }\n => pcre2_compile() failed: missing closing parenthesis in "(" => 2
    events {}\nhttp { map $uri $x { a 1; a 2; } }\n => conflicting parameter "a" => 2
    events {}\nhttp { map $uri $uri { a 1; } }\n => the duplicate "uri" variable => 2
    events {}\nhttp { geo $URI { default 1; } }\n => the duplicate "URI" variable => 2
    events {}\nhttp { server { location ~ (?<uri>x) {} } }\n => the duplicate "uri" variable => 2
    events {}\nhttp { split_clients $uri $x { 60% a; 60% b; } }\n => percent total is greater than 100% => 2
    events {}\nhttp { split_clients $uri $x { x a; } }\n => invalid percent value "x" => 2
    events {}\nhttp { split_clients $uri { 1% a; } }\n => invalid number of arguments in "split_clients" directive => 2
    events {}\nhttp { proxy_cache_path c; }\n => invalid number of arguments in "proxy_cache_path" directive => 2
    events {}\nhttp { proxy_cache_path c inactive=1m; }\n => "proxy_cache_path" must have "keys_zone" parameter => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c; }\n => invalid keys zone size "keys_zone=c" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:x; }\n => invalid keys zone size "keys_zone=c:x" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1k; }\n => keys zone "c" is too small => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m levels=3; }\n => invalid "levels" "levels=3" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m use_temp_path=x; }\n => invalid use_temp_path value "use_temp_path=x", it must be "on" or "off" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m inactive=x; }\n => invalid inactive value "inactive=x" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m max_size=x; }\n => invalid max_size value "max_size=x" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m loader_sleep=x; }\n => invalid loader_sleep value "loader_sleep=x" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m bogus=1; }\n => invalid parameter "bogus=1" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m; proxy_cache_path d keys_zone=c:1m; }\n => duplicate zone "c" => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m; proxy_cache_path d keys_zone=c:2m; }\n => the size 2097152 of shared memory zone "c" conflicts with already declared size 1048576 => 2
    events {}\nhttp { proxy_cache_path c keys_zone=c:1m; fastcgi_cache_path d keys_zone=c:1m; }\n => the shared memory zone "c" is already declared for a different use => 2
    events {}\nhttp { limit_req_zone $uri zone=z:1m rate=1r/s;\nupstream u { zone z 1m; server 127.0.0.1; } }\n => the shared memory zone "z" is already declared for a different use => 3
    events {}\nhttp { ssl_session_cache shared:z:1m;\nserver { limit_conn z 1; } }\n => the shared memory zone "z" is already declared for a different use => 3
    events {}\nhttp { server { listen %PORT%; } sendfile; }\n => invalid number of arguments in "sendfile" directive => 2
    events {}\nhttp { default_type a b; }\n => invalid number of arguments in "default_type" directive => 2
    events {}\nhttp { server x {} }\n => invalid number of arguments in "server" directive => 2
    events {}\nhttp { server; }\n => directive "server" has no opening "{" => 2
    events {}\nhttp { sendfile { on; } }\n => directive "sendfile" is not terminated by ";" => 2
    events {}\nhttp { types x; }\n => directive "types" has no opening "{" => 2
    events {}\nhttp { server { listen %PORT%; location / { try_files /a =x; } } }\n => invalid code "=x" => 2
    events {}\nhttp { server { listen %PORT%; location / { index ''; } } }\n => index "" in "index" directive is invalid => 2
    events {}\nhttp { server { listen %PORT%; location / { limit_except GET } } }\n => unexpected "}" => 2
"#;

#[test]
fn names_that_differ_in_bytes_that_are_no_utf_8_are_different() {
    let site = Site::new();
    let text = |pass: &[u8]| {
        [
            b"events {} http { upstream a\xff { server 127.0.0.1; } upstream a\xfe { server 127.0.0.1; }
              server { listen 127.0.0.1:",
            site.fill("%PORT%").as_bytes(),
            b"; location / { proxy_pass http://a",
            pass,
            b"; } } }",
        ]
        .concat()
    };
    for (pass, is_known) in [(&b"\xff"[..], true), (b"\xfe", true), (b"\xfd", false)] {
        #[expect(clippy::disallowed_methods, reason = "a test")]
        std::fs::write(site.path("nginx.conf"), text(pass)).unwrap();
        let (status, said) = site.run(&["-t"]);
        assert_eq!(status.success(), is_known, "{said}");
    }
}

fn check(site: &Site, text: &str, sentence: &str, line: &str) {
    site.configure(text);
    let (status, said) = site.run(&["-t"]);
    let first = match line {
        "0" => format!("nginx: [emerg] {sentence}"),
        _ => format!("nginx: [emerg] {sentence} in %DIR%/nginx.conf:{line}"),
    };
    assert_eq!(status.code(), Some(1), "{text}\n{said}");
    let told = said.lines().find(|line| line.starts_with("nginx: ["));
    assert_eq!(told, Some(&*site.fill(&first)), "{text}");
    if line != "0" && !is_nginx() {
        assert!(said.contains(" | "), "{text}\n{said}");
    }
}

/// The rows of a table, as lines and sentence.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = table.lines().filter(|row| !row.is_empty());
    rows.map(|row| {
        row.trim_start()
            .split_once(" => ")
            .expect("a row has two parts")
    })
}

#[test]
fn in_a_location_they_are_refused_with_nginx_s_sentence() {
    let site = Site::new();
    for (lines, sentence) in rows(IN_A_LOCATION) {
        let text = format!(
            "events {{}}\nhttp {{\nserver {{ listen 127.0.0.1:%PORT%;\nlocation / {{\n{lines} }} }} }}"
        );
        check(&site, &text, sentence, "5");
    }
}

#[test]
fn in_a_server_they_are_refused_with_nginx_s_sentence() {
    let site = Site::new();
    for (lines, sentence) in rows(IN_A_SERVER) {
        let text =
            format!("events {{}}\nhttp {{\nserver {{\nlisten 127.0.0.1:%PORT%;\n{lines} }} }}");
        check(&site, &text, sentence, "5");
    }
}

#[test]
fn anywhere_they_are_refused_with_nginx_s_sentence() {
    let site = Site::new();
    for (text, rest) in rows(WHOLE) {
        let (sentence, line) = rest.split_once(" => ").expect("a row has three parts");
        check(&site, &text.replace("\\n", "\n"), sentence, line);
    }
}

#[test]
fn what_is_not_built_is_told_with_what_does_its_work_until_then() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    for (http, sentence, until_then) in [
        (
            "server { listen 127.0.0.1:%PORT% quic; }",
            "the \"quic\" parameter requires ngx_http_v3_module, which is not built yet",
            "HTTP/3",
        ),
        (
            "server { location / { memcached_pass 127.0.0.1:11211; } }",
            "\"memcached_pass\" directive of nginx is not built yet",
            "keep its answers with \"proxy_cache\"",
        ),
        (
            "modsecurity on;",
            "unknown directive \"modsecurity\"",
            "it belongs to ModSecurity-nginx, which is not built in: put it in front",
        ),
        (
            "server { location /purge/ { proxy_cache_purge zone $uri; } }",
            "\"proxy_cache_purge\" directive has a value that holds for every request: \"zone\"",
            "let a \"map\" say which requests are orders to delete",
        ),
        (
            "server { fastcgi_cache_purge PURGE from 127.0.0.1; }",
            "\"fastcgi_cache_purge\" directive has a value that holds for every request: \"PURGE\"",
            "ngx_cache_purge",
        ),
        (
            "server { ssl on; }",
            "unknown directive \"ssl\"",
            "nginx took it away with 1.25.1",
        ),
    ] {
        site.configure(&format!("events {{ }} http {{ {http} }}"));
        let (status, said) = site.run(&["-t"]);
        assert!(!status.success());
        assert!(said.contains(&format!("[emerg] {sentence} in ")), "{said}");
        let help = said.lines().find(|line| line.contains("= help: "));
        assert!(help.is_some_and(|help| help.contains(until_then)), "{said}");
    }
}
