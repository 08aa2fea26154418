//! `--explain-url`: what becomes of a request, with the lines that say so. Freewheel's own.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::tls::Certificate;
use blackbox::{Site, is_nginx};

const CONFIGURATION: &str = "
events { }
thread_pool big threads=3;
http {
    types { text/html html; }
    upstream app { server 127.0.0.1:%PORT2%; server 127.0.0.1:%PORT3%; }
    proxy_cache_path %DIR%/cache keys_zone=one:1m levels=1:2;
    map $arg_lang $lang { default en; de german; }
    server { listen 127.0.0.1:%PORT%; server_name other; return 404; }
    server {
        listen 127.0.0.1:%PORT%;
        server_name example.com ~^(?<who>[a-z]+)\\.example\\.net$;
        root %DIR%/html;
        error_page 404 /404.html;
        location / {
            try_files $uri $uri/ =404;
            expires 1h;
        }
        location /old {
            rewrite ^/never /x;
            rewrite ^/old/(.*)$ /new/$1 last;
        }
        location /new {
            if ($arg_x = 1) {
                return 403;
            }
            return 200 \"$lang $who\";
        }
        location ~ \\.php$ {
            allow 10.0.0.0/8;
            deny all;
        }
        location ^~ /app/ {
            aio threads=big;
            proxy_pass http://app/v1/;
            proxy_set_header X-Lang $lang;
            proxy_cache one;
        }
    }
}
";

fn site() -> Site {
    let site = Site::new();
    site.configure(CONFIGURATION);
    site.file("a.html", "a");
    site.file("d/index.html", "index");
    site
}

