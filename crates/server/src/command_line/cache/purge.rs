//! `freewheel cache purge DIR key|prefix|tag TEXT…`: by the server that owns the directory, or, without one, by a rule
//! in the journal, which the next server obeys before it answers from there.

use std::process::ExitCode;

use cache::{Error, Key, PurgeRule};
use proxy::caching::caches::control::{Answer, Order};

use super::place::{Place, Which};
use super::text;
use httpcore::handler::Modules;

/// Maximum length of a prefix or a tag, in bytes: what the server takes.
const TEXT_MAX: usize = 1024;

/// What to purge.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    #[command(flatten)]
    which: Which,
    /// What the texts are: key (or its MD5), prefix of keys, or tag
    #[arg(value_enum, value_name = "BY")]
    by: By,
    /// The keys, prefixes or tags
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Key,
    Prefix,
    Tag,
}

/// Purges.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    for text in &wishes.texts {
        if text.is_empty() {
            return Err("an empty text would purge by nothing, or everything".to_owned());
        }
        if text.len() > TEXT_MAX && wishes.by != By::Key {
            return Err(format!(
                "too long a text to purge by: at most {TEXT_MAX} bytes"
            ));
        }
    }
    wishes.which.for_each(modules, |place| purge(place, wishes))
}

/// Purges in one directory.
fn purge(place: &Place, wishes: &Wishes) -> Result<bool, String> {
    for text in &wishes.texts {
        let rule = rule(wishes.by, text);
        match place.order(&Order::Purge(rule.clone()))? {
            Some(Answer::Purged(true)) => text::say(format_args!("purged {text}: by the server\n")),
            Some(Answer::Purged(false)) => {
                text::say(format_args!("nothing is stored under {text}\n"))
            }
            Some(other) => return Err(format!("the server answers {other:?}")),
            None => alone(place, rule, text)?,
        }
    }
    Ok(true)
}

fn rule(by: By, text: &str) -> PurgeRule {
    let bytes = || bytes::Bytes::copy_from_slice(text.as_bytes());
    match by {
        By::Key => {
            let named = Key::from_name(text.as_bytes());
            PurgeRule::Key(named.unwrap_or_else(|| Key::of(text.as_bytes())))
        }
        By::Prefix => PurgeRule::Prefix(bytes()),
        By::Tag => PurgeRule::Tag(bytes()),
    }
}

/// Without a server.
fn alone(place: &Place, rule: PurgeRule, text: &str) -> Result<(), String> {
    place.become_owner()?;
    let done = place.with_disk(async |local, pool| {
        cache::inspect::purge(local, place.bytes(), pool, &[rule]).await
    })?;
    match done {
        Ok(()) => {
            text::say(format_args!(
                "purged {text}: no server runs; its files are deleted after the next start\n"
            ));
            Ok(())
        }
        Err(Error::InUse) => Err(in_use(place)),
        Err(error) => Err(format!("{}: {error}", place.directory.display())),
    }
}

/// A process has the lock and takes no orders.
pub(super) fn in_use(place: &Place) -> String {
    format!(
        "{}: a process owns this cache and takes no orders: it is starting or leaving (try again), or an older version; nothing was changed",
        place.directory.display()
    )
}
