//! Logs from the feed to the file, the pipe and the socket.

#![expect(clippy::disallowed_methods, reason = "tests run on no loop")]

mod configured;
mod stalled;
mod syslog;

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::*;

/// Long enough for a busy machine; nothing is measured by it.
const LONG: Duration = Duration::from_secs(60);

struct Fixture {
    logs: Logs,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            logs: Logs::start().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, buffer: Option<Buffer>) -> Target {
        self.logs
            .file(&self.path(name), open(&self.path(name)), buffer)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn main_log(&self) -> ErrorLogs {
        let logs = ErrorLogs::new(vec![(Level::Info, self.file("error.log", None))]);
        self.logs.set_main(logs.clone());
        logs
    }

    /// Runs something on a loop of its own, then lets the loop end.
    fn on_loop<F: Future>(&self, work: impl FnOnce(Rc<Feed>) -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let tasks = tokio::task::LocalSet::new();
        let feed = Rc::new(
            self.logs
                .feed(Rc::new(Clock::new()), Sleep::by(tokio::time::sleep)),
        );
        tasks.spawn_local(Rc::clone(&feed).run());
        tasks.block_on(&runtime, work(feed))
    }

    fn drain(&self) {
        assert!(self.logs.drain(LONG));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.logs.end(LONG);
    }
}

fn open(path: &Path) -> OwnedFd {
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
        .into()
}

fn text(line: &str) -> impl FnOnce(&mut Vec<u8>) {
    move |out| out.extend_from_slice(line.as_bytes())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn lines_reach_their_files_in_order() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.file("one", None), fixture.file("two", None));
    fixture.on_loop(async |feed| {
        for number in 0..1000 {
            feed.line(&one, text(&format!("{number}\n")));
            if number % 10 == 0 {
                feed.line(&two, text("ten\n"));
            }
        }
    });
    fixture.drain();
    let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(fixture.read("one"), expected);
    assert_eq!(fixture.read("two"), "ten\n".repeat(100));
    let figures = fixture.logs.figures();
    assert_eq!(
        (figures.written, figures.dropped, figures.failed),
        (1100, 0, 0)
    );
    assert_eq!(figures.bytes, (expected.len() + 400) as u64);
}

#[test]
fn a_line_is_written_at_its_turn_s_end_while_the_loop_goes_on() {
    let fixture = Fixture::new();
    let target = fixture.file("log", None);
    fixture.on_loop(async |feed| {
        feed.line(&target, text("first\n"));
        let deadline = Instant::now() + LONG;
        while fixture.read("log").is_empty() && Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.read("log"), "first\n");
        feed.line(&target, text("second\n"));
        feed.settle().await;
    });
    fixture.drain();
    assert_eq!(fixture.read("log"), "first\nsecond\n");
}

#[test]
fn loops_and_other_threads_feed_side_by_side() {
    let fixture = Fixture::new();
    let target = fixture.file("log", None);
    let errors = fixture.main_log();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let (fixture, target, errors) = (&fixture, &target, &errors);
            scope.spawn(move || {
                fixture.on_loop(async |feed| {
                    for number in 0..5000 {
                        feed.line(target, text(&format!("{name}{number}\n")));
                    }
                });
                fixture.logs.error_to(errors, Level::Notice, text(name));
            });
        }
    });
    fixture.drain();
    let log = fixture.read("log");
    for name in ["a", "b", "c"] {
        let own: Vec<&str> = log.lines().filter(|line| line.starts_with(name)).collect();
        let expected: Vec<String> = (0..5000).map(|number| format!("{name}{number}")).collect();
        assert_eq!(own, expected);
        assert!(fixture.read("error.log").contains(&format!(": {name}\n")));
    }
}

#[test]
fn a_variable_s_evaluation_may_itself_log() {
    let fixture = Fixture::new();
    let target = fixture.file("log", None);
    let errors = fixture.main_log();
    fixture.on_loop(async |feed| {
        feed.line(&target, |out| {
            out.extend_from_slice(b"outer ");
            feed.error(&errors, Level::Warn, Some(3), text("inner"));
            out.extend_from_slice(b"line\n");
        });
    });
    fixture.drain();
    assert_eq!(fixture.read("log"), "outer line\n");
    assert!(fixture.read("error.log").ends_with(": *3 inner\n"));
}

