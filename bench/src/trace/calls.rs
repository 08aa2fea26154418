//! The calls that can touch a file: their numbers on x86-64, and what of their arguments and results is written down.

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};
use std::io::IoSliceMut;
use std::os::unix::fs::MetadataExt;

/// _IOWR('f', 16, struct pm_scan_arg), Linux 6.7.
const PAGEMAP_SCAN: u64 = 0xC060_6610;
/// `PAGE_IS_PRESENT` of linux/fs.h.
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// "Page present" in an entry of /proc/PID/pagemap (proc(5)).
const ENTRY_IS_PRESENT: u64 = 1 << 63;
/// Bytes of a page on x86-64.
const PAGE: u64 = 4096;
const PATH_MAX: usize = 4096;
const REGIONS_MAX: usize = 4096;

/// What the arguments of a call are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A descriptor first.
    Descriptor,
    /// A path first.
    Path,
    /// A directory's descriptor, then a path.
    At,
    /// `addr`, `length`, then more.
    Memory,
    Other,
}

/// Number, name, shape.
const CALLS: &[(u64, &str, Shape)] = &[
    (0, "read", Shape::Descriptor),
    (1, "write", Shape::Descriptor),
    (2, "open", Shape::Path),
    (3, "close", Shape::Descriptor),
    (4, "stat", Shape::Path),
    (5, "fstat", Shape::Descriptor),
    (6, "lstat", Shape::Path),
    (9, "mmap", Shape::Memory),
    (11, "munmap", Shape::Memory),
    (16, "ioctl", Shape::Descriptor),
    (17, "pread64", Shape::Descriptor),
    (18, "pwrite64", Shape::Descriptor),
    (19, "readv", Shape::Descriptor),
    (20, "writev", Shape::Descriptor),
    (21, "access", Shape::Path),
    (28, "madvise", Shape::Memory),
    (40, "sendfile", Shape::Other),
    (74, "fsync", Shape::Descriptor),
    (75, "fdatasync", Shape::Descriptor),
    (76, "truncate", Shape::Path),
    (77, "ftruncate", Shape::Descriptor),
    (78, "getdents", Shape::Descriptor),
    (82, "rename", Shape::Path),
    (83, "mkdir", Shape::Path),
    (84, "rmdir", Shape::Path),
    (85, "creat", Shape::Path),
    (86, "link", Shape::Path),
    (87, "unlink", Shape::Path),
    (88, "symlink", Shape::Path),
    (89, "readlink", Shape::Path),
    (90, "chmod", Shape::Path),
    (91, "fchmod", Shape::Descriptor),
    (92, "chown", Shape::Path),
    (137, "statfs", Shape::Path),
    (217, "getdents64", Shape::Descriptor),
    (221, "fadvise64", Shape::Descriptor),
    (254, "inotify_add_watch", Shape::At),
    (257, "openat", Shape::At),
    (258, "mkdirat", Shape::At),
    (262, "newfstatat", Shape::At),
    (263, "unlinkat", Shape::At),
    (264, "renameat", Shape::At),
    (265, "linkat", Shape::At),
    (266, "symlinkat", Shape::Path),
    (267, "readlinkat", Shape::At),
    (268, "fchmodat", Shape::At),
    (269, "faccessat", Shape::At),
    (275, "splice", Shape::Descriptor),
    (277, "sync_file_range", Shape::Descriptor),
    (280, "utimensat", Shape::Descriptor),
    (285, "fallocate", Shape::Descriptor),
    (295, "preadv", Shape::Descriptor),
    (296, "pwritev", Shape::Descriptor),
    (316, "renameat2", Shape::At),
    (326, "copy_file_range", Shape::Descriptor),
    (327, "preadv2", Shape::Descriptor),
    (328, "pwritev2", Shape::Descriptor),
    (332, "statx", Shape::At),
    (437, "openat2", Shape::At),
    (439, "faccessat2", Shape::At),
    (451, "cachestat", Shape::Descriptor),
];

/// A call that has begun.
pub struct Entry {
    call: Option<(&'static str, [u64; 6])>,
    line: Map<String, Value>,
}

impl Entry {
    /// Notes what must be read before the call is carried out.
    pub fn new(pid: i32, tid: Pid, at: f64, number: u64, arguments: [u64; 6]) -> Entry {
        let Some((_, name, shape)) = CALLS.iter().find(|(known, ..)| *known == number) else {
            return Entry {
                call: None,
                line: Map::new(),
            };
        };
        let mut line = Map::new();
        line.insert("at".into(), json!(at));
        line.insert("tid".into(), json!(tid.as_raw()));
        line.insert("thread".into(), json!(thread_name(pid, tid)));
        line.insert("call".into(), json!(name));
        line.insert("args".into(), json!(arguments));
        match shape {
            Shape::Descriptor => note_descriptor(pid, arguments[0], &mut line),
            Shape::Path => drop(line.insert("path".into(), json!(text(tid, arguments[0])))),
            Shape::At => drop(line.insert("path".into(), json!(text(tid, arguments[1])))),
            Shape::Memory if *name == "mmap" => note_descriptor(pid, arguments[4], &mut line),
            Shape::Memory | Shape::Other => {}
        }
        note_arguments(name, pid, tid, &arguments, &mut line);
        Entry {
            call: Some((name, arguments)),
            line,
        }
    }