/// What is told of a URL, with single blanks.
fn told(site: &Site, host: &str, path: &str, more: &[&str]) -> String {
    let url = site.fill(&format!("http://{host}:%PORT%{path}"));
    let arguments = [&["-t", "--explain-url", &url], more].concat();
    let (status, text) = site.run(&arguments);
    assert!(status.success(), "{text}");
    let text = text.replace(&site.fill("%DIR%/"), "");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The number of the line of the configuration that begins so, as it is told.
fn line(text: &str) -> String {
    let number = CONFIGURATION
        .lines()
        .position(|line| line.trim().starts_with(text));
    format!(
        "nginx.conf:{}: {text}",
        number.expect("it stands there") + 1
    )
}

#[track_caller]
fn assert_told(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for one in wanted {
        let at = rest
            .find(one)
            .unwrap_or_else(|| panic!("\"{one}\" is not told, or not there:\n{text}"));
        rest = &rest[at + one.len()..];
    }
}

#[test]
fn a_file_is_explained_with_each_line_that_decides() {
    if is_nginx() {
        return;
    }
    let site = site();
    let text = told(&site, "example.com", "/a.html", &[]);
    assert_told(
        &text,
        &[
            "request GET /a.html HTTP/1.1",
            "server \"example.com\": one of its names",
            "location for /a.html: the longest prefix",
            &line("location / {"),
            "try_files there is what the URI names",
            &line("try_files $uri"),
            "file ",
            "html/a.html",
            &line("root "),
            "answer HTTP/1.1 200 OK",
            "Cache-Control: max-age=3600",
            &line("expires 1h;"),
            "$uri = \"/a.html\"",
        ],
    );
}

#[test]
fn what_is_missing_goes_on_with_the_error_page() {
    if is_nginx() {
        return;
    }
    let text = told(&site(), "example.com", "/none", &[]);
    assert_told(
        &text,
        &[
            "try_files nothing of it is there: 404",
            "status 404",
            &line("error_page 404"),
            "goes on with /404.html for 404",
            "location for /404.html",
            "answer HTTP/1.1 404 Not Found",
        ],
    );
    assert!(
        !text.contains("expires 1h"),
        "an answer with 404 has no lines of expires:\n{text}"
    );
}

#[test]
fn directories_and_rewrites_go_round_again() {
    if is_nginx() {
        return;
    }
    let site = site();
    let text = told(&site, "example.com", "/d/", &[]);
    assert_told(
        &text,
        &[
            "index there is a file",
            "goes on with /d/index.html",
            "answer HTTP/1.1 200 OK",
        ],
    );
    let text = told(&site, "ann.example.net", "/old/x?lang=de", &[]);
    assert_told(
        &text,
        &[
            "a regular expression among its names",
            "rewrite changes nothing",
            &line("rewrite ^/never"),
            "rewrite the URI is now /new/x?lang=de",
            &line("rewrite ^/old/"),
            "location for /new/x",
            "rewrite does not hold",
            &line("if ($arg_x"),
            "rewrite answers",
            "answer HTTP/1.1 200 OK",
            "Content-Length: 10",
            "$lang = \"german\"",
            &line("map $arg_lang"),
            "$who = \"ann\"",
        ],
    );
}

#[test]
fn access_is_judged_for_the_address_that_is_given() {
    if is_nginx() {
        return;
    }
    let site = site();
    let text = told(&site, "example.com", "/x.php", &[]);
    assert_told(
        &text,
        &[
            "the first regular expression that matches",
            "access the address is denied",
            &line("deny all;"),
            "answer HTTP/1.1 403",
        ],
    );
    let text = told(&site, "example.com", "/x.php", &["--from", "10.1.2.3"]);
    assert_told(
        &text,
        &[
            "access the address is allowed",
            &line("allow 10.0.0.0/8;"),
            "answer HTTP/1.1 404",
        ],
    );
}

#[test]
fn passwords_are_judged_and_content_from_memory_is_no_file() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "events { } http { server { listen 127.0.0.1:%PORT%; root html;
             location /gif { satisfy any; deny all; auth_basic closed; auth_basic_user_file html/users; empty_gif; }
             location /any/ { random_index on; } } }",
    );
    site.file("users", "a:{PLAIN}b\n");
    site.file("any/file", "file");
    let header = "Authorization: Basic YTpi";
    let text = told(&site, "a", "/gif", &["--header", header]);
    assert_told(
        &text,
        &[
            "auth_basic the user and the password are right",
            "nginx.conf:2: auth_basic_user_file html/users;",
            "satisfy one that lets pass is enough",
            "content a picture of one pixel",
            "answer HTTP/1.1 200",
        ],
    );
    assert!(!text.contains("file html/gif"), "{text}");
    assert_told(&told(&site, "a", "/gif", &[]), &["answer HTTP/1.1 401"]);
    let text = told(&site, "a", "/any/", &[]);
    assert_told(
        &text,
        &[
            "index any file of the directory",
            "nginx.conf:3: random_index on;",
            "file html/any/file",
        ],
    );
}

/// Nobody listens at the servers, and nobody is asked.
#[test]
fn what_is_passed_on_is_told_and_not_asked() {
    if is_nginx() {
        return;
    }
    let site = site();
    let text = told(
        &site,
        "example.com",
        "/app/list?lang=de",
        &["--method", "HEAD", "--header", "X-Own: 1"],
    );
    assert_told(
        &text,
        &[
            "request HEAD /app/list?lang=de",
            "whose ^~ keeps regular expressions from being asked",
            "content passed on",
            &line("proxy_pass "),
            "cache \"one\"",
            &line("proxy_cache one;"),
            &line("proxy_cache_path "),
            "key http://app/v1/list?lang=de",
            "entry cache/",
            "pool \"big\", 3 threads",
            &line("aio threads=big;"),
            "servers \"app\": 127.0.0.1:",
            "asks HEAD /v1/list?lang=de HTTP/1.1",
            "Host: app",
            "X-Lang: german",
            "X-Own: 1",
            "answer that of the server",
        ],
    );
    assert!(
        std::fs::read_dir(site.path("cache")).is_err(),
        "nothing is made"
    );
}

