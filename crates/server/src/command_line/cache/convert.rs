//! `freewheel cache convert DIR`: the server that owns the directory moves small entries into segments, or, with
//! `store=files`, out of them.

use std::process::ExitCode;

use cache::store::StoreKind;
use proxy::caching::caches::control::{Answer, Order};

use super::place::{Place, Which};
use super::text;
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
        Some(Answer::Converted(count, into)) => {
            let into = match into {
                StoreKind::Segments => "segments",
                StoreKind::Files => "files of their own",
            };
            text::say(format_args!("{count} entries were moved into {into}\n"));
            Ok(true)
        }
        Some(other) => Err(format!("the server answers {other:?}")),
        None => Err(format!(
            "{}: no server runs that could do it",
            place.directory.display()
        )),
    }
}
