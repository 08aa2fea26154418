//! The settings of a bundle, built on a helper thread of the worker: names and files may keep it waiting.
//!
//! Not here: what becomes of them (`worker`). Invariant: nothing that is served changes while they are built.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use disk::Disk;
use httpcore::handler::Modules;
use httpcore::settings::Settings;
use logs::process_log::{Level, error_log};
use logs::{ErrorLogs, Logs, Target};
use proxy::settings::bind::needs_right;
use upstream::Upstreams;

use super::bundle::Bundle;
use super::directives::Main;
use super::load::{self, Loaded};
use super::log_files::{self, Wanted};

/// Size in bytes of configuration texts from which on the memory freed after building and dropping their settings (some
/// fifty times as much) is given back to the kernel. Meanwhile a loop that allocates waits for its arena's lock, for a
/// few milliseconds (measured with 20 000 connections).
pub(super) const LARGE_BYTES: usize = 128 << 10;

/// A bundle whose settings a helper thread has built.
pub(super) struct BuiltBundle {
    pub(super) bundle: Bundle,
    pub(super) outcome: Result<BuiltSettings, String>,
}

/// Settings whose places in the configuration have their logs.
pub(super) struct BuiltSettings {
    pub(super) main: Main,
    pub(super) settings: Arc<Settings>,
    /// Whether a line needs the right to send from foreign addresses.
    pub(super) needs_right: bool,
    pub(super) wanted: Wanted,
    /// The logs of the process.
    pub(super) main_logs: ErrorLogs,
    /// Files that have no other holder yet.
    pub(super) held: Vec<Target>,
}

/// What settings are built beside.
pub(super) struct Around {
    /// What is served so far.
    pub(super) former: Option<Arc<Settings>>,
    pub(super) logs: Logs,
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) modules: Modules,
}

/// Where the settings go once they are built.
pub(super) struct Done {
    pub(super) built: mpsc::Sender<BuiltBundle>,
    /// Signalled then.
    pub(super) bell: Arc<OwnedFd>,
}

/// Begins to build a bundle's settings.
///
/// # Errors
/// That of clone(2).
pub(super) fn begin(bundle: Bundle, around: Around, done: Done) -> io::Result<()> {
    let helper = thread::Builder::new().name("settings".to_owned());
    helper.spawn(move || build(bundle, around, &done)).map(drop)
}

fn build(bundle: Bundle, around: Around, done: &Done) {
    let Around {
        former,
        logs,
        disk,
        modules,
    } = around;
    let is_large = bundle.texts.bytes() >= LARGE_BYTES;
    let origin = bundle.origin();
    let outcome = without_panic(|| {
        let loaded = load::load(
            &origin,
            &bundle.circumstances,
            &mut bundle.texts.clone(),
            modules,
        );
        let built = equip(
            loaded.map_err(|refused| refused.sentence())?,
            &bundle,
            &logs,
        )?;
        if let Some(former) = former {
            built.settings.made::<Upstreams>().follow(former.made());
        }
        Ok(built)
    });
    let roots = outcome
        .as_ref()
        .map_or_else(|_| Vec::new(), |of| of.settings.roots());
    let _ = done.built.send(BuiltBundle { bundle, outcome });
    let _ = rustix::io::write(&done.bell, &1_u64.to_ne_bytes());
    // Memory that only building needed, by far the most of it, is not kept for the next time.
    if is_large {
        sys::trim_heap();
    }
    tell_proofs(&roots, disk.as_deref());
}

/// A panic is a refusal: without an answer the master would wait for ever, and take no other configuration.
fn without_panic<T>(build: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // What it has begun is dropped.
    let built = catch_unwind(AssertUnwindSafe(build));
    built.unwrap_or_else(|_| {
        Err("the configuration cannot be built: there is an error in freewheel, which the log tells above".to_owned())
    })
}

/// Gives every place of the configuration its logs. May resolve names: on the helper thread.
fn equip(loaded: Loaded, bundle: &Bundle, logs: &Logs) -> Result<BuiltSettings, String> {
    let wanted = Wanted::all(&loaded, &bundle.prefix, bundle.error_log.as_deref());
    let wanted = wanted.map_err(|error| error.to_string())?;
    let held = log_files::make_known(bundle, &wanted, logs);
    let main_logs = log_files::threaded(&wanted, logs)?;
    loaded
        .settings
        .equip(logs, &main_logs)
        .map_err(|error| error.to_string())?;
    Ok(BuiltSettings {
        needs_right: needs_right(&loaded.tree.directives),
        main: loaded.main,
        settings: loaded.settings,
        wanted,
        main_logs,
        held,
    })
}

/// Logs what the kernel refuses, and how the residency of files is proven below each root of the configuration. Waits for disks: on the helper
/// thread.
fn tell_proofs(roots: &[Bytes], disk: Option<&Disk>) {
    if let Some(disk) = disk {
        for refusal in disk::refusals() {
            error_log(Level::Notice, format_args!("{refusal}"));
        }
        if let Some(line) = disk.lack_of_copies() {
            error_log(Level::Notice, format_args!("{line}"));
        }
    }
    for (root, disk) in roots.iter().zip(std::iter::repeat(disk).flatten()) {
        let probe = disk.probe(httpcore::settings::root::directory(root));
        let level = if probe.is_forbidden {
            Level::Warn
        } else {
            Level::Notice
        };
        error_log(level, format_args!("root {probe}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_refuses_the_configuration() {
        assert_eq!(without_panic(|| Ok(1)), Ok(1));
        let refused = without_panic::<u8>(|| panic!("a test's"));
        assert!(refused.is_err_and(|sentence| sentence.contains("cannot be built")));
    }
}
