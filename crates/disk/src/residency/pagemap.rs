//! What PAGEMAP_SCAN (Linux 6.7) and page faults do here, tried on pages in memory.
//!
//! Where memfd_create(2) is forbidden, the pages are the program's own.

use crate::residency::mappings::FAULT_AROUND;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

/// Does PAGEMAP_SCAN (Linux 6.7) work on this descriptor of /proc/self/pagemap? Tried on a page in memory.
pub(crate) fn works(pagemap: &OwnedFd) -> bool {
    let page = sys::page_size();
    let try_it = || -> std::io::Result<bool> {
        let memory = pages(2 * page as u64)?;
        let mapping = sys::Mapping::new(memory.as_fd(), 0, 2 * page)?;
        let absent = !sys::all_present(pagemap.as_fd(), &mapping, 0, 2 * page)?;
        mapping.populate(0, page)?;
        let present = sys::all_present(pagemap.as_fd(), &mapping, 0, page)?;
        Ok(absent && present)
    };
    try_it().unwrap_or(false)
}

/// A file of at least this many bytes, whose pages nothing has mapped through this descriptor.
fn pages(len: u64) -> std::io::Result<OwnedFd> {
    match rustix::fs::memfd_create("freewheel", rustix::fs::MemfdFlags::CLOEXEC) {
        Ok(memory) => {
            rustix::fs::ftruncate(&memory, len)?;
            Ok(memory)
        }
        #[expect(clippy::disallowed_methods, reason = "before any loop runs")]
        Err(_) => Ok(std::fs::File::open("/proc/self/exe")?.into()),
    }
}

/// Does a fault map its neighbours that are in memory, as many as by default? Tried on pages in memory.
pub(crate) fn faults_around(pagemap: &OwnedFd) -> bool {
    maps_neighbours(pagemap).unwrap_or(false)
}

fn maps_neighbours(pagemap: &OwnedFd) -> std::io::Result<bool> {
    let len = 2 * FAULT_AROUND;
    let memory = rustix::fs::memfd_create("pagemap", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(&vec![1; len])?;
    let mapping = sys::Mapping::new(file.as_fd(), 0, len)?;
    for at in (0..len).step_by(FAULT_AROUND) {
        mapping.populate(at, 1)?;
    }
    sys::all_present(pagemap.as_fd(), &mapping, 0, len)
}
