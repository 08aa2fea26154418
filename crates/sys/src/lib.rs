//! System calls that `rustix` lacks, getaddrinfo(3), and the time stamp counter, each behind a safe function.
//!
//! This is the only crate with `unsafe`. It has no logic: every function is one call, with typed arguments and an
//! `io::Result`, or one instruction. Decisions belong to `disk` and `server`.
//!
//! Invariant: no function here can break memory safety, whatever its arguments.
#![allow(
    unsafe_code,
    reason = "the one crate where raw system calls stand; see each SAFETY comment"
)]
#![warn(unreachable_pub)]

mod host_names;
mod lease;
mod mapping;
mod memory;
mod page_cache;
mod prefetch;
pub mod process;
mod range_lock;
mod sched;
mod tcp;
mod title;
mod tsc;
mod usage;

/// Bytes of a unix socket's path, the ending NUL counted (unix(7), Linux).
pub const UNIX_PATH_MAX: usize = 108;

/// The result of a system call that fails with `-1` and errno.
fn checked<T: PartialOrd + From<i8>>(result: T) -> std::io::Result<T> {
    match result < T::from(0) {
        true => Err(std::io::Error::last_os_error()),
        false => Ok(result),
    }
}

pub use host_names::addresses_of;
pub use lease::lease;
pub use mapping::{Mapping, page_size};
pub use memory::{bound_heaps, lasting, lock, lock_on_fault, trim_heap, unmap_idle_code};
pub use page_cache::{
    CacheStat, begin_writeback, cachestat, first_absent, first_absent_by_entries, pread_into,
    pread_nowait,
};
pub use prefetch::prefetch;
pub use range_lock::{RangeLock, lock_range};
pub use sched::{SchedAttributes, set_idle_io};
pub use tcp::{TcpInfo, set_notsent_lowat, tcp_info};
pub use title::{prepare_title, set_title};
pub use tsc::cycles;
pub use usage::{blocks_read, blocks_read_by_all, sleeps};
