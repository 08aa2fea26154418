//! No answer is staler than the file: a change is seen by the next request, also while many others are asked for the same file
//! and share what was found out about it.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests: a failure is a panic, and they may wait"
)]

use blackbox::Server;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROUNDS: usize = 60;
const NOISE: usize = 6;

/// Changes what `/dir/file` leads to; afterwards it has these contents.
type Change = fn(html: &Path, contents: &str);

fn put(path: &Path, contents: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, contents).unwrap();
}

fn write_again(html: &Path, contents: &str) {
    put(&html.join("dir/file"), contents);
}

fn rename_over(html: &Path, contents: &str) {
    put(&html.join("dir/new"), contents);
    std::fs::rename(html.join("dir/new"), html.join("dir/file")).unwrap();
}

fn remake_directory(html: &Path, contents: &str) {
    put(&html.join("made/file"), contents);
    let _ = std::fs::remove_dir_all(html.join("old"));
    std::fs::rename(html.join("dir"), html.join("old")).unwrap();
    std::fs::rename(html.join("made"), html.join("dir")).unwrap();
}

fn switch_link(html: &Path, contents: &str) {
    let target = format!("release-{contents}");
    put(&html.join(&target).join("file"), contents);
    let link = html.join("link");
    symlink(&target, &link).unwrap();
    if !html.join("dir").is_symlink() {
        std::fs::remove_dir_all(html.join("dir")).unwrap();
    }
    std::fs::rename(&link, html.join("dir")).unwrap();
}

#[test]
fn a_change_is_seen_by_the_next_request_however_many_ask() {
    let server = Server::start_with(
        "worker_processes 1;",
        "access_log off; keepalive_requests 1000000; server { listen 127.0.0.1:%PORT%; root html; }",
    );
    server.file("dir/file", "first");
    let html = server.site().path("html");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..NOISE {
            scope.spawn(|| {
                let mut connection = server.connect();
                while !is_over.load(Ordering::Relaxed) {
                    connection.send("GET /dir/file HTTP/1.1\r\nHost: a\r\n\r\n");
                    // Who asks while the file is being written may get a 500, and is closed.
                    if connection.reply().header("connection") == Some("close") {
                        connection = server.connect();
                    }
                }
            });
        }
        let mut asking = server.connect();
        let mut ask = |request: &str| asking.send(request).reply();
        let changes: [Change; 4] = [write_again, rename_over, remake_directory, switch_link];
        for (kind, change) in changes.into_iter().enumerate() {
            for round in 0..ROUNDS {
                let contents = format!("{kind}-{round}");
                change(&html, &contents);
                let reply = ask("GET /dir/file HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(reply.text(), contents);
                if round % 4 == 0 {
                    // Long enough for the file to be kept, so that the next change meets a kept one.
                    std::thread::sleep(Duration::from_millis(40));
                }
            }
        }
        std::fs::remove_file(html.join("dir")).unwrap();
        let gone = ask("GET /dir/file HTTP/1.1\r\nHost: a\r\n\r\n");
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(gone.status, 404);
    });
    server.forget_log();
}
