//! The thread that writes copies into memfds and gives their pages back.
//!
//! Each page of a memfd is charged to the process's control group. Where that has no room left, the thread that asks for
//! a page frees some first, and with control groups of version 1 it waits for pages that are on their way to a disk
//! (mm/vmscan.c, Linux 6.18): a disk that stands still would hold an event loop. So loops ask this thread, and wait for
//! nothing. It is none of a pool, whose threads may all wait for a disk.
//!
//! A copy's pages are its own, or there is none: where the kernel makes huge pages for memfds (`shmem_enabled`,
//! `always` or `within_size`), to give back a part of one clears it in place, and a socket that holds it sends zeros.
//! So the first copy that takes other memory than its pages is not used, and it is the last.

use bytes::Bytes;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, memfd_create};
use rustix::io::{Errno, pwrite};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Maximum of copies that wait to be written; of more, none is made.
const WAITING_MAX: usize = 256;

/// Bytes of one of a file's blocks, as fstat(2) counts them.
const BLOCK_BYTES: u64 = 512;

/// The pages of a copy.
#[derive(Debug)]
pub(crate) struct CopyPages {
    pub memory: Arc<OwnedFd>,
    /// The offset of the first byte.
    pub start: u64,
    /// The range of the pages.
    pub room: Range<u64>,
    is_begun: AtomicBool,
    is_written: AtomicBool,
}

#[derive(Debug)]
enum Job {
    Write(Arc<CopyPages>, Bytes),
    /// The last reference but for those of other jobs.
    Drop(Arc<CopyPages>),
}

/// The loops' end of the thread; cheap to clone. The thread ends with the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Copier {
    jobs: Sender<Job>,
    state: Arc<CopierState>,
}

#[derive(Debug, Default)]
struct CopierState {
    /// Copies that wait to be written.
    waiting: AtomicUsize,
    /// Did pages turn out to be parts of huge ones?
    has_huge_pages: AtomicBool,
}

impl Copier {
    /// Starts the thread; None: there can be none, and no copies.
    pub(crate) fn start() -> Option<Copier> {
        let (jobs, received) = channel();
        let state = Arc::<CopierState>::default();
        if makes_huge_pages() {
            state.has_huge_pages.store(true, Relaxed);
        }
        let its = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("copies".to_owned());
        thread.spawn(move || work(&received, &its)).ok()?;
        Some(Copier { jobs, state })
    }

    /// Does the kernel make huge pages for memfds, so that there are no copies?
    pub(crate) fn has_huge_pages(&self) -> bool {
        self.state.has_huge_pages.load(Relaxed)
    }

    /// Has a copy written. False: too many wait, or there are none.
    pub(crate) fn write(&self, pages: &Arc<CopyPages>, body: &Bytes) -> bool {
        let more = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        let waiting = &self.state.waiting;
        if self.has_huge_pages() || waiting.fetch_update(AcqRel, Relaxed, more).is_err() {
            return false;
        }
        let job = Job::Write(Arc::clone(pages), body.clone());
        self.jobs.send(job).is_ok()
    }

    /// Gives the pages back. (As many may wait for that as there were copies.)
    pub(crate) fn free(&self, pages: Arc<CopyPages>) {
        // Without the thread they are given back here.
        let _ = self.jobs.send(Job::Drop(pages));
    }
}

/// Tries a page. (One that the kernel had no huge page for shows nothing; then a later copy does.)
fn makes_huge_pages() -> bool {
    let Ok(memory) = memfd_create("one page", MemfdFlags::CLOEXEC) else {
        return false;
    };
    let page = sys::page_size();
    let pages = CopyPages::new(Arc::new(memory), 0, 0..page as u64);
    pages.write(&vec![0; page]).is_err()
}

fn work(jobs: &Receiver<Job>, state: &CopierState) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Write(pages, body) => {
                // What was dropped meanwhile is not needed.
                let is_needed =
                    Arc::strong_count(&pages) > 1 && !state.has_huge_pages.load(Relaxed);
                if is_needed && pages.write(&body).is_err() {
                    state.has_huge_pages.store(true, Relaxed);
                }
                state.waiting.fetch_sub(1, AcqRel);
            }
            Job::Drop(pages) => drop(pages),
        }
    }
}

/// The pages of a copy are parts of a huge one.
struct HugePage;

impl CopyPages {
    pub(crate) fn new(memory: Arc<OwnedFd>, start: u64, room: Range<u64>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            start,
            room,
            is_begun: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
        })
    }

    /// Is all of it there?
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Acquire)
    }

    fn write(&self, body: &[u8]) -> Result<(), HugePage> {
        let before = self.memory_bytes();
        self.is_begun.store(true, Release);
        let mut written = 0;
        while written < body.len() {
            match pwrite(&self.memory, &body[written..], self.start + written as u64) {
                Ok(0) => return Ok(()),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(_) => return Ok(()),
            }
        }
        // Only this thread makes pages, and gives them back.
        if self.memory_bytes() != before + (self.room.end - self.room.start) {
            return Err(HugePage);
        }
        self.is_written.store(true, Release);
        Ok(())
    }

    /// Bytes that the memfd takes.
    fn memory_bytes(&self) -> u64 {
        let stat = fstat(&self.memory);
        stat.map_or(0, |stat| stat.st_blocks.cast_unsigned() * BLOCK_BYTES)
    }
}

impl Drop for CopyPages {
    fn drop(&mut self) {
        if !*self.is_begun.get_mut() {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If this fails, the pages stay until the loop ends.
        let len = self.room.end - self.room.start;
        let _ = fallocate(&self.memory, flags, self.room.start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_takes_more_than_its_pages_is_not_used_and_is_the_last() {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let (memory, page) = (Arc::new(memory), sys::page_size() as u64);
        let copier = Copier::start().unwrap();
        let body = Bytes::from(vec![b'a'; 2 * sys::page_size()]);
        let pages = CopyPages::new(Arc::clone(&memory), 0, 0..2 * page);
        assert!(copier.write(&pages, &body));
        while !pages.is_written() {
            std::thread::yield_now();
        }
        // As if the kernel had made a page of two.
        let huge = CopyPages::new(Arc::clone(&memory), 2 * page, 2 * page..3 * page);
        assert!(copier.write(&huge, &body));
        while !copier.has_huge_pages() {
            std::thread::yield_now();
        }
        assert!(!huge.is_written());
        let next = CopyPages::new(memory, 4 * page, 4 * page..6 * page);
        assert!(!copier.write(&next, &body));
    }
}
