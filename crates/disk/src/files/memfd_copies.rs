//! Copies of small files in a memfd, from which `sendfile` can take pages: one memfd per loop, or the next one where
//! its offsets come to the limit of a file's size.
//!
//! A body of some KiB is cheaper to hand to the socket by the page than to copy: 16 KiB cost 3 µs less, 64 KiB 12 µs.
//! The pages of a memfd are memory like the heap's, so they need no residency proof (a machine that swaps may swap out
//! either).
//!
//! Not here: writing them and giving their pages back (`copier`). Invariant: bytes of the memfd are written once, before
//! they are sent, and its offsets are never used again. A dropped copy returns its pages to the kernel, while the socket
//! still holds those that are on their way; the next copy lies further on.

use crate::files::copier::{Copier, CopyPages};
use crate::files::error::Error;
use crate::files::pread::append_fully;
use crate::memory::{Charge, Holder, charge};
use bytes::Bytes;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Bytes from which a body gets a copy. Smaller ones are written together with their head, which takes one system call
/// less.
pub(crate) const COPY_MIN: usize = 8 << 10;

/// Maximum of a loop's memfds that copies still lie in; while there are as many, no copy is made in a further one.
const MEMFDS_MAX: usize = 16;

/// One loop's memfd.
#[derive(Debug)]
pub(crate) struct MemfdCopies {
    /// None where memfd_create(2) failed, or there is no thread that writes.
    memory: Option<(Arc<OwnedFd>, Copier)>,
    /// The offset of the next copy.
    end: u64,
    /// Maximum size of a file in bytes (`RLIMIT_FSIZE`), which holds for memfds, too.
    size_max: u64,
    /// The memfds before this one.
    former: Vec<Weak<OwnedFd>>,
}

/// A copy of a whole file.
#[derive(Debug)]
pub(crate) struct MemfdCopy {
    /// None only inside drop.
    pages: Option<Arc<CopyPages>>,
    copier: Copier,
    _charge: Charge,
}

impl MemfdCopies {
    pub(crate) fn new(copier: Option<Copier>) -> MemfdCopies {
        Self::within(getrlimit(Resource::Fsize).current, copier)
    }

    /// The same within a limit of a file's size; None: there is no limit.
    fn within(size_max: Option<u64>, copier: Option<Copier>) -> MemfdCopies {
        MemfdCopies {
            memory: memfd().zip(copier),
            end: 0,
            size_max: size_max.unwrap_or(u64::MAX),
            former: Vec::new(),
        }
    }

    /// Goes on with another memfd where this one has no room for so many bytes. False: no copy can be made.
    fn make_room(&mut self, bytes: u64) -> bool {
        if bytes <= self.size_max.saturating_sub(self.end) {
            return true;
        }
        self.former.retain(|memory| memory.strong_count() > 0);
        let Some((memory, _)) = &mut self.memory else {
            return false;
        };
        if bytes > self.size_max || self.former.len() + 1 >= MEMFDS_MAX {
            return false;
        }
        let Some(next) = memfd() else { return false };
        // What lies in the former one keeps it; its last copy closes it, in the thread that frees its pages.
        self.former.push(Arc::downgrade(memory));
        *memory = next;
        self.end = 0;
        true
    }

    /// Has a body copied whose last `unsent` bytes are never sent; [`MemfdCopy::is_written`] says when that is done. None
    /// if it is too small, or there is no memory.
    ///
    /// The part that is sent ends with a page. `sendfile` takes sixteen pages from a file before it turns to the
    /// socket: 64 KiB across seventeen pages cost a third more (a second turn, and a packet of its own for the rest).
    pub(crate) fn begin(&mut self, body: &Bytes, unsent: usize) -> Option<MemfdCopy> {
        if body.len() < COPY_MIN {
            return None;
        }
        let page = sys::page_size();
        let sent = body.len().saturating_sub(unsent);
        let behind = (body.len() - sent).next_multiple_of(page);
        let bytes = sent.next_multiple_of(page) + behind;
        if !self.make_room(bytes as u64) {
            return None;
        }
        let (memory, copier) = self.memory.clone()?;
        let turn = self.end + sent.next_multiple_of(page) as u64;
        let room = self.end..turn + behind as u64;
        let pages = CopyPages::new(memory, turn - sent as u64, room);
        if !copier.write(&pages, body) {
            return None;
        }
        self.end = pages.room.end;
        Some(MemfdCopy {
            pages: Some(pages),
            copier,
            _charge: charge(Holder::Copies, bytes),
        })
    }
}

