//! What cachestat(2) says of a range of a file, where it is permitted.
//!
//! Limit: pages that *another* process is reading in count as cached.

use crate::files::open_file::OpenFile;
use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;

thread_local! {
    /// Owner and mode of a file that the call was not permitted for: it is not for others like that one either, and each
    /// file that is opened would be asked once.
    static REFUSED: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
}

/// Is the range (cut at the end of the file) cached, according to cachestat(2)? None: the call is not permitted.
pub(crate) fn all_cached(file: &OpenFile, offset: u64, len: u64) -> Option<bool> {
    let kind = Some((file.meta().uid, file.meta().mode));
    if file.no_cachestat.get() || REFUSED.get() == kind || !file.filesystem().is_native() {
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
        Err(error) => {
            file.no_cachestat.set(true);
            if error.kind() == io::ErrorKind::PermissionDenied {
                REFUSED.set(kind);
            }
            None
        }
    }
}
