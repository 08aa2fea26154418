//! The thread that writes copies into memfds and gives their pages back.
//!
//! Each page of a memfd is charged to the process's control group. Where that has no room left, the thread that asks for
//! a page frees some first, and with control groups of version 1 it waits for pages that are on their way to a disk
//! (mm/vmscan.c, Linux 6.18): a disk that stands still would hold an event loop. So loops ask this thread, and wait for
//! nothing. It is none of a pool, whose threads may all wait for a disk.

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
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
    waiting: Arc<AtomicUsize>,
}

impl Copier {
    /// Starts the thread; None: there can be none, and no copies.
    pub(crate) fn start() -> Option<Copier> {
        let (jobs, received) = channel();
        let waiting = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("copies".to_owned());
        thread.spawn(move || work(&received, &count)).ok()?;
        Some(Copier { jobs, waiting })
    }

    /// Has a copy written. False: too many wait.
    pub(crate) fn write(&self, pages: &Arc<CopyPages>, body: &Bytes) -> bool {
        let more = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        if self.waiting.fetch_update(AcqRel, Relaxed, more).is_err() {
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

fn work(jobs: &Receiver<Job>, waiting: &AtomicUsize) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Write(pages, body) => {
                // What was dropped meanwhile is not needed.
                if Arc::strong_count(&pages) > 1 {
                    pages.write(&body);
                }
                waiting.fetch_sub(1, AcqRel);
            }
            Job::Drop(pages) => drop(pages),
        }
    }
}

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

    fn write(&self, body: &[u8]) {
        self.is_begun.store(true, Release);
        let mut written = 0;
        while written < body.len() {
            match pwrite(&self.memory, &body[written..], self.start + written as u64) {
                Ok(0) => return,
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        self.is_written.store(true, Release);
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