#[test]
fn buffered_lines_wait_for_their_size() {
    let fixture = Fixture::new();
    let target = fixture.file(
        "log",
        Some(Buffer {
            size: 10,
            flush: None,
            gzip: None,
        }),
    );
    let other = fixture.file("other", None);
    let after_other = |line: &str| {
        fixture.on_loop(async |feed| {
            feed.line(&target, text(line));
            feed.line(&other, text("x"));
        });
        wait_until("the other log", || {
            fixture.logs.figures().written.is_multiple_of(2) && !fixture.read("other").is_empty()
        });
        fs::write(fixture.path("other"), "").unwrap();
        fixture.read("log")
    };
    assert_eq!(after_other("1234\n"), "");
    assert_eq!(after_other("123456\n"), "1234\n");
    assert_eq!(
        after_other("longer than ten\n"),
        "1234\n123456\nlonger than ten\n"
    );
    assert_eq!(after_other("end\n"), "1234\n123456\nlonger than ten\n");
    fixture.drain();
    assert_eq!(fixture.read("log"), "1234\n123456\nlonger than ten\nend\n");
}

#[test]
fn buffered_lines_are_written_when_their_time_has_come() {
    let fixture = Fixture::new();
    let flush = Some(Duration::from_millis(5));
    let target = fixture.file(
        "log",
        Some(Buffer {
            size: 1 << 20,
            flush,
            gzip: None,
        }),
    );
    fixture.on_loop(async |feed| feed.line(&target, text("line\n")));
    wait_until("the flush", || fixture.read("log") == "line\n");
}

#[test]
fn compressed_lines_can_be_read_back() {
    let fixture = Fixture::new();
    let target = fixture.file(
        "log.gz",
        Some(Buffer {
            size: 4096,
            flush: None,
            gzip: Some(6),
        }),
    );
    let lines: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    fixture.on_loop(async |feed| {
        for line in lines.split_inclusive('\n') {
            feed.line(&target, text(line));
        }
    });
    fixture.drain();
    fixture.on_loop(async |feed| feed.line(&target, text("second member\n")));
    fixture.drain();
    let mut read = String::new();
    flate2::read::MultiGzDecoder::new(fs::File::open(fixture.path("log.gz")).unwrap())
        .read_to_string(&mut read)
        .unwrap();
    assert_eq!(read, lines.clone() + "second member\n");
    assert!(fs::metadata(fixture.path("log.gz")).unwrap().len() < lines.len() as u64 / 2);
}

#[test]
fn after_rotation_lines_go_to_the_new_file() {
    let fixture = Fixture::new();
    let buffer = Some(Buffer {
        size: 4096,
        flush: None,
        gzip: None,
    });
    let (plain, buffered) = (
        fixture.file("plain", None),
        fixture.file("buffered", buffer),
    );
    let feed_both = |line: &str| {
        fixture.on_loop(async |feed| {
            feed.line(&plain, text(line));
            feed.line(&buffered, text(line));
        });
    };
    feed_both("old\n");
    for name in ["plain", "buffered"] {
        fs::rename(fixture.path(name), fixture.path(&format!("{name}.0"))).unwrap();
        assert!(
            fixture
                .logs
                .reopen(&fixture.path(name), open(&fixture.path(name)))
        );
    }
    feed_both("new\n");
    fixture.drain();
    for name in ["plain", "buffered"] {
        assert_eq!(fixture.read(name), "new\n");
        assert_eq!(fixture.read(&format!("{name}.0")), "old\n");
    }
    assert!(
        !fixture
            .logs
            .reopen(Path::new("/nowhere"), open(&fixture.path("plain")))
    );
}

fn fill(feed: &Feed, target: &Target) -> usize {
    let line = "x".repeat(999) + "\n";
    let mut fed = 0;
    // The thread may still take what its write and the pipe hold: full is what stays full.
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 3 {
        if feed.has_room() {
            feed.line(target, text(&line));
            fed += 1;
            refused_in_a_row = 0;
        } else {
            refused_in_a_row += 1;
            std::thread::yield_now();
        }
    }
    fed
}

