//! Servers behind that speak out of turn: before they have read a body, or in another protocol.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use blackbox::gateway::{answer, end, stderr, stdout};
use blackbox::{PATIENCE, Server, is_nginx};

/// More than the sockets on the way hold.
const BODY: usize = 8 << 20;

/// A server behind: each connection is one's own to speak through. Gives its address.
fn behind(speak: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens").to_string();
    let speak = Arc::new(speak);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let speak = Arc::clone(&speak);
            std::thread::spawn(move || drop(speak(stream)));
        }
    });
    address
}

/// Reads one record of a request; gives its type and its content's length.
fn read_record(stream: &mut impl Read) -> std::io::Result<(u8, usize)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let mut rest = vec![0; length + usize::from(head[6])];
    stream.read_exact(&mut rest)?;
    Ok((head[1], length))
}

/// Up to the end of the parameters.
fn read_params(stream: &mut impl Read) -> std::io::Result<()> {
    while read_record(stream)? != (4, 0) {}
    Ok(())
}

fn post(server: &Server, path: &str) -> blackbox::Reply {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {BODY}\r\n\r\n"
    );
    let mut client = server.connect();
    client.send([head.as_bytes(), &vec![b'x'; BODY]].concat());
    client.reply()
}

#[test]
fn a_program_may_speak_before_it_has_read_the_body() {
    let program = behind(|mut stream| {
        read_params(&mut stream)?;
        stream.write_all(&stderr("a warning at the beginning"))?;
        let mut length = 0;
        loop {
            match read_record(&mut stream)? {
                (5, 0) => break,
                (_, more) => length += more,
            }
        }
        stream.write_all(&answer(format!("A: b\r\n\r\n{length}")))
    });
    let server = Server::start(&format!(
        "client_max_body_size 0; server {{ listen 127.0.0.1:%PORT%; fastcgi_read_timeout 5s;
            location / {{ fastcgi_pass {program}; }}
            location /passing {{ fastcgi_request_buffering off; fastcgi_pass {program}; }} }}"
    ));
    for path in ["/", "/passing"] {
        let reply = post(&server, path);
        let found = (reply.status, reply.text());
        assert_eq!(found, (200, BODY.to_string()), "{path}");
    }
}

