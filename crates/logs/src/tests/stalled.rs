//! Logs that take no lines: a reader that does not read, a disk that hangs; and logs that are named no more.

use std::io::Read as _;

use super::*;

/// A pipe that is full, as a log.
fn stalled_log(fixture: &Fixture) -> (Target, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let target = fixture
        .logs
        .file(&fixture.path("pipe"), OwnedFd::from(writer), None);
    (target, reader)
}

#[test]
fn a_reader_that_does_not_read_holds_up_no_other_log() {
    let fixture = Fixture::new();
    fixture.main_log();
    let (stalled, mut reader) = stalled_log(&fixture);
    let other = fixture.file("other", None);
    let line = |number: usize| format!("{number:0>999}\n");
    let count = 2000;
    for number in 0..count {
        fixture.on_loop(async |feed| {
            feed.line(&stalled, text(&line(number)));
            feed.line(&other, text("other\n"));
        });
    }
    fixture.drain();
    assert_eq!(fixture.read("other"), "other\n".repeat(count));
    let said = "pipe\" failed (11: Resource temporarily unavailable): its reader does not read, \
                lines are dropped until it does";
    let log = fixture.read("error.log");
    assert_eq!(log.matches(said).count(), 1, "{log}");
    let dropped = fixture.logs.figures().failed;
    assert!(dropped > 0 && dropped < count as u64, "{dropped}");
    // What was not dropped comes, in whole lines and in order.
    let mut bytes = vec![0; (count - usize::try_from(dropped).unwrap()) * 1000];
    reader.read_exact(&mut bytes).unwrap();
    let read = String::from_utf8(bytes).unwrap();
    let expected: String = (0..read.len() / 1000).map(line).collect();
    assert!(read == expected);
    let said = format!("pipe\" takes lines again, {dropped} were dropped\n");
    wait_until("the end of the stall", || {
        fixture.read("error.log").contains(&said)
    });
}

#[test]
fn a_stalled_pipe_goes_on_where_it_was_with_a_new_descriptor() {
    let fixture = Fixture::new();
    fixture.main_log();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let path = fixture.path("pipe");
    let target = fixture
        .logs
        .file(&path, OwnedFd::from(writer.try_clone().unwrap()), None);
    let lines: String = (0..150).map(|number| format!("{number:0>999}\n")).collect();
    fixture.on_loop(async |feed| feed.line(&target, text(&lines)));
    fixture.drain();
    assert!(fixture.logs.reopen(&path, OwnedFd::from(writer)));
    let mut read = vec![0; lines.len()];
    reader.read_exact(&mut read).unwrap();
    assert!(read == lines.as_bytes());
}

#[test]
fn a_log_whose_disk_hangs_keeps_no_caller_waiting() {
    let fixture = Fixture::new();
    let target = fixture.file("log", None);
    let path = fixture.path("log");
    let hang = target.hold();
    fixture.on_loop(async |feed| feed.line(&target, text("line\n")));
    assert!(fixture.logs.find(&path).is_some());
    assert!(fixture.logs.reopen(&path, open(&path)));
    fixture.logs.forget_named();
    fixture.logs.keep_only(&hashbrown::HashSet::new());
    assert!(!fixture.logs.drain(Duration::ZERO));
    drop(hang);
    fixture.drain();
    assert_eq!(fixture.read("log"), "line\n");
}

#[test]
fn a_loop_ends_while_a_disk_hangs_and_its_last_lines_are_kept() {
    let fixture = Fixture::new();
    let target = fixture.file("log", None);
    let hang = target.hold();
    let fed = fixture.on_loop(async |feed| {
        let fed = fill(&feed, &target);
        // The clock stands still: time passes as soon as nothing else is to be done.
        tokio::time::pause();
        feed.finish().await;
        fed
    });
    drop(hang);
    fixture.drain();
    assert_eq!(fixture.read("log").lines().count(), fed);
}

#[test]
fn a_log_that_a_new_configuration_does_not_name_keeps_no_lines_back() {
    let fixture = Fixture::new();
    let buffer = Some(Buffer {
        size: 4096,
        flush: None,
        gzip: None,
    });
    let (old, kept) = (fixture.file("old", buffer), fixture.file("kept", buffer));
    let feed_both = |line: &str| {
        fixture.on_loop(async |feed| {
            feed.line(&kept, text(line));
            feed.line(&old, text(line));
        });
    };
    feed_both("before\n");
    let path = fixture.path("kept");
    fixture.logs.keep_only(&[&*path].into_iter().collect());
    wait_until("the gathered line", || fixture.read("old") == "before\n");
    // Of a request of the old configuration.
    feed_both("after\n");
    wait_until("the last line", || fixture.read("old") == "before\nafter\n");
    assert_eq!(fixture.read("kept"), "");
    // Named again.
    let old = fixture.file("old", buffer);
    fixture.on_loop(async |feed| {
        feed.line(&old, text("again\n"));
        feed.line(&fixture.file("other", None), text("x"));
    });
    wait_until("the other log", || !fixture.read("other").is_empty());
    assert_eq!(fixture.read("old"), "before\nafter\n");
}
