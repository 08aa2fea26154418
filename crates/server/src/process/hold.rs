//! Freezes every pool while a file exists, for the stall test.
//!
//! Only the environment variable [`VARIABLE`] enables it, so that no configuration can do it by mistake. Not here: what
//! a held pool does ([`disk::Disk::hold_while_exists`]). Invariant: without the variable there is no thread and no
//! cost.

use std::path::PathBuf;
use std::sync::Arc;

use disk::Disk;
use logs::process_log::{Level, error_log};

/// Names the file: while it exists, pool threads take and finish no job.
pub(super) const VARIABLE: &str = "FREEWHEEL_DEBUG_HOLD";

/// Begins to look for the file, where the variable names one.
pub(super) fn watch(disk: &Arc<Disk>) {
    let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return;
    };
    error_log(
        Level::Warn,
        format_args!(
            "{VARIABLE} is set: pools stand still while \"{}\" exists",
            path.display()
        ),
    );
    let started = disk.hold_while_exists(path);
    if let Err(error) = started {
        error_log(
            Level::Alert,
            format_args!("the thread of {VARIABLE} cannot be started ({error})"),
        );
    }
}