    /// The line, with the call's result; none for a call that cannot touch a file.
    pub fn leave(self, _pid: i32, tid: Pid, result: i64) -> Option<Value> {
        let (name, arguments) = self.call?;
        let mut line = self.line;
        line.insert("result".into(), json!(result));
        if name == "cachestat" && result == 0 {
            line.insert("cached".into(), json!(words(tid, arguments[2], 1).first()));
        }
        if name == "ioctl" && arguments[1] == PAGEMAP_SCAN && result >= 0 {
            let count = usize::try_from(result).unwrap_or(0).min(REGIONS_MAX);
            let vector = words(tid, arguments[2], 12).get(5).copied().unwrap_or(0);
            let regions: Vec<_> = words(tid, vector, count * 3)
                .chunks_exact(3)
                .map(|region| json!(region))
                .collect();
            line.insert("regions".into(), json!(regions));
        }
        let is_of_pagemap = |file: &Value| file.as_str().is_some_and(|it| it.ends_with("/pagemap"));
        if name == "pread64" && result > 0 && line.get("file").is_some_and(is_of_pagemap) {
            let entries = words(tid, arguments[1], result as usize / 8);
            note_entries(arguments[3] / 8, &entries, &mut line);
        }
        Some(Value::Object(line))
    }
}

/// What stands behind pointers, or in a descriptor that is not the first argument.
fn note_arguments(
    name: &str,
    pid: i32,
    tid: Pid,
    arguments: &[u64; 6],
    line: &mut Map<String, Value>,
) {
    match name {
        "openat2" => drop(line.insert("resolve".into(), json!(words(tid, arguments[2], 3).get(2)))),
        "cachestat" => drop(line.insert("range".into(), json!(words(tid, arguments[1], 2)))),
        "sendfile" => {
            note_descriptor(pid, arguments[1], line);
            line.insert("offset".into(), json!(words(tid, arguments[2], 1).first()));
        }
        "ioctl" if arguments[1] == PAGEMAP_SCAN => {
            line.insert("call".into(), json!("pagemap_scan"));
            let scan = words(tid, arguments[2], 12);
            line.insert("range".into(), json!(scan.get(2..4)));
            line.insert("inverted".into(), json!(scan.get(8)));
        }
        _ => {}
    }
}

/// What the page map says of pages from number `first` on, as if it had been scanned.
fn note_entries(first: u64, entries: &[u64], line: &mut Map<String, Value>) {
    let address = |index: usize| (first + index as u64) * PAGE;
    let present = (0..entries.len()).filter(|index| entries[*index] & ENTRY_IS_PRESENT != 0);
    let regions: Vec<_> = present
        .map(|index| json!([address(index), address(index + 1), PAGE_IS_PRESENT]))
        .collect();
    line.insert("call".into(), json!("pagemap_scan"));
    line.insert("range".into(), json!([address(0), address(entries.len())]));
    line.insert("inverted".into(), json!(0));
    line.insert("regions".into(), json!(regions));
}

/// Path of a descriptor; of a file also its number, links and size.
#[expect(clippy::disallowed_methods, reason = "a tool without an event loop")]
fn note_descriptor(pid: i32, descriptor: u64, line: &mut Map<String, Value>) {
    let link = format!("/proc/{pid}/fd/{}", descriptor as u32);
    let Ok(path) = std::fs::read_link(&link) else {
        return;
    };
    let path = path.to_string_lossy().into_owned();
    if path.starts_with('/')
        && let Ok(file) = std::fs::metadata(&link)
    {
        line.insert(
            "inode".into(),
            json!(format!("{}:{}", file.dev(), file.ino())),
        );
        line.insert("links".into(), json!(file.nlink()));
        line.insert("size".into(), json!(file.len()));
        line.insert("regular".into(), json!(file.is_file()));
    }
    line.insert("file".into(), json!(path));
}

#[expect(clippy::disallowed_methods, reason = "a tool without an event loop")]
fn thread_name(pid: i32, tid: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    name.map(|name| name.trim_end().to_owned())
        .unwrap_or_default()
}

/// `count` words of 64 bits of the traced thread's memory; fewer, even none, when they cannot be read.
fn words(tid: Pid, address: u64, count: usize) -> Vec<u64> {
    let bytes = memory(tid, address, count * 8);
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks of eight")))
        .collect()
}

/// A string that ends in NUL. Read in two steps: the page behind it may not be mapped.
fn text(tid: Pid, address: u64) -> String {
    let to_page_end = 4096 - usize::try_from(address & 4095).expect("below a page");
    let mut bytes = memory(tid, address, to_page_end);
    if !bytes.contains(&0) {
        bytes.extend(memory(tid, address + to_page_end as u64, PATH_MAX));
    }
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn memory(tid: Pid, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let Ok(base) = usize::try_from(address) else {
        return Vec::new();
    };
    if base == 0 || length == 0 {
        return Vec::new();
    }
    let read = process_vm_readv(
        tid,
        &mut [IoSliceMut::new(&mut bytes)],
        &[RemoteIoVec { base, len: length }],
    );
    bytes.truncate(read.unwrap_or(0));
    bytes
}
