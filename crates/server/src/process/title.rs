//! The titles that `ps` shows for the processes, in nginx's words, so that scripts find the master and its worker.
//!
//! Not here: how a title is changed ([`sys::set_title`]). Invariant: a process whose title cannot be set goes on
//! without.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The program, in front of every title.
const PROGRAM: &[u8] = b"freewheel: ";

/// This process is the master: it is shown with the command line that started it.
pub(super) fn be_master() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mut title = [PROGRAM, b"master process"].concat();
    for argument in &arguments {
        title.push(b' ');
        title.extend_from_slice(argument.as_bytes());
    }
    if sys::prepare_title().is_ok() {
        sys::set_title(&title);
    }
}

/// This process is a worker. To be called before it has threads.
pub(super) fn be_worker() {
    if sys::prepare_title().is_ok() {
        show(b"worker process");
    }
}

/// The worker finishes what is in flight.
pub(super) fn be_leaving() {
    show(b"worker process is shutting down");
}

fn show(what: &[u8]) {
    sys::set_title(&[PROGRAM, what].concat());
}
