//! For the stall test: freezes every pool while a file exists.
//!
//! Set by the environment variable [`VARIABLE`] alone, so that no configuration can do it by mistake. Not here: what a
//! held pool does ([`disk::Pool::hold`]). Invariant: without the variable there is no thread and no cost.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use disk::Disk;

use super::report::{Level, error_log};

/// Names the file: while it exists, pool threads take and finish no job.
pub const VARIABLE: &str = "FREEWHEEL_DEBUG_HOLD";
/// How often it is looked for.
const TICK: Duration = Duration::from_millis(10);

/// Begins to look for the file, where the variable names one.
pub fn watch(disk: &Arc<Disk>) {
    let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return;
    };
    let disk = Arc::clone(disk);
    error_log(
        Level::Warn,
        format_args!(
            "{VARIABLE} is set: pools stand still while \"{}\" exists",
            path.display()
        ),
    );
    let started = thread::Builder::new()
        .name("hold".to_owned())
        .spawn(move || {
            let mut held = Vec::new();
            loop {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a debugging thread of its own, not a loop"
                )]
                let is_wanted = path.exists();
                if !is_wanted {
                    held.clear();
                } else if held.len() != disk.pool_counters().len() {
                    held = disk.hold_pools();
                }
                thread::park_timeout(TICK);
            }
        });
    if let Err(error) = started {
        error_log(
            Level::Alert,
            format_args!("the thread of {VARIABLE} cannot be started ({error})"),
        );
    }
}
