//! Answers that are compressed or decompressed on their way.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{Read as _, Write as _};
use std::sync::mpsc;

use crate::auth_basic::holdable;
use blackbox::{Answer, Exposition, Origin, Reply, Server, is_nginx};
use flate2::read::MultiGzDecoder;

fn gunzip(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut reader = MultiGzDecoder::new(body);
    reader.read_to_end(&mut text).expect("it is gzip");
    text
}

fn member(text: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(text).expect("a Vec takes all");
    writer.finish().expect("a Vec takes all")
}

/// The body as it was before it was encoded.
fn decoded(reply: &Reply) -> Vec<u8> {
    match reply.header("content-encoding") {
        None => reply.body.clone(),
        Some("gzip") => gunzip(&reply.body),
        Some("zstd") => zstd::decode_all(&reply.body[..]).expect("it is zstd"),
        Some("br") => {
            let mut text = Vec::new();
            brotli::BrotliDecompress(&mut &reply.body[..], &mut text).expect("it is brotli");
            text
        }
        Some(other) => panic!("an unknown coding {other:?}"),
    }
}

const TEXT: &[u8] = b"<p>hello, hello, hello</p>\n<p>hello, hello, hello</p>\n";

/// Text that is not all the same.
fn long_text(len: usize) -> Vec<u8> {
    let mut seed = 1_u32;
    let mut letter = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"abcdefgh"[(seed >> 29) as usize]
    };
    (0..len).map(|_| letter()).collect()
}

#[test]
fn an_answer_is_compressed_for_who_accepts_it() {
    let server = Server::start(
        "types { text/html html; text/plain txt; } gzip on; gzip_vary on;
         server { listen 127.0.0.1:%PORT%; error_page 403 /a.html;
             location /all/ { alias %DIR%/html/; gzip_types *; gzip_min_length 1; }
             location /none { return 404; }
             location /denied { return 403; }
             location /moved { return 302 /; }
             location /made { gzip_types text/plain; return 200 'hello, hello, hello, hello'; }
             location /off/ { alias %DIR%/html/; gzip off; } }",
    );
    server.file("a.html", TEXT);
    server.file("a.txt", TEXT);
    server.file("short.html", "short");
    let accepts = "Accept-Encoding: gzip\r\n";
    for (path, status, encoding, vary) in [
        ("/a.html", 200, Some("gzip"), true),
        ("/a.txt", 200, None, false),
        ("/short.html", 200, None, false),
        ("/all/a.txt", 200, Some("gzip"), true),
        ("/all/short.html", 200, Some("gzip"), true),
        ("/none", 404, Some("gzip"), true),
        ("/denied", 403, Some("gzip"), true),
        ("/moved", 302, None, false),
        ("/made", 200, Some("gzip"), true),
        ("/off/a.html", 200, None, false),
    ] {
        let plain = server.get(path);
        let reply = server.get_with(path, accepts);
        assert_eq!(reply.status, status, "{path}");
        assert_eq!(reply.header("content-encoding"), encoding, "{path}");
        assert_eq!(decoded(&reply), plain.body, "{path}");
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        for reply in [&plain, &reply] {
            let varies = reply.all("vary") == ["Accept-Encoding"];
            assert_eq!(varies, vary, "{path}: {reply:?}");
        }
        let head = server.request("HEAD", path, accepts);
        assert_eq!(head.header("content-encoding"), encoding, "HEAD {path}");
        assert_eq!(head.header("etag"), reply.header("etag"), "HEAD {path}");
        assert_eq!(
            head.header("content-length"),
            reply.header("content-length"),
            "HEAD {path}"
        );
    }
}