#[test]
#[expect(
    clippy::await_holding_lock,
    reason = "it is what holds up the log thread, and the loop never takes it"
)]
fn a_full_ring_drops_what_cannot_wait_and_says_how_much() {
    let fixture = Fixture::new();
    let errors = fixture.main_log();
    let target = fixture.file("log", None);
    let own_errors = ErrorLogs::new(vec![(Level::Error, Arc::clone(&target))]);
    let fed = fixture.on_loop(async |feed| {
        // The thread stands still, as in a write to a disk that hangs.
        let hang = fixture.logs.targets.main.lock();
        let fed = fill(&feed, &target);
        assert!(fed * 1000 >= RING_BYTES, "{fed} lines");
        assert!(fed * 1000 <= RING_BYTES + (4 << 20), "{fed} lines");
        // The clock stands still: the second passes as soon as nothing else is to be done.
        tokio::time::pause();
        assert!(!feed.room(1).await);
        assert!(!feed.room(1).await);
        let waiting = fixture.logs.ring.queue.lock().waiters.len();
        assert!(
            waiting <= 1,
            "besides the loop itself nothing waits: {waiting}"
        );
        feed.error(&own_errors, Level::Error, None, text("lost"));
        drop(hang);
        tokio::time::resume();
        assert!(feed.room(1).await, "there is room once the disk answers");
        feed.error(&errors, Level::Error, None, text("kept"));
        fed
    });
    fixture.drain();
    let read = fixture.read("log");
    assert_eq!(
        read.lines().filter(|line| line.starts_with("xxx")).count(),
        fed
    );
    assert!(
        read.contains("[warn]")
            && read.contains(": 1 lines dropped: no room for 16777216 bytes of logs\n"),
    );
    let log = fixture.read("error.log");
    assert!(
        log.contains(": kept\n") && log.contains(": 2 access log lines dropped: no room"),
        "{log}"
    );
    assert!(!log.contains("[alert]"));
    let figures = fixture.logs.figures();
    assert_eq!(figures.dropped, 3);
    assert!(figures.worst_wait > Duration::ZERO);
}

#[test]
fn a_log_that_cannot_be_written_is_complained_about_once() {
    let fixture = Fixture::new();
    fixture.main_log();
    let full = fixture
        .logs
        .file(Path::new("/dev/full"), open(Path::new("/dev/full")), None);
    for _ in 0..3 {
        fixture.on_loop(async |feed| feed.line(&full, text("line\n")));
        fixture.drain();
    }
    let log = fixture.read("error.log");
    assert_eq!(
        log.matches("write() to \"/dev/full\" failed (28: No space left on device)")
            .count(),
        1,
        "{log}"
    );
    assert!(log.contains("[alert]"));
    let figures = fixture.logs.figures();
    assert_eq!((figures.failed, figures.written), (3, 0));
}

#[test]
fn error_lines_go_to_every_log_that_wants_their_level() {
    let fixture = Fixture::new();
    let same = fixture.file("same", None);
    let logs = ErrorLogs::new(vec![
        (Level::Info, fixture.file("info", None)),
        (Level::Error, fixture.file("error", None)),
        (Level::Warn, Arc::clone(&same)),
        (Level::Warn, same),
    ]);
    assert!(
        logs.wants(Level::Info)
            && !logs.wants(Level::Debug)
            && !ErrorLogs::default().wants(Level::Emerg)
    );
    fixture.on_loop(async |feed| {
        for level in Level::ALL {
            feed.error(&logs, level, Some(9), text(level.name()));
        }
    });
    fixture.drain();
    let count = |name| fixture.read(name).lines().count();
    assert_eq!((count("info"), count("error"), count("same")), (7, 4, 10));
    let process = format!(
        "{}#{}: *9 emerg",
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero()
    );
    assert!(
        fixture
            .read("error")
            .lines()
            .next()
            .unwrap()
            .ends_with(&format!(" [emerg] {process}"))
    );
}

#[test]
fn the_master_writes_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("error.log");
    let logs = ErrorLogs::new(vec![(Level::Notice, Sink::file(&path, open(&path), None))]);
    logs.write_now(Level::Notice, text("start worker process 7"));
    logs.write_now(Level::Info, text("not wanted"));
    let log = fs::read_to_string(&path).unwrap();
    assert!(
        log.ends_with(": start worker process 7\n") && log.lines().count() == 1,
        "{log}"
    );
}

#[test]
fn a_log_that_nobody_names_any_more_is_written_and_closed() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let buffer = Some(Buffer {
        size: 4096,
        flush: None,
        gzip: None,
    });
    let target = fixture
        .logs
        .file(&fixture.path("pipe"), OwnedFd::from(writer), buffer);
    fixture.on_loop(async |feed| feed.line(&target, text("last line\n")));
    drop(target);
    let other = fixture.file("other", None);
    fixture.on_loop(async |feed| feed.line(&other, text("x\n")));
    // Ends only when the log is closed.
    assert_eq!(std::io::read_to_string(reader).unwrap(), "last line\n");
}

#[test]
fn a_reload_keeps_the_file_and_takes_the_new_descriptor() {
    let fixture = Fixture::new();
    let old = fixture.file("log", None);
    fs::rename(fixture.path("log"), fixture.path("log.0")).unwrap();
    let new = fixture.file("log", None);
    assert!(Arc::ptr_eq(&old, &new));
    fixture.on_loop(async |feed| feed.line(&old, text("after\n")));
    fixture.drain();
    assert_eq!(fixture.read("log"), "after\n");
}
