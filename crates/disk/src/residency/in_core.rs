//! What mincore(2) says of a mapping of a file that is this process's own: which of its pages are in memory and up to date,
//! whether the page map shows them or not. So no page has to be mapped first, by a thread of a pool.
//!
//! The kernel tells that to a file's owner; to others, all of it seems to be in memory, as is all of every file on a kernel
//! that only pretends to know (gVisor). Invariant: neither is asked.

use crate::files::mount::Filesystem;
use crate::files::open_file::Handle;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use sys::Mapping;

/// Whether the call tells the truth here, and to whom.
#[derive(Debug)]
pub(crate) struct InCore {
    works: bool,
    /// The user of the threads that ask, once they do.
    user: OnceLock<u32>,
}

impl InCore {
    /// Tried on pages in memory, and on some that are not.
    pub(crate) fn new() -> InCore {
        InCore {
            works: tells_the_truth().unwrap_or(false),
            user: OnceLock::new(),
        }
    }

    /// Does it tell of this file of this user?
    pub(crate) fn tells_of(&self, handle: &Handle, uid: u32) -> bool {
        let user = || rustix::process::geteuid().as_raw();
        self.works
            && matches!(handle.filesystem(), Filesystem::Native | Filesystem::Xfs)
            && uid == *self.user.get_or_init(user)
    }

    /// Makes all files those of others.
    #[cfg(test)]
    pub(crate) fn tell_nothing(&self) {
        self.user.get_or_init(|| u32::MAX);
    }
}

fn tells_the_truth() -> io::Result<bool> {
    let page = sys::page_size();
    let memory = memfd_create("in core", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, 2 * page as u64)?;
    let mapping = Mapping::new(memory.as_fd(), 0, 2 * page)?;
    let is_absent = !mapping.is_in_core(0, page)? && !mapping.is_in_core(page, page)?;
    rustix::io::pwrite(&memory, &vec![1; page], 0)?;
    Ok(is_absent && mapping.is_in_core(0, page)? && !mapping.is_in_core(0, 2 * page)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_that_were_written_are_in_core_and_holes_are_not() {
        let page = sys::page_size();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 300 * page]).unwrap();
        file.set_len(400 * page as u64).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, 400 * page).unwrap();
        if !InCore::new().works {
            return;
        }
        assert!(mapping.is_in_core(0, 300 * page).unwrap());
        assert!(mapping.is_in_core(page, 7).unwrap());
        assert!(!mapping.is_in_core(0, 301 * page).unwrap());
        assert!(mapping.is_in_core(399 * page, 2 * page).is_err());
    }
}
