//! `freewheel cache convert DIR`: the server that owns the directory moves small entries that have files into segments.

use std::process::ExitCode;

use proxy::caching::caches::control::{Answer, Order};

use super::place::{Place, Which};
use httpcore::handler::Modules;

/// What to convert.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    #[command(flatten)]
    which: Which,
}

/// Converts.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    wishes.which.for_each(modules, convert)
}

fn convert(place: &Place) -> Result<bool, String> {
    match place.order(&Order::Convert)? {
        Some(Answer::Converted(count)) => {
            println!("{count} entries were moved into segments");
            Ok(true)
        }
        Some(other) => Err(format!("the server answers {other:?}")),
        None => Err(format!(
            "{}: no server runs that could do it: start it with \"store=segments\"",
            place.directory.display()
        )),
    }
}