#[test]
fn what_cannot_be_explained_says_why() {
    if is_nginx() {
        return;
    }
    let site = site();
    let refused = |arguments: &[&str]| {
        let (status, text) = site.run(arguments);
        assert!(!status.success());
        text
    };
    assert!(
        refused(&["-t", "--explain-url", "http://example.com:1/"])
            .contains("nothing listens on example.com:1")
    );
    assert!(
        refused(&["-t", "--explain-url", "ftp://example.com/"])
            .contains("does not begin with http://")
    );
    assert!(refused(&["-t", "--explain-url"]).contains("--explain-url needs a value"));
    let url = site.fill("http://example.com:%PORT%/");
    assert!(
        refused(&["-t", "--explain-url", &url, "--header", "nonsense"])
            .contains("is no header line")
    );
    let bad = told(&site, "example.com", "/%zz", &[]);
    assert_told(&bad, &["refused 400"]);
}

#[test]
fn variables_are_told_in_order_with_the_line_that_used_them_and_the_value_that_they_had() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "events { }
http {
    map $http_user_agent $mobile { default 0; ~iPhone 1; }
    map $uri $never { default x; }
    add_header X-Outer 1;
    server {
        listen 127.0.0.1:%PORT%;
        root html;
        location / {
            if ($args ~ \"old\") { set $was $args; }
            rewrite ^/no/ /$never;
            set $args new;
            if ($mobile) { return 200 \"$args\"; }
            add_header X-Inner 1;
        }
        location /gone/ { add_header X-Own 1 always; }
    }
}
",
    );
    let text = told(&site, "a", "/x?old=1", &["--header", "User-Agent: iPhone"]);
    assert_told(
        &text,
        &[
            "variables $args = \"old=1\"\nnginx.conf:10: if ($args ~ ",
            "$was = \"old=1\"\nnginx.conf:10: set $was $args;",
            "$args = \"new\"\nnginx.conf:12: set $args new;",
            "$http_user_agent = \"iPhone\"\nnginx.conf:3: map $http_user_agent $mobile { … }",
            "$mobile = \"1\"\nnginx.conf:13: if ($mobile) { … }\nnginx.conf:3: map",
        ],
    );
    assert!(!text.contains("$never = "), "it was not asked for:\n{text}");
    let text = told(&site, "a", "/gone/x", &[]);
    assert_told(
        &text,
        &[
            "file there is none with this name",
            "hidden not obeyed: an inner level has lines of add_header of its own",
            "nginx.conf:5: add_header X-Outer 1;",
        ],
    );
}

#[test]
fn parameters_that_an_inner_level_hides_are_told() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "events { }
http {
    server {
        listen 127.0.0.1:%PORT%;
        fastcgi_param OUTER 1;
        location / {
            fastcgi_param INNER 2;
            fastcgi_pass 127.0.0.1:9;
        }
    }
}
",
    );
    assert_told(
        &told(&site, "a", "/", &[]),
        &[
            "INNER: 2",
            "hidden not obeyed: an inner level has lines of fastcgi_param of its own",
            "nginx.conf:5: fastcgi_param OUTER 1;",
        ],
    );
}