#[test]
fn what_is_compressed_has_neither_length_nor_ranges_and_a_weak_tag() {
    let server =
        Server::start("types { text/html html; } server { listen 127.0.0.1:%PORT%; gzip on; }");
    server.file("a.html", TEXT);
    let plain = server.get("/a.html");
    let accepts = "Accept-Encoding: gzip\r\n";
    let reply = server.get_with("/a.html", &format!("{accepts}Range: bytes=1-3\r\n"));
    assert_eq!((reply.status, decoded(&reply)), (200, TEXT.to_vec()));
    assert_eq!(reply.header("content-length"), None);
    assert_eq!(reply.header("accept-ranges"), None);
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    assert_eq!(reply.header("vary"), None);
    assert_eq!(reply.header("last-modified"), plain.header("last-modified"));
    let tag = plain.header("etag").expect("a file has one");
    assert_eq!(reply.header("etag"), Some(format!("W/{tag}").as_str()));
    let known = server.get_with("/a.html", &format!("{accepts}If-None-Match: W/{tag}\r\n"));
    assert_eq!(
        (known.status, known.header("content-encoding")),
        (304, None)
    );
    let part = server.get_with("/a.html", "Range: bytes=1-3\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &TEXT[1..4]));
}

#[test]
fn codings_are_chosen_as_nginx_chooses_them() {
    let server = Server::start(
        "types { text/html html; } default_type text/plain;
         server { listen 127.0.0.1:%PORT%; gzip on;
             location /old/ { alias %DIR%/html/; gzip_http_version 1.0; }
             location /agents/ { alias %DIR%/html/; gzip_disable msie6 'Foo.*Bar';
                 location /agents/inner/ { alias %DIR%/html/; gzip_disable Robot; } }
             location /auth/ { alias %DIR%/html/; gzip_proxied auth; }
             location /any/ { alias %DIR%/html/; gzip_proxied any; }
             location /past/ { alias %DIR%/html/; expires epoch; gzip_proxied expired; }
             location /future/ { alias %DIR%/html/; expires 1h; gzip_proxied expired; }
             location /private/ { alias %DIR%/html/; add_header Cache-Control 'a, private'; gzip_proxied private; }
             location /stored/ { alias %DIR%/html/; add_header Cache-Control 'a, private'; gzip_proxied no-store; }
             location /added/ { alias %DIR%/html/; add_header Expires 'Thu, 01 Jan 2070 00:00:01 GMT'; gzip_proxied no-store; }
             location /both/ { alias %DIR%/html/; expires epoch; add_header Expires 'Thu, 01 Jan 2070 00:00:01 GMT'; gzip_proxied no-store; }
             location /tags/ { alias %DIR%/html/; gzip_proxied no_etag; }
             location /untagged/ { alias %DIR%/html/; etag off; gzip_proxied no_etag; } }",
    );
    server.file("a.html", TEXT);
    let accepts = "Accept-Encoding: gzip\r\n";
    let proxied = "Accept-Encoding: gzip\r\nVia: 1.1 a\r\n";
    let msie = "Accept-Encoding: gzip\r\nUser-Agent: Mozilla/4.0 (compatible; MSIE 6.0)\r\n";
    let foo = "Accept-Encoding: gzip\r\nUser-Agent: a foo or bar b\r\n";
    let authorized = "Accept-Encoding: gzip\r\nVia: 1.1 a\r\nAuthorization: Basic YTph\r\n";
    for (path, lines, is_encoded) in [
        ("/a.html", accepts, true),
        ("/a.html", "Accept-Encoding: deflate, gzip;q=0.5\r\n", true),
        ("/a.html", "Accept-Encoding: gzip;q=0\r\n", false),
        ("/a.html", "Accept-Encoding: *\r\n", false),
        (
            "/a.html",
            "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n",
            false,
        ),
        ("/a.html", proxied, false),
        ("/a.html", msie, true),
        ("/agents/a.html", msie, false),
        ("/agents/a.html", foo, false),
        ("/agents/a.html", accepts, true),
        ("/agents/inner/a.html", msie, false),
        ("/agents/inner/a.html", foo, true),
        ("/auth/a.html", proxied, true),
        ("/auth/a.html", authorized, true),
        ("/any/a.html", proxied, true),
        ("/past/a.html", proxied, true),
        ("/future/a.html", proxied, false),
        ("/private/a.html", proxied, true),
        ("/stored/a.html", proxied, false),
        ("/added/a.html", proxied, true),
        ("/both/a.html", proxied, false),
        ("/tags/a.html", proxied, false),
        ("/untagged/a.html", proxied, true),
    ] {
        let reply = server.get_with(path, lines);
        let encoding = reply.header("content-encoding");
        assert_eq!(encoding.is_some(), is_encoded, "{path} {lines:?}");
        assert_eq!(decoded(&reply), TEXT, "{path} {lines:?}");
    }
    for (path, is_encoded) in [("/a.html", false), ("/old/a.html", true)] {
        let answer = server.raw(format!("GET {path} HTTP/1.0\r\n{accepts}\r\n"));
        assert_eq!(
            answer.contains("Content-Encoding: gzip"),
            is_encoded,
            "{path}"
        );
    }
}

#[test]
fn zstd_and_brotli_come_before_gzip() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "types { text/html html; } gzip on; brotli on; zstd on; gzip_vary on;
         log_format ratios '$uri $gzip_ratio $brotli_ratio $zstd_ratio'; 
         server { listen 127.0.0.1:%PORT%; access_log logs/access.log ratios;
             location /br/ { alias %DIR%/html/; zstd off; brotli_comp_level 11; brotli_window 1k; }
             location /gz/ { alias %DIR%/html/; zstd off; brotli off; }
             location /high/ { alias %DIR%/html/; zstd_comp_level 22; }
             location /low/ { alias %DIR%/html/; zstd_comp_level -7; }
             location /types/ { alias %DIR%/html/; zstd_types text/x; brotli_min_length 10000; types { text/html html; } } }",
    );
    server.file("a.html", TEXT);
    let all = "gzip, br, zstd";
    for (path, accepted, coding) in [
        ("/a.html", all, "zstd"),
        ("/a.html", "gzip, br, zstd;q=0", "br"),
        ("/a.html", "gzip, br;q=0.0, zstd;q=0", "gzip"),
        ("/a.html", "br", "br"),
        ("/br/a.html", all, "br"),
        ("/gz/a.html", all, "gzip"),
        ("/high/a.html", all, "zstd"),
        ("/low/a.html", all, "zstd"),
        ("/types/a.html", "gzip, br", "gzip"),
    ] {
        let reply = server.get_with(path, &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(
            reply.header("content-encoding"),
            Some(coding),
            "{path} {accepted}"
        );
        assert_eq!(decoded(&reply), TEXT, "{path} {accepted}");
        assert_eq!(reply.all("vary"), ["Accept-Encoding"], "{path} {accepted}");
    }
    let log = server.access_log(9);
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    let is_ratio = |text: &str, digits| {
        let fraction = text.split_once('.').map(|(_, fraction)| fraction.len());
        fraction == Some(digits) && text.parse::<f64>().is_ok_and(|ratio| ratio > 0.5)
    };
    assert!(is_ratio(lines[0][3], 3) && lines[0][1] == "-", "{log}");
    assert!(is_ratio(lines[1][2], 2) && lines[1][3] == "-", "{log}");
    assert!(is_ratio(lines[2][1], 2) && lines[2][2] == "-", "{log}");
}

