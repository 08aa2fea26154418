//! `freewheel cache disk DIR`: the state of a cache's disk, by the server that owns the directory.

use std::process::ExitCode;

use proxy::caching::caches::control::{Answer, Order};

use super::place::{Place, Which};
use super::text;
use httpcore::handler::Modules;

/// Whose disk.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    #[command(flatten)]
    which: Which,
}

/// Tells the state. The exit code is 1 where the disk is not well.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    wishes.which.for_each(modules, tell)
}

/// Tells the state of one. False: it is not well.
fn tell(place: &Place) -> Result<bool, String> {
    let report = match place.order(&Order::Disk)? {
        Some(Answer::Disk(report)) => report,
        Some(other) => return Err(format!("the server answers {other:?}")),
        None => return Err("no server runs that has this cache".to_owned()),
    };
    text::say(format_args!(
        "{}, writing: {}, usual p99 of reads: {} ms\n",
        report.state,
        report.writing,
        report.usual_us / 1000
    ));
    for change in &report.changes {
        text::say(format_args!(
            "{} ago: {}, writing: {}: {}\n",
            text::duration(change.age()),
            change.state,
            change.writing,
            change.reason
        ));
    }
    Ok(report.is_well())
}
