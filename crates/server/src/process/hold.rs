//! Freezes the pools that wait for disks while a file exists, for the stall test; and those that need processor time
//! only (`cpu`, `handshakes`) while another one does. A third file names faults of single disks.
//!
//! Only the environment variables [`VARIABLE`], [`CPU_VARIABLE`] and [`FAULT_VARIABLE`] enable it, so that no configuration can do it by
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

/// Names the file of faults of caches' disks ([`disk::health::set_fault_file`]).
pub(super) const FAULT_VARIABLE: &str = "FREEWHEEL_DEBUG_DISK";

/// Begins to look for the files that the variables name.
pub(super) fn watch(disk: &Arc<Disk>) {
    if let Some(path) = std::env::var_os(FAULT_VARIABLE).map(PathBuf::from) {
        error_log(
            Level::Warn,
            format_args!(
                "{FAULT_VARIABLE} is set: disks of caches fail as \"{}\" says",
                path.display()
            ),
        );
        report(FAULT_VARIABLE, disk::health::set_fault_file(path));
    }
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
    report(variable, disk.hold_while_exists(path, kind));
}

fn report(variable: &str, started: std::io::Result<()>) {
    if let Err(error) = started {
        error_log(
            Level::Alert,
            format_args!("the thread of {variable} cannot be started ({error})"),
        );
    }
}
