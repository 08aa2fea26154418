//! `freewheel cache show DIR KEY|URL|FILE`: one entry, with all that its file and the journal say of it.
#![expect(
    clippy::disallowed_methods,
    reason = "a command: no loop runs in this process"
)]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cache::inspect::JournalView;
use cache::{Entry, Key, KnownKey, Lifetime, Reuse, tags_of, variant};

use super::files::{Checker, Located, Unread};
use super::place::{FOUND, Place, Which, now};
use super::request::{Request, ask};
use super::text;
use httpcore::handler::Modules;

/// What to show.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    #[command(flatten)]
    which: Which,
    /// The text of a key, its MD5, the path of an entry's file, or (with -c) the URL of a request
    #[arg(value_name = "KEY|URL|FILE")]
    wanted: String,
    #[command(flatten)]
    request: Request,
}

/// Shows.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    let mut found: Result<Found, String> = Ok(Err(String::new()));
    for place in wishes.which.find(modules)? {
        found = find(wishes, place, modules);
        if matches!(found, Ok(Ok(_))) {
            break;
        }
    }
    let (place, at) = match found? {
        Ok(found) => found,
        Err(none) => {
            text::say(format_args!("{none}\n"));
            return Ok(ExitCode::from(FOUND));
        }
    };
    let (entry, len) = match at.head() {
        Ok(read) => read,
        Err(unread) => {
            text::say(format_args!("{}: {}\n", at.shown(), reason(&unread)));
            return Ok(ExitCode::from(FOUND));
        }
    };
    let journal = place.journal(Some(&[entry.key()]))?;
    let mut out = String::new();
    let file = format!("{} ({})", at.shown(), text::size(len));
    say(&mut out, "file", &file);
    describe(&mut out, &entry, &journal);
    let checked = Checker::new().check(&at);
    let (sentence, is_whole) = match &checked {
        Ok(_) => {
            let (count, s) = (entry.blocks(), if entry.blocks() == 1 { "" } else { "s" });
            (format!("right: of the head and of {count} block{s}"), true)
        }
        Err(unread) => (reason(unread), false),
    };
    say(&mut out, "checksums", &sentence);
    out.push('\n');
    let head = entry.head();
    let status_line = head.status_line.of(&head.bytes);
    let _ = writeln!(out, "HTTP/1.1 {}", text::shown(status_line));
    for (name, value, _) in head.iter() {
        let _ = writeln!(out, "{}: {}", text::shown(name), text::shown(value));
    }
    let told = std::io::stdout().write_all(out.as_bytes());
    told.map_err(|error| error.to_string())?;
    Ok(if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// An entry, and the directory whose journal knows it. `Err`: the sentence that there is none.
type Found = Result<(Place, Located), String>;

/// The file that is meant. What looks like a URL may be a key as well, as `cache ls` prints it.
fn find(wishes: &Wishes, place: Place, modules: Modules) -> Result<Found, String> {
    let wanted = &wishes.wanted;
    if !wanted.contains("://") || !wishes.which.configuration.is_named() {
        return Ok(find_by_name(wanted, place));
    }
    let by_request = find_by_request(wishes, modules);
    if matches!(by_request, Ok(Ok(_))) {
        return by_request;
    }
    match place.entry_of(&Key::of(wanted.as_bytes())) {
        Some(at) => Ok(Ok((place, at))),
        None => by_request,
    }
}

/// By the key that the configuration gives a request, in the cache that it gives it.
fn find_by_request(wishes: &Wishes, modules: Modules) -> Result<Found, String> {
    let configuration = &wishes.which.configuration;
    let (lines, asked) = ask(configuration, &wishes.wanted, &wishes.request, modules)?;
    let Some(asked) = asked else {
        return Ok(Err(format!("this request has no cache\n{lines}")));
    };
    let place = Place::new(
        Path::new(OsStr::from_bytes(&asked.directory)),
        Some(asked.levels),
    )?;
    let main = Key::of(&asked.key_text);
    let found = place.entry_of(&main).and_then(|at| {
        let (entry, _) = at.head().ok()?;
        let own = entry.variant();
        let fields = asked
            .fields
            .iter()
            .map(|(name, value)| (&name[..], &value[..]));
        let wanted = variant(main, entry.vary(), fields);
        if own.is_none_or(|own| own == wanted) {
            return Some(at);
        }
        place.entry_of(&wanted)
    });
    Ok(match found {
        Some(at) => Ok((place, at)),
        None => Err(format!(
            "nothing is stored under the key {}, for this request",
            text::shown(&asked.key_text)
        )),
    })
}

/// By the path of its file, the MD5 of its key, or its key.
fn find_by_name(wanted: &str, place: Place) -> Found {
    let inside = place.directory.join(wanted);
    for path in [PathBuf::from(wanted), inside] {
        if path.is_file() {
            return Ok((place, Located::whole(path)));
        }
    }
    let key = Key::from_name(wanted.as_bytes()).unwrap_or_else(|| Key::of(wanted.as_bytes()));
    let hint = match wanted.contains("://") {
        true => "; with -c FILE the key of a URL is computed as the configuration says",
        false => "",
    };
    match place.entry_of(&key) {
        Some(at) => Ok((place, at)),
        None => Err(format!(
            "nothing is stored under the key {wanted} (MD5 {}){hint}",
            key.name()
        )),
    }
}

/// The lines of an entry: key, times, tags, uses, purges.
pub(super) fn describe(out: &mut String, entry: &Entry, journal: &JournalView) {
    let now = now();
    say(out, "key", &text::shown(entry.key_text()));
    say(out, "md5", &entry.main().name());
    let known = known_of(entry, journal);
    let lifetime = lifetime_of(entry, journal);
    describe_times(out, entry, &lifetime);
    say(out, "body", &format!("{} bytes", entry.body_len()));
    if let Some(variant) = entry.variant() {
        let own = format!(
            "{}; this is the variant {}",
            text::shown(entry.vary()),
            variant.name()
        );
        say(out, "vary", &own);
    }
    let tags: Vec<String> = entry
        .head()
        .iter()
        .flat_map(|(name, value, _)| tags_of(name, value).map(text::shown))
        .collect();
    if !tags.is_empty() {
        say(out, "tags", &tags.join(", "));
    }
    match known {
        Some(known) => {
            let (uses, used) = (known.uses, text::moment(known.used, now));
            say(out, "uses", &format!("{uses}, the last one noted {used}"));
        }
        None => say(
            out,
            "uses",
            "not known: the journal does not name this entry",
        ),
    }
    if let Some(rule) = journal.covering(entry) {
        say(
            out,
            "purged",
            &format!("by the pending purge {}", text::purge(rule)),
        );
    }
}

/// When it was stored, and how long it may be used.
fn describe_times(out: &mut String, entry: &Entry, lifetime: &Lifetime) {
    let now = now();
    let renewed = match lifetime.date != entry.lifetime().date {
        true => ", renewed by a 304",
        false => "",
    };
    say(
        out,
        "stored",
        &format!("{}{renewed}", text::moment(lifetime.date, now)),
    );
    say(out, "age", &text::duration(i64::from(lifetime.age(now))));
    say(out, "fresh until", &fresh(lifetime, now));
    if lifetime.updating > 0 {
        let until = lifetime
            .expires
            .saturating_add(i64::from(lifetime.updating));
        say(
            out,
            "stale",
            &format!(
                "usable while it is updated, until {}",
                text::moment(until, now)
            ),
        );
    }
    if lifetime.error > 0 {
        let until = lifetime.expires.saturating_add(i64::from(lifetime.error));
        say(
            out,
            "stale",
            &format!(
                "usable if the origin fails, until {}",
                text::moment(until, now)
            ),
        );
    }
}

fn fresh(lifetime: &Lifetime, now: i64) -> String {
    let until = text::moment(lifetime.expires, now);
    match lifetime.reuse {
        Reuse::Plain => until,
        Reuse::NeverStale => format!("{until}; the origin forbids to use it stale"),
        Reuse::Revalidate => format!("{until}; to be revalidated at each use"),
    }
}

/// What the journal says of this very entry.
fn known_of(entry: &Entry, journal: &JournalView) -> Option<KnownKey> {
    let known = journal.known(&entry.key());
    known.filter(|known| known.extent.file == entry.tag())
}

/// Its lifetime: a 304 is noted in the journal first.
pub(super) fn lifetime_of(entry: &Entry, journal: &JournalView) -> Lifetime {
    latest(*entry.lifetime(), known_of(entry, journal))
}

/// The lifetime of an entry, of its own one and that in the journal.
pub(super) fn latest(own: Lifetime, known: Option<KnownKey>) -> Lifetime {
    // A journal that was compacted knows the date only less the initial age.
    let is_renewed = |known: &Lifetime| (known.born(), known.expires) != (own.born(), own.expires);
    let known = known.map(|known| known.lifetime);
    known.filter(is_renewed).unwrap_or(own)
}

/// A line with a title.
pub(super) fn say(out: &mut String, title: &str, text: &str) {
    let _ = writeln!(out, "{title:11} {text}");
}

/// Why an entry cannot be read.
pub(super) fn reason(unread: &Unread) -> String {
    match unread {
        Unread::Gone => "it is not there any more".to_owned(),
        Unread::Disk(error) => super::place::told(error),
        Unread::Fault(fault) => fault.to_string(),
    }
}
