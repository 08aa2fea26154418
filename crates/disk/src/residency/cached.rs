//! What cachestat(2) says of a range of a file, where it is permitted.
//!
//! Limit: pages that *another* process is reading in count as cached.

use crate::files::open_file::OpenFile;
use std::os::fd::AsFd;

/// Is the range (cut at the end of the file) cached, according to cachestat(2)? None: the call is not permitted.
pub(crate) fn all_cached(file: &OpenFile, offset: u64, len: u64) -> Option<bool> {
    if file.no_cachestat.get() || !file.filesystem().is_native() {
        return None;
    }
    let end = (offset + len).min(file.meta().len);
    if end <= offset {
        return Some(true);
    }
    match sys::cachestat(file.as_fd(), offset, end - offset) {
        Ok(stat) => {
            let page = sys::page_size() as u64;
            Some(stat.cached >= end.div_ceil(page) - offset / page)
        }
        Err(_) => {
            file.no_cachestat.set(true);
            None
        }
    }
}
