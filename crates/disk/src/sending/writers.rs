//! Whether `sendfile` of what is in memory would wait for who writes to the file. xfs lets readers and writers of a file
//! exclude each other, and a writer may wait for the disk meanwhile, for seconds.
//!
//! A read of one byte that does not wait tells. Where a writer was found, the file is sent out of a buffer for a while, by
//! such reads: that costs three to four times as much, and a writer seldom writes but once.
//!
//! Limits: a writer that begins between this question and `sendfile`, the first one for a while, is waited for. overlayfs
//! does not tell that xfs is below it.

use crate::files::mount::Filesystem;
use crate::files::open_file::OpenFile;
use crate::files::residency_memo::now_ns;
use crate::residency::mappings::FileKey;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;

/// Nanoseconds after a writer was found in which it is expected again.
const AGAIN_NS: u64 = 30_000_000_000;
/// Files with writers that a loop remembers; the oldest is forgotten for a further one.
const FOUND_MAX: usize = 64;

/// The files with writers that a loop has found lately, each with the time when, in order. By inode: a file that changes
/// is opened anew.
#[derive(Debug, Default)]
pub(crate) struct FoundWriters(RefCell<VecDeque<(FileKey, u64)>>);

impl FoundWriters {
    /// Whether somebody writes to a file, of which the byte at `present` is in memory, or did lately. Never waits.
    pub(crate) fn are_expected(&self, file: &OpenFile, present: u64) -> bool {
        if file.filesystem() != Filesystem::Xfs {
            return false;
        }
        let key = (file.meta().dev, file.meta().ino);
        if self.remembers(key) {
            return true;
        }
        let mut byte = Vec::new();
        let is_held = match sys::pread_nowait(file.as_fd(), &mut byte, 1, present) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        if is_held {
            self.note(key);
        }
        is_held
    }

    fn remembers(&self, file: FileKey) -> bool {
        let found = &mut *self.0.borrow_mut();
        let now = now_ns();
        while found
            .front()
            .is_some_and(|(_, at)| now.saturating_sub(*at) >= AGAIN_NS)
        {
            found.pop_front();
        }
        found.iter().any(|(known, _)| *known == file)
    }

    fn note(&self, file: FileKey) {
        let found = &mut *self.0.borrow_mut();
        if found.len() == FOUND_MAX {
            found.pop_front();
        }
        found.push_back((file, now_ns()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_files_with_writers_are_remembered() {
        let found = FoundWriters::default();
        for inode in 0..=FOUND_MAX as u64 {
            found.note((1, inode));
        }
        assert!(!found.remembers((1, 0)) && !found.remembers((2, 1)));
        assert!(found.remembers((1, 1)) && found.remembers((1, FOUND_MAX as u64)));
        let aged = |(_, at): &mut (FileKey, u64)| *at = at.saturating_sub(AGAIN_NS);
        found.0.borrow_mut().iter_mut().for_each(aged);
        assert!(!found.remembers((1, 1)) && found.0.borrow().is_empty());
    }
}