#[test]
fn why_an_answer_is_not_stored_is_told() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "events { } http { proxy_cache_path html/cache keys_zone=c:1m; proxy_cache c; server { listen 127.0.0.1:%PORT%;
             location / { proxy_pass http://127.0.0.1:9; } location /off { proxy_cache off; proxy_pass http://127.0.0.1:9; }
             location /valid { proxy_cache_valid 1m; proxy_pass http://127.0.0.1:9; }
             location /not { proxy_no_cache $arg_x; proxy_pass http://127.0.0.1:9; } } }",
    );
    for (path, more, expected) in [
        (
            "/",
            "GET",
            "stored if the answer says how long (Cache-Control, Expires); there is no \"proxy_cache_valid\"",
        ),
        (
            "/",
            "POST",
            "cache not asked for this method, and nothing is stored",
        ),
        ("/valid", "GET", "stored as the answer says, and these"),
        ("/not?x=1", "GET", "stored nothing: a condition holds"),
        ("/off", "GET", "cache none"),
    ] {
        let text = told(&site, "a", path, &["--method", more]);
        assert_told(&text, &[expected]);
    }
}

/// Which certificate a client is shown, and why.
#[test]
fn the_certificate_of_a_url_is_told() {
    let site = Site::new();
    Certificate::between("a.example", (2020, 2040)).write(&site, "a");
    site.configure(
        "events { } http {
         server { listen 127.0.0.1:%PORT% ssl; server_name a.example; ssl_certificate a.crt; ssl_certificate_key a.key;
             return 200 $scheme; }
         server { listen 127.0.0.1:%PORT% ssl; server_name b.example; return 200 b; }
         server { listen 127.0.0.1:%PORT% ssl; server_name no.example; ssl_reject_handshake on; }
         server { listen 127.0.0.1:%PORT2%; } }",
    );
    let told = |url: &str| {
        let (status, text) = site.run(&["-t", "--explain-url", &site.fill(url)]);
        assert!(status.success(), "{text}");
        let words: Vec<_> = text.split_whitespace().collect();
        words.join(" ")
    };
    let shown = "TLS \"a.example\" until Jan 1 00:00:00 2040 GMT, of the";
    let own = told("https://a.example:%PORT%/");
    assert!(
        own.contains(&format!(
            "{shown} server whose name the client asks for (SNI)"
        )),
        "{own}"
    );
    assert!(own.contains("ssl_certificate a.crt;"), "{own}");
    let lent = told("https://b.example:%PORT%/");
    assert!(
        lent.contains(&format!(
            "{shown} default server of this address, since the named one has none"
        )),
        "{lent}"
    );
    let other = told("https://c.example:%PORT%/");
    assert!(
        other.contains(&format!(
            "{shown} default server of this address, since no name is"
        )),
        "{other}"
    );
    let none = told("https://no.example:%PORT%/");
    assert!(
        none.contains("TLS none: the handshake is rejected"),
        "{none}"
    );
    let clear = told("https://a.example:%PORT2%/");
    assert!(
        clear.contains("TLS none: no server speaks TLS at this address"),
        "{clear}"
    );
    let plain = told("http://a.example:%PORT%/");
    assert!(
        plain.contains("TLS none: this address speaks TLS") && plain.contains("400"),
        "{plain}"
    );
}

#[test]
fn a_file_that_is_included_several_times_is_told_where_it_holds() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "events { }
http {
    server {
        listen 127.0.0.1:%PORT%;
        server_name a;
        add_header X-From a;
        include %DIR%/app.conf;
    }
    server {
        listen 127.0.0.1:%PORT%;
        server_name b;
        add_header X-From b;
        include %DIR%/app.conf;
        location /c { add_header X-Of c; include %DIR%/options.conf; }
        location /d { add_header X-Of d; include %DIR%/options.conf; }
    }
}
",
    );
    let app = "location / { return 200 text; }\n";
    std::fs::write(site.path("app.conf"), app).expect("writes");
    let options = "if ($args) { expires 1h; }\nif ($args) { return 200 text; }\n";
    std::fs::write(site.path("options.conf"), options).expect("writes");
    for (host, path, line) in [
        ("a", "/x", "nginx.conf:6: add_header X-From a;"),
        ("b", "/x", "nginx.conf:12: add_header X-From b;"),
        ("b", "/c?x", "nginx.conf:14: add_header X-Of c;"),
        ("b", "/d?x", "nginx.conf:15: add_header X-Of d;"),
    ] {
        let text = told(&site, host, path, &[]);
        assert_told(&text, &[&format!("added to its head\n{line}")]);
    }
}
