//! Freezes the pools that wait for disks while a file exists, for the stall test; and those that need processor time
//! only (`cpu`, `handshakes`) while another one does.
//!
//! Only the environment variables [`VARIABLE`] and [`CPU_VARIABLE`] enable it, so that no configuration can do it by
//! mistake. Not here: what a held pool does ([`disk::Disk::hold_while_exists`]). Invariant: without the variables there
//! is no thread and no cost.

use std::path::PathBuf;
use std::sync::Arc;

use disk::{Disk, PoolKind};
use logs::process_log::{Level, error_log};

/// Names the file: while it exists, threads of pools that wait for disks take and finish no job.
pub(super) const VARIABLE: &str = "FREEWHEEL_DEBUG_HOLD";
/// The same for pools whose jobs need processor time only.
pub(super) const CPU_VARIABLE: &str = "FREEWHEEL_DEBUG_HOLD_CPU";

/// Begins to look for the files that the variables name.
pub(super) fn watch(disk: &Arc<Disk>) {
    for (variable, kind) in [(VARIABLE, PoolKind::Disk), (CPU_VARIABLE, PoolKind::Cpu)] {
        if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
            hold(disk, variable, path, kind);
        }
    }
}

fn hold(disk: &Arc<Disk>, variable: &str, path: PathBuf, kind: PoolKind) {
    error_log(
        Level::Warn,
        format_args!(
            "{variable} is set: pools stand still while \"{}\" exists",
            path.display()
        ),
    );
    let started = disk.hold_while_exists(path, kind);
    if let Err(error) = started {
        error_log(
            Level::Alert,
            format_args!("the thread of {variable} cannot be started ({error})"),
        );
    }
}