/// An empty memfd. (It has no page yet, so that making it waits for nothing.)
fn memfd() -> Option<Arc<OwnedFd>> {
    let memory = memfd_create("small files", MemfdFlags::CLOEXEC);
    memory.ok().map(Arc::new)
}

impl MemfdCopy {
    fn pages(&self) -> &CopyPages {
        self.pages.as_ref().expect("it is None only inside drop")
    }

    /// Are all its bytes there? Not before may it be used.
    pub(crate) fn is_written(&self) -> bool {
        self.pages().is_written()
    }

    /// Sends bytes of it, as many as the socket takes.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<usize, Errno> {
        let pages = self.pages();
        let mut at = pages.start + offset;
        sendfile(socket, &pages.memory, Some(&mut at), len)
    }

    /// Appends `len` bytes to a buffer, which must lie within the body.
    pub(crate) fn append(
        &self,
        buffer: &mut Vec<u8>,
        offset: u64,
        len: usize,
    ) -> Result<(), Error> {
        let pages = self.pages();
        append_fully(pages.memory.as_fd(), buffer, pages.start + offset, len)
    }
}

impl Drop for MemfdCopy {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.copier.free(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_file_sizes_takes_another_memfd_and_bounds_their_number() {
        let len = 15 << 12;
        let mut copies = MemfdCopies::within(Some(2 * len + 1), Copier::start());
        let wait = |copy: &MemfdCopy| {
            while !copy.is_written() {
                std::thread::yield_now();
            }
        };
        let body = |number: u8| Bytes::from(vec![number; len as usize]);
        let mut kept = Vec::new();
        for number in 0..2 * MEMFDS_MAX as u8 {
            let copy = copies.begin(&body(number), 0).unwrap();
            wait(&copy);
            kept.push(copy);
        }
        assert!(copies.begin(&body(0), 0).is_none());
        for (number, copy) in kept.iter().enumerate() {
            let mut read = Vec::new();
            copy.append(&mut read, 0, len as usize).unwrap();
            assert_eq!(read, body(number as u8));
        }
        drop(kept);
        // The thread gives the pages back, and with them the memfds.
        while copies.begin(&body(1), 0).is_none() {
            std::thread::yield_now();
        }
        let too_large = Bytes::from(vec![0; 3 * len as usize]);
        assert!(copies.begin(&too_large, 0).is_none());
    }

    #[test]
    fn the_sent_part_ends_with_a_page() {
        let page = sys::page_size() as u64;
        let mut copies = MemfdCopies::new(Copier::start());
        let mut kept = Vec::new();
        for (len, unsent) in [(8_192, 0), (10_000, 4), (65_860, 4), (9_000, 9_000)] {
            let body: Bytes = (0..len).map(|at| (at % 251) as u8).collect();
            let copy = copies.begin(&body, unsent).unwrap();
            while !copy.is_written() {
                std::thread::yield_now();
            }
            assert_eq!((copy.pages().start + (len - unsent) as u64) % page, 0);
            kept.push((copy, body));
        }
        // Nobody's pages are another's.
        kept.swap_remove(1);
        for (copy, body) in &kept {
            let mut read = Vec::new();
            copy.append(&mut read, 0, body.len()).unwrap();
            assert_eq!(read, body[..]);
        }
    }
}