#[test]
fn large_bodies_are_compressed_as_they_come() {
    let text = long_text(3_000_000);
    let body = text.clone();
    let origin = Origin::start(move |request| match request.target() {
        "/chunked" => {
            let mut answer =
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
                    .to_vec();
            for piece in body.chunks(10_007) {
                answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                answer.extend_from_slice(piece);
                answer.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"0\r\n\r\n");
            Answer::Keep(answer)
        }
        _ => Answer::with("200 OK", "Content-Type: text/html\r\n", &body),
    });
    let more = if is_nginx() {
        ""
    } else {
        "brotli on; zstd on; brotli_comp_level 4;"
    };
    let server = Server::start(&format!(
        "types {{ text/html html; }} gzip on; {more}
         server {{ listen 127.0.0.1:%PORT%; location = /a.html {{ }} location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    server.file("a.html", &text);
    let codings = if is_nginx() {
        &["gzip"][..]
    } else {
        &["gzip", "br", "zstd"]
    };
    for coding in codings {
        for path in ["/a.html", "/chunked", "/whole"] {
            let reply = server.get_with(path, &format!("Accept-Encoding: {coding}\r\n"));
            assert_eq!(reply.header("content-encoding"), Some(*coding), "{path}");
            assert!(reply.body.len() < text.len() * 3 / 4, "{path} {coding}");
            assert!(decoded(&reply) == text, "{path} {coding}");
        }
    }
}

#[test]
fn what_is_there_is_sent_while_more_is_waited_for() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(Some(wait));
    let origin = Origin::start(move |_| {
        let wait = wait.lock().unwrap().take().expect("there is one request");
        Answer::Talk(Box::new(move |mut stream| {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
            let _ = stream.write_all(&[head, TEXT].concat());
            let _ = wait.recv();
            let _ = stream.write_all(b"the end");
        }))
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; gzip on; gzip_http_version 1.0;
             location / {{ proxy_buffering off; proxy_pass http://{}; }} }}",
        origin.address()
    ));
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    client.until("\r\n\r\n");
    let mut inflate = flate2::Decompress::new_gzip(15);
    let mut text = Vec::with_capacity(1000);
    while text != TEXT {
        let byte = client.read(1);
        let flush = flate2::FlushDecompress::None;
        inflate
            .decompress_vec(&byte, &mut text, flush)
            .expect("it is gzip");
    }
    go_on.send(()).expect("the origin waits");
    let rest = client.rest();
    let flush = flate2::FlushDecompress::Finish;
    inflate
        .decompress_vec(&rest, &mut text, flush)
        .expect("it is gzip");
    assert_eq!(text, [TEXT, b"the end"].concat());
}

#[test]
fn gunzip_is_for_clients_without_gzip() {
    let server = Server::start(
        "types { text/html html; } gzip_vary on;
         server { listen 127.0.0.1:%PORT%; gzip_static always; gunzip on;
             location /again/ { alias %DIR%/html/; gzip on; }
             location /off/ { alias %DIR%/html/; gunzip off; } }",
    );
    let long = long_text(1_000_000);
    let two = [member(b"first, "), member(TEXT)].concat();
    server.file("a.html.gz", member(TEXT));
    server.file("two.html.gz", &two);
    server.file("none.html.gz", member(b""));
    server.file("long.html.gz", member(&long));
    server.file("zeros.html.gz", member(&vec![b'0'; 5_000_000]));
    for path in ["/a.html", "/again/a.html"] {
        let reply = server.get(path);
        assert_eq!(reply.header("content-encoding"), None);
        assert_eq!(reply.header("content-length"), None);
        assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
        assert_eq!(reply.body, TEXT);
        let encoded = server.get_with(path, "Accept-Encoding: gzip\r\n");
        assert_eq!(encoded.header("content-encoding"), Some("gzip"));
        assert_eq!(encoded.body, member(TEXT));
        let tag = encoded.header("etag").expect("a file has one");
        assert_eq!(reply.header("etag"), Some(format!("W/{tag}").as_str()));
        let head = server.request("HEAD", path, "");
        assert_eq!(head.header("content-encoding"), None);
        assert_eq!(head.header("content-length"), None);
    }
    assert_eq!(
        server.get("/off/a.html").header("content-encoding"),
        Some("gzip")
    );
    assert_eq!(server.get("/two.html").body, [b"first, ", TEXT].concat());
    assert_eq!(server.get("/none.html").body, b"");
    assert!(server.get("/long.html").body == long);
    assert!(server.get("/zeros.html").body == vec![b'0'; 5_000_000]);
}

#[test]
fn what_is_no_gzip_cuts_the_connection() {
    let server = Server::start(
        "types { text/html html; }
         server { listen 127.0.0.1:%PORT%; gzip_static always; gunzip on; }",
    );
    let whole = member(&long_text(100_000));
    server.file("cut.html.gz", &whole[..whole.len() - 9]);
    server.file("bad.html.gz", [&member(TEXT)[..], b"and more"].concat());
    server.file("empty.html.gz", "");
    for path in ["/cut.html", "/bad.html", "/empty.html"] {
        let answer = server.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!answer.ends_with("0\r\n\r\n"), "{path}");
        server.wait_for(&format!("\"GET {path} HTTP/1.1\""), "the reason");
    }
    // Of nothing but rubbish there is no answer at all: closed behind a head, it would be a whole one to this client.
    server.file(
        "rubbish.html.gz",
        [&member(TEXT)[..10], &[0xff; 40]].concat(),
    );
    for path in ["/empty.html", "/rubbish.html"] {
        assert_eq!(
            server.raw(format!("GET {path} HTTP/1.0\r\n\r\n")),
            "",
            "{path}"
        );
    }
    server.wait_for("inflate() ", "the reason");
    server.forget_log();
}

#[test]
fn what_came_before_the_cut_is_passed_on() {
    let whole = member(&[b'z'; 600]);
    let origin = Origin::start(move |_| {
        // The checksum is missing.
        let body = &whole[..whole.len() - 6];
        Answer::with("200 OK", "Content-Encoding: gzip\r\n", body)
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://{}; gunzip on; }} }}",
        origin.address()
    ));
    let answer = server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(answer.matches('z').count(), 600, "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
    server.wait_for("inflate() ", "the reason");
    server.forget_log();
}

/// Also where its end is known before any of it is compressed.
#[test]
fn what_came_before_the_cut_is_compressed() {
    const TOLD: &str = "Content-Type: text/html\r\nContent-Length: 60007\r\n";
    let origin = Origin::start(|_| {
        let text = TEXT.repeat(60_000 / TEXT.len() + 1);
        let head = format!("HTTP/1.1 200 OK\r\n{TOLD}\r\n");
        Answer::Close([head.as_bytes(), &text[..60_000]].concat())
    });
    let codings = match is_nginx() {
        true => &["gzip"][..],
        false => &["gzip", "zstd", "br"],
    };
    let more = if is_nginx() {
        ""
    } else {
        "zstd on; brotli on;"
    };
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; gzip on; {more} location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    for coding in codings {
        let mut client = server.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"
        ));
        let rest = client.rest();
        let at = rest.windows(4).position(|end| end == b"\r\n\r\n");
        let (text, is_whole) = unchunked(&rest[at.expect("a head") + 4..]);
        let mut came = Vec::new();
        let mut decoder: Box<dyn std::io::Read> = match *coding {
            "gzip" => Box::new(MultiGzDecoder::new(&text[..])),
            "zstd" => Box::new(zstd::Decoder::new(&text[..]).expect("it begins so")),
            _ => Box::new(brotli::Decompressor::new(&text[..], 4096)),
        };
        let _ = decoder.read_to_end(&mut came); // Its end is missing.
        assert_eq!((came.len(), is_whole), (60_000, false), "{coding}");
    }
    server.forget_log();
}

/// The data of chunks, and whether the last one is there.
fn unchunked(mut chunks: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    while let Some(at) = chunks.windows(2).position(|end| end == b"\r\n") {
        let size = std::str::from_utf8(&chunks[..at]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return (data, true);
        }
        data.extend_from_slice(&chunks[at + 2..at + 2 + size]);
        chunks = &chunks[at + 4 + size..];
    }
    (data, false)
}

#[test]
fn compressed_files_are_found_beside_others() {
    let server = Server::start(if is_nginx() {
        "types { text/html html; } gzip_vary on;
         server { listen 127.0.0.1:%PORT%; gzip_static on; location /made/ { alias %DIR%/html/; gzip on; } }"
    } else {
        "types { text/html html; } gzip_vary on;
         server { listen 127.0.0.1:%PORT%; gzip_static on; brotli_static on; zstd_static on;
             location /made/ { alias %DIR%/html/; gzip on; }
             location /always/ { alias %DIR%/html/; brotli_static always; zstd_static off; } }"
    });
    server.file("a.html", "plain");
    server.file("a.html.gz", "gz");
    server.file("alone.html.gz", "gz");
    for (accepted, body) in [("gzip", "gz"), ("br", "plain"), ("gzip;q=0", "plain")] {
        let reply = server.get_with("/a.html", &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(reply.text(), body, "{accepted}");
        assert_eq!(reply.all("vary"), ["Accept-Encoding"], "{accepted}");
    }
    for path in ["/alone.html", "/made/alone.html"] {
        let missing = server.get(path);
        assert_eq!(missing.status, 404);
        assert_eq!(missing.all("vary"), ["Accept-Encoding"], "{path}");
    }
    server.forget_log();
    if is_nginx() {
        return;
    }
    server.file("a.html.br", "br");
    server.file("a.html.zst", "zst");
    for (path, accepted, body, coding) in [
        ("/a.html", "gzip, br, zstd", "zst", Some("zstd")),
        ("/a.html", "gzip, br", "br", Some("br")),
        ("/a.html", "gzip", "gz", Some("gzip")),
        ("/a.html", "deflate", "plain", None),
        ("/always/a.html", "deflate", "br", Some("br")),
    ] {
        let reply = server.get_with(path, &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(reply.text(), body, "{path} {accepted}");
        assert_eq!(
            reply.header("content-encoding"),
            coding,
            "{path} {accepted}"
        );
    }
}

#[test]
fn a_large_body_never_keeps_its_loop() {
    if is_nginx() {
        return;
    }
    let (server, hold) = holdable(
        "types { text/html html; } gzip on; gzip_comp_level 1;
         server { listen 127.0.0.1:%PORT%; location = /metrics { metrics; } }",
    );
    let text = long_text(10 << 20);
    server.file("large.html", &text);
    server.file("some.html", &text[..100_000]);
    server.file("little.html", &text[..500]);
    let accepts = "Accept-Encoding: gzip\r\n";
    let large = |client: &mut blackbox::Connection| {
        let lines = "Host: a\r\nAccept-Encoding: gzip\r\n\r\n";
        client.send(format!("GET /large.html HTTP/1.1\r\n{lines}"));
    };
    // From here on the pool is there, and can be held.
    server.get_with("/some.html", accepts);
    server.get_with("/little.html", accepts);
    std::fs::write(&hold, "").expect("the directory is ours");
    let mut client = server.connect();
    large(&mut client);
    for _ in 0..3 {
        let reply = server.get_with("/little.html", accepts);
        assert_eq!(decoded(&reply), &text[..500], "a little body needs no pool");
    }
    std::fs::remove_file(hold).expect("it was there");
    assert!(decoded(&client.reply()) == text);
    let page = Exposition::read(&server.get("/metrics").text(), false);
    let longest = page.sum(
        "freewheel_loop_longest_poll_seconds",
        &["task=\"connection\""],
    );
    // All of it takes seconds in a build without optimisation.
    assert!(longest < 0.25, "a poll took {longest} s");
}
