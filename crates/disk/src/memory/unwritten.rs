//! What was written to files and is not on a disk yet: how much more of it there may be before writers begin that themselves.
//!
//! It takes memory of the control group. Once that is full of it, whoever needs a page waits for the disk, and that may be
//! a loop. The kernel holds writers back by the machine's memory, and in groups of version 1 by nothing else.
//!
//! Not here: looking how much there is ([`super::cgroup`], and the thread that watches memory).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Unwritten bytes are many beyond one part in this many of a group's limit, as for the kernel beyond a tenth of what is
/// available (vm.dirty_background_ratio).
const SHARE: u64 = 10;

/// The room that was found last, and the bytes written since.
static ROOM: AtomicU64 = AtomicU64::new(u64::MAX);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Bytes that may be written until much is unwritten, in a group with this limit.
pub(crate) fn room_of(limit: u64, unwritten: u64) -> u64 {
    (limit / SHARE).saturating_sub(unwritten)
}

/// Sets how many bytes may be written.
pub fn set_room(bytes: u64) {
    ROOM.store(bytes, Relaxed);
    WRITTEN.store(0, Relaxed);
}

/// Notes that so many bytes were written to a file. Returns whether much may be unwritten by now.
pub(crate) fn wrote(bytes: u64) -> bool {
    let written = WRITTEN.fetch_add(bytes, Relaxed).saturating_add(bytes);
    written > ROOM.load(Relaxed)
}
