//! MemfdCopies of small files in memory of our own which `sendfile` can take pages from: one memfd per loop.
//!
//! A body of some KiB is cheaper to hand to the socket by the page than to copy: 16 KiB cost 3 µs less, 64 KiB 12. The pages of
//! a memfd are memory like the heap's, so nobody has to prove that they are there (a machine that swaps may swap both out).
//!
//! Invariant: bytes of the memfd are written once, before anybody sends them. Room is never used again: a copy that is dropped
//! gives its pages back, while the socket still holds those that are on their way, and the next copy lies further behind.

use crate::error::Error;
use crate::memory::{Charge, Holder, charge};
use crate::reading::read::read_fully;
use bytes::Bytes;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create, sendfile};
use rustix::io::{Errno, pwrite};

/// Smaller bodies are copied behind their head: that takes one system call less.
pub(crate) const COPY_MIN: usize = 8 << 10;

/// One loop's memfd.
#[derive(Debug)]
pub(crate) struct MemfdCopies {
    /// None where there are none to be had.
    memory: Option<Rc<OwnedFd>>,
    /// Where the next copy goes.
    end: u64,
}

/// A whole file's bytes.
#[derive(Debug)]
pub(crate) struct MemfdCopy {
    memory: Rc<OwnedFd>,
    /// Where they begin.
    start: u64,
    /// Its pages.
    room: Range<u64>,
    _charge: Charge,
}

impl MemfdCopies {
    pub(crate) fn new() -> MemfdCopies {
        let memory = memfd_create("freewheel: small files", MemfdFlags::CLOEXEC).ok();
        MemfdCopies {
            memory: memory.map(Rc::new),
            end: 0,
        }
    }

    /// MemfdCopies a body, whose last bytes (`unsent`) nobody is sent; None if it is too small for it, or there is no memory.
    ///
    /// What is sent ends with a page. A call takes sixteen pages from a file before it turns to the socket: 64 KiB that lie across
    /// seventeen cost a third more (a second turn, and a packet of its own for the rest).
    pub(crate) fn keep(&mut self, body: &[u8], unsent: usize) -> Option<MemfdCopy> {
        if body.len() < COPY_MIN {
            return None;
        }
        let memory = self.memory.clone()?;
        let page = sys::page_size();
        let sent = body.len().saturating_sub(unsent);
        let behind = (body.len() - sent).next_multiple_of(page);
        let turn = self.end + sent.next_multiple_of(page) as u64;
        let copy = MemfdCopy {
            memory,
            start: turn - sent as u64,
            room: self.end..turn + behind as u64,
            _charge: charge(Holder::Copies, sent.next_multiple_of(page) + behind),
        };
        self.end = copy.room.end;
        let mut written = 0;
        while written < body.len() {
            match pwrite(&copy.memory, &body[written..], copy.start + written as u64) {
                Ok(0) => return None,
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(copy)
    }
}

impl MemfdCopy {
    /// Sends bytes of it, as many as the socket takes.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<usize, Errno> {
        let mut at = self.start + offset;
        sendfile(socket, &self.memory, Some(&mut at), len)
    }

    /// Reads `len` bytes, which must lie within the body.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        read_fully(self.memory.as_fd(), self.start + offset, len)
    }
}

impl Drop for MemfdCopy {
    fn drop(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // What fails here keeps its pages until the loop ends.
        let len = self.room.end - self.room.start;
        let _ = fallocate(&self.memory, flags, self.room.start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_ends_with_a_page() {
        let page = sys::page_size() as u64;
        let mut copies = MemfdCopies::new();
        let mut kept = Vec::new();
        for (len, unsent) in [(8_192, 0), (10_000, 4), (65_860, 4), (9_000, 9_000)] {
            let body: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let copy = copies.keep(&body, unsent).unwrap();
            assert_eq!((copy.start + (len - unsent) as u64) % page, 0);
            kept.push((copy, body));
        }
        // Nobody's pages are another's.
        kept.swap_remove(1);
        for (copy, body) in &kept {
            assert_eq!(copy.read(0, body.len()).unwrap(), body);
        }
    }
}