#[test]
fn a_server_may_send_an_interim_head_before_it_has_read_the_body() {
    let origin = behind(|stream| {
        let mut reader = BufReader::new(&stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        (&stream).write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")?;
        let length = std::io::copy(&mut (&mut reader).take(BODY as u64), &mut std::io::sink())?;
        let text = length.to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        (&stream).write_all((head + &text).as_bytes())
    });
    let server = Server::start(&format!(
        "client_max_body_size 0; server {{ listen 127.0.0.1:%PORT%; proxy_read_timeout 5s;
            location / {{ proxy_pass http://{origin}; }}
            location /passing {{ proxy_request_buffering off; proxy_pass http://{origin}; }} }}"
    ));
    for path in ["/", "/passing"] {
        let reply = post(&server, path);
        let found = (reply.status, reply.text());
        assert_eq!(found, (200, BODY.to_string()), "{path}");
    }
}

#[test]
fn an_answer_that_comes_before_the_body_was_read_counts() {
    let program = behind(|mut stream| {
        read_params(&mut stream)?;
        stream.write_all(&answer("Status: 403\r\n\r\nno"))?;
        stream.shutdown(Shutdown::Write)?;
        // Else what was not read would end the connection before the answer is read.
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
        Ok(())
    });
    let server = Server::start(&format!(
        "client_max_body_size 0; server {{ listen 127.0.0.1:%PORT%;
            location / {{ fastcgi_pass {program}; }}
            location /passing {{ fastcgi_request_buffering off; fastcgi_pass {program}; }} }}"
    ));
    for path in ["/", "/passing"] {
        let reply = post(&server, path);
        assert_eq!((reply.status, &reply.text()[..]), (403, "no"), "{path}");
    }
}

/// As long as any body that is compressed by default.
const LONG: usize = 100;

/// Of these, nginx sends the rest of the body only where the answer is passed on as it is.
#[test]
fn a_server_may_answer_before_it_has_read_the_body_whatever_becomes_of_the_answer() {
    if is_nginx() {
        return;
    }
    let origin = behind(|stream| {
        let mut reader = BufReader::new(&stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {LONG}\r\n\r\n");
        (&stream).write_all(head.as_bytes())?;
        let length = std::io::copy(&mut (&mut reader).take(BODY as u64), &mut std::io::sink())?;
        (&stream).write_all(format!("{length:LONG$}").as_bytes())
    });
    let server = Server::start(&format!(
        "client_max_body_size 0; server {{ listen 127.0.0.1:%PORT%; proxy_read_timeout 5s;
            proxy_http_version 1.1; proxy_request_buffering off; client_body_buffer_size 16k;
            location / {{ proxy_pass http://{origin}; }}
            location /stored {{ proxy_store %DIR%/html/stored; proxy_pass http://{origin}; }}
            location /gzip {{ gzip on; proxy_pass http://{origin}; }}
            location /ssi {{ ssi on; proxy_pass http://{origin}; }}
            location /sub {{ sub_filter none some; proxy_pass http://{origin}; }}
            location /around {{ add_before_body /part; add_after_body /part; proxy_pass http://{origin}; }}
            location = /part {{ return 200 part; }}
            location /range {{ proxy_force_ranges on; proxy_pass http://{origin}; }} }}"
    ));
    let html = server.site().path("html");
    std::fs::set_permissions(html, PermissionsExt::from_mode(0o777)).expect("it is ours");
    let whole = format!("{BODY:LONG$}");
    for (path, line, expected) in [
        ("/", "", &whole[..]),
        ("/stored", "", &whole),
        ("/gzip", "Accept-Encoding: gzip\r\n", "packed"),
        ("/ssi", "", &whole),
        ("/sub", "", &whole),
        ("/around", "", &format!("part{whole}part")),
        ("/range", "Range: bytes=98-\r\n", &whole[98..]),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{line}Content-Length: {BODY}\r\n\r\n"
        );
        let mut client = server.connect();
        client.send([head.as_bytes(), &vec![b'x'; BODY]].concat());
        let reply = client.reply();
        let text = match reply.header("Content-Encoding") {
            Some("gzip") => "packed".to_owned(),
            _ => reply.text(),
        };
        assert_eq!(text, expected, "{path}");
    }
    let begun = Instant::now();
    while server.read("html/stored") != whole {
        assert!(begun.elapsed() < PATIENCE, "it is not stored");
        std::thread::yield_now();
    }
}

/// The first file below a directory.
fn file_in(directory: PathBuf) -> Option<PathBuf> {
    let mut paths = std::fs::read_dir(directory).ok()?.flatten();
    paths.find_map(|entry| match entry.path() {
        path if path.is_dir() => file_in(path),
        path => Some(path),
    })
}

#[test]
fn an_answer_breaks_off_whose_request_cannot_be_read_any_further() {
    if is_nginx() {
        // There, they wait in vain.
        return;
    }
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let (tell, told) = mpsc::channel();
    let origin = behind(move |mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")?;
        let goes_on = goes_on.lock().expect("no test has panicked with it");
        let _ = goes_on.recv_timeout(PATIENCE);
        let length = std::io::copy(&mut stream, &mut std::io::sink())?;
        let _ = tell.send(length);
        Ok(())
    });
    let server = Server::start(&format!(
        "client_max_body_size 0; server {{ listen 127.0.0.1:%PORT%; proxy_read_timeout 600s;
            client_body_in_file_only clean; client_body_temp_path %DIR%/bodies;
            location / {{ proxy_pass http://{origin}; }} }}"
    ));
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n");
    let mut client = server.connect();
    client.send([head.as_bytes(), &vec![b'x'; BODY]].concat());
    assert!(client.until("begun").starts_with("HTTP/1.1 200 OK"));
    let path = file_in(server.site().path("bodies")).expect("the body is there");
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(0)).expect("it is ours");
    go_on.send(()).expect("the origin waits");
    assert!(client.is_closed());
    let length = told.recv_timeout(PATIENCE).expect("it is told of the end");
    assert!(length < BODY as u64, "{length}");
    let line =
        "a temporary file with a request body was truncated while sending request to upstream";
    server.wait_for(line, "the reason");
    server.forget_log();
}

#[test]
fn an_answer_to_head_is_not_waited_for_to_its_end() {
    let program = behind(|mut stream| {
        read_params(&mut stream)?;
        stream.write_all(&stdout("A: b\r\n\r\nbegun"))?;
        // And then nothing more, until the connection is closed.
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
        Ok(())
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; location / {{ fastcgi_pass {program}; }} }}"
    ));
    let reply = server.request("HEAD", "/", "");
    assert_eq!((reply.status, reply.header("A")), (200, Some("b")));
}

#[test]
fn records_are_no_tunnel() {
    let program = behind(|mut stream| {
        read_params(&mut stream)?;
        stream.write_all(&[stdout("Status: 101\r\nUpgrade: x\r\n\r\nhi"), end(0)].concat())
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; location / {{ fastcgi_pass {program}; }} }}"
    ));
    if !is_nginx() {
        let reply = server.get_with("/", "Upgrade: x\r\nConnection: upgrade\r\n");
        assert_eq!(reply.status, 502);
        server.wait_for("upstream sent unexpected status \"101\"", "the reason");
    }
}
