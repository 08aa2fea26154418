//! The page map of this process: which pages of a mapping are in the page table, so in memory and up to date.
//!
//! What it and page faults do here is tried on pages in memory. Where memfd_create(2) is forbidden, the pages are the
//! program's own.

use crate::residency::mappings::FAULT_AROUND;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use sys::Mapping;

/// /proc/self/pagemap, and how it is asked.
#[derive(Debug)]
pub(crate) struct PageMap {
    file: OwnedFd,
    way: Way,
}

/// How the page map is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// PAGEMAP_SCAN (Linux 6.7).
    Scan,
    /// Its entries are read, where the scan is not there or forbidden.
    Entries,
}

impl PageMap {
    /// None: neither way works here.
    pub(crate) fn new(file: OwnedFd) -> Option<PageMap> {
        let mut map = PageMap {
            file,
            way: Way::Scan,
        };
        if map.works().unwrap_or(false) {
            return Some(map);
        }
        map.way = Way::Entries;
        map.works().unwrap_or(false).then_some(map)
    }

    /// The way that works here.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Tried on a page in memory.
    fn works(&self) -> io::Result<bool> {
        let page = sys::page_size();
        let memory = pages(2 * page as u64)?;
        let mapping = Mapping::new(memory.as_fd(), 0, 2 * page)?;
        let absent = !self.are_present(&mapping, 0, 2 * page)?;
        mapping.populate(0, page)?;
        Ok(absent && self.are_present(&mapping, 0, page)?)
    }

    /// The offset of the first page in this part of a mapping that is not in the page table. None: all are.
    ///
    /// `offset` is a multiple of the page size; the end is rounded up to a page. EINVAL if the part does not lie inside
    /// the mapping.
    pub(crate) fn first_absent(
        &self,
        mapping: &Mapping,
        offset: usize,
        len: usize,
    ) -> io::Result<Option<usize>> {
        let ask = match self.way {
            Way::Scan => sys::first_absent,
            Way::Entries => sys::first_absent_by_entries,
        };
        ask(self.file.as_fd(), mapping, offset, len)
    }

    /// Are all pages of this part of a mapping in the page table?
    pub(crate) fn are_present(
        &self,
        mapping: &Mapping,
        offset: usize,
        len: usize,
    ) -> io::Result<bool> {
        Ok(self.first_absent(mapping, offset, len)?.is_none())
    }

    /// Does a fault map its neighbours that are in memory, as many as by default? Tried on pages in memory.
    pub(crate) fn faults_around(&self) -> bool {
        self.maps_neighbours().unwrap_or(false)
    }

    fn maps_neighbours(&self) -> io::Result<bool> {
        let len = 2 * FAULT_AROUND;
        let memory = rustix::fs::memfd_create("pagemap", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = std::fs::File::from(memory);
        file.write_all(&vec![1; len])?;
        let mapping = Mapping::new(file.as_fd(), 0, len)?;
        for at in (0..len).step_by(FAULT_AROUND) {
            mapping.populate(at, 1)?;
        }
        self.are_present(&mapping, 0, len)
    }
}

/// A file of at least this many bytes, whose pages nothing has mapped through this descriptor.
fn pages(len: u64) -> io::Result<OwnedFd> {
    match rustix::fs::memfd_create("freewheel", rustix::fs::MemfdFlags::CLOEXEC) {
        Ok(memory) => {
            rustix::fs::ftruncate(&memory, len)?;
            Ok(memory)
        }
        #[expect(clippy::disallowed_methods, reason = "before any loop runs")]
        Err(_) => Ok(std::fs::File::open("/proc/self/exe")?.into()),
    }
}
