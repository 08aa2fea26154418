//! `freewheel cache why URL -c FILE`: whether a request would be answered from the cache now, and why.
//!
//! The key is computed by the server's own steps, as for `--explain-url` ([`crate::explain`]); the rules of freshness
//! are the location's. Nothing is asked, neither a server nor an origin.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use cache::freshness::ReuseDecision;
use cache::inspect::JournalView;
use cache::{Entry, Key, variant};

use super::files::Unread;
use super::place::{Configuration, FOUND, Place, now};
use super::request::{Request, ask};
use super::show::{describe, lifetime_of, reason, say};
use super::text;
use crate::explain::CacheQuestion;
use httpcore::handler::Modules;

/// What to explain.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    /// http://HOST[:PORT]/PATH, as the client asks for it
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    configuration: Configuration,
    #[command(flatten)]
    request: Request,
}

/// What becomes of the request, and the reason.
struct Verdict {
    /// As `$upstream_cache_status` says it.
    status: &'static str,
    why: String,
}

impl Verdict {
    fn new(status: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }
}

/// Explains.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    let (lines, asked) = ask(&wishes.configuration, &wishes.url, &wishes.request, modules)?;
    let Some(asked) = asked else {
        let what = match lines.is_empty() {
            true => "the request is not passed on (--explain-url says what becomes of it)",
            false => "the request is passed on without a cache",
        };
        print(&format!("no cache: {what}\n\n{lines}"))?;
        return Ok(ExitCode::from(FOUND));
    };
    let directory = Path::new(std::ffi::OsStr::from_bytes(&asked.directory));
    let place = Place::new(directory, Some(asked.levels))?;
    let (stored, variants) = look_up(&place, &asked);
    let keys: Vec<Key> = stored.iter().map(Entry::key).collect();
    let journal = place.journal(Some(&keys))?;
    let verdict = match &stored {
        Ok(entry) => judge(entry, &asked, &journal),
        Err(why) => miss(&asked, why),
    };
    let mut out = format!("{}: {}\n\n{lines}\n", verdict.status, verdict.why);
    if !variants.is_empty() {
        say(&mut out, "variants", &variants);
    }
    if let Ok(entry) = &stored {
        describe(&mut out, entry, &journal);
    }
    let (count, last) = journal
        .pending()
        .fold((0, None), |(count, _), rule| (count + 1, Some(rule)));
    if let Some(rule) = last {
        say(
            &mut out,
            "purges",
            &format!("{count} pending, the last one {}", text::purge(rule)),
        );
    }
    let server = match place.server() {
        Ok(Some(_)) => {
            "runs; what it holds in memory only (fetches in progress, failures of the origin) is not seen here"
        }
        Ok(None) => "none runs, or it is one of before this command",
        Err(_) => "not known",
    };
    say(&mut out, "server", server);
    print(&out)?;
    let is_hit = verdict.status == "HIT";
    Ok(if is_hit {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// The entry that is stored for a request, or the reason why there is none; and what is said of its variants.
fn look_up(place: &Place, asked: &CacheQuestion) -> (Result<Entry, String>, String) {
    let main = Key::of(&asked.key_text);
    let first = match open(place, &main) {
        Ok(entry) if entry.key_text() == &asked.key_text => entry,
        Ok(_) => {
            return (
                Err("the file has the same MD5 and another key".to_owned()),
                String::new(),
            );
        }
        Err(why) => return (Err(why), String::new()),
    };
    let Some(own) = first.variant() else {
        return (Ok(first), String::new());
    };
    let fields = asked
        .fields
        .iter()
        .map(|(name, value)| (&name[..], &value[..]));
    let wanted = variant(main, first.vary(), fields);
    let names = text::shown(first.vary());
    let told = format!(
        "the response varies by {names}; this request asks for {}",
        wanted.name()
    );
    if wanted == own {
        return (Ok(first), told);
    }
    let other = open(place, &wanted).and_then(|entry| match entry.variant() == Some(wanted) {
        true => Ok(entry),
        false => Err("another variant is stored there".to_owned()),
    });
    let other = other.map_err(|why| {
        format!("the stored response is another variant (by {names}), and of this one: {why}")
    });
    (other, told)
}

fn open(place: &Place, key: &Key) -> Result<Entry, String> {
    let at = place
        .entry_of(key)
        .ok_or("nothing is stored under this key")?;
    match at.head() {
        Ok((entry, _)) if entry.key() == *key => Ok(entry),
        Ok(_) => Err("the file is another entry's, which will be deleted".to_owned()),
        Err(Unread::Gone) => Err("nothing is stored under this key".to_owned()),
        Err(unread) => Err(format!("the file cannot be used: {}", reason(&unread))),
    }
}

fn miss(asked: &CacheQuestion, why: &str) -> Verdict {
    if asked.is_bypassed {
        return Verdict::new("BYPASS", "a condition of proxy_cache_bypass holds");
    }
    if asked.rules.refuses_miss(&asked.wishes) {
        return Verdict::new(
            "MISS",
            format!("{why}; the request says only-if-cached: 504"),
        );
    }
    Verdict::new("MISS", why)
}

/// The server's own order of questions.
fn judge(entry: &Entry, asked: &CacheQuestion, journal: &JournalView) -> Verdict {
    let now = now();
    if asked.is_bypassed {
        return Verdict::new(
            "BYPASS",
            "a condition of proxy_cache_bypass holds, so what is stored is not used",
        );
    }
    if let Some(rule) = journal.covering(entry) {
        return Verdict::new(
            "MISS",
            format!("what is stored is purged: {}", text::purge(rule)),
        );
    }
    let (rules, lifetime) = (&asked.rules, lifetime_of(entry, journal));
    let is_fresh = rules.is_fresh(&lifetime, now);
    let (is_updating_used, updates_behind) = asked.stale;
    let may_be_old = !is_fresh
        && updates_behind
        && rules.may_use_while_updating(&lifetime, now, is_updating_used);
    let state = text::freshness(&lifetime, now);
    match rules.admit(&lifetime, now, &asked.wishes, is_fresh || may_be_old) {
        ReuseDecision::Use if is_fresh => Verdict::new("HIT", format!("it is {state}")),
        ReuseDecision::Use => Verdict::new(
            "STALE",
            format!("it is {state}, is used all the same, and fetched anew"),
        ),
        ReuseDecision::Refuse => Verdict::new(
            "EXPIRED",
            "the request accepts only a stored response, and none that is usable is: 504",
        ),
        ReuseDecision::Ask if is_fresh => Verdict::new(
            "EXPIRED",
            "it is fresh, but the request's Cache-Control asks for a newer one",
        ),
        ReuseDecision::Ask if rules.may_use_while_updating(&lifetime, now, is_updating_used) => {
            Verdict::new(
                "EXPIRED",
                format!(
                    "it is {state}: the origin is asked (UPDATING while another request does so)"
                ),
            )
        }
        ReuseDecision::Ask => {
            Verdict::new("EXPIRED", format!("it is {state}: the origin is asked"))
        }
    }
}

fn print(text: &str) -> Result<(), String> {
    let told = std::io::stdout().write_all(text.as_bytes());
    told.map_err(|error| error.to_string())
}
