//! `freewheel cache ls DIR`: the entries, one a line, as they are found.
//!
//! Invariant: memory does not grow with the number of entries, but for `--journal` (less than 100 bytes an entry).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use cache::inspect::{JournalView, Place as FilePlace};
use cache::{Entry, EntryFault, tags_of};
use serde::Serialize;

use super::files::{Files, Found, Unread};
use super::place::{Which, now};
use super::show::latest;
use super::text;
use httpcore::handler::Modules;

/// Entries that are sorted and shown where no other number is asked for.
const SORTED_DEFAULT: usize = 1000;
/// Maximum of entries that are sorted: about 1 KiB of memory each.
const SORTED_MAX: usize = 1_000_000;

/// What to list.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    #[command(flatten)]
    which: Which,
    /// Only entries whose keys begin with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only entries whose keys match this (PCRE)
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
    /// Only entries with this tag (Surrogate-Key, Cache-Tag)
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only entries with this status
    #[arg(long, value_name = "CODE")]
    status: Option<u16>,
    /// Only entries that are fresh
    #[arg(long, conflicts_with = "stale")]
    fresh: bool,
    /// Only entries that are not
    #[arg(long)]
    stale: bool,
    /// Also reads the journal: uses, the last use, and lifetimes that a 304 has extended
    #[arg(long)]
    journal: bool,
    /// Sorted, the largest first (key: the first one); the directory is read to its end before anything is shown
    #[arg(long, value_enum, value_name = "BY")]
    sort: Option<Sort>,
    /// At most so many entries [with --sort: 1000]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// A JSON object for each entry, one a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    Size,
    Age,
    Fresh,
    Uses,
    Key,
}

/// An entry as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    key: String,
    md5: String,
    status: u16,
    /// Bytes of the body.
    size: u64,
    /// Seconds since the origin made it.
    age: u32,
    /// Seconds since 1970.
    stored: i64,
    fresh_until: i64,
    is_fresh: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uses: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<i64>,
    file: String,
    #[serde(skip)]
    fresh: String,
}

/// The place of a row in the order; less is earlier.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Number(Reverse<i64>),
    Text(String),
}

/// A row that is kept until all are known.
#[derive(Debug)]
struct Ranked(Rank, Row);

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Ranked {}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// What is not listed, for the last line.
#[derive(Debug, Default)]
struct Unlisted {
    damaged: u64,
    version: u64,
    incomplete: u64,
    foreign: u64,
    unread: u64,
}

/// Lists.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    let places = wishes.which.find(modules)?;
    let regex = wishes
        .regex
        .as_ref()
        .map(|text| pcre2::bytes::Regex::new(text));
    let regex = regex
        .transpose()
        .map_err(|error| format!("--regex: {error}"))?;
    let limit = match (wishes.sort, wishes.limit) {
        (Some(_), Some(limit)) if limit > SORTED_MAX => {
            return Err(format!("--limit: at most {SORTED_MAX} with --sort"));
        }
        (Some(_), limit) => limit.unwrap_or(SORTED_DEFAULT),
        (None, limit) => limit.unwrap_or(usize::MAX),
    };
    let wanted = places.iter().filter(|_| wishes.journal);
    let journals = wanted.map(|place| place.journal(None));
    let journals = journals.collect::<Result<Vec<_>, _>>()?;
    let walks = places.iter().map(Files::below);
    let walks = walks.collect::<Result<Vec<_>, _>>();
    let walks = walks?;
    let mut list = List {
        wishes,
        regex,
        journals,
        limit,
        now: now(),
        sorted: BinaryHeap::new(),
        shown: 0,
        unlisted: Unlisted::default(),
        out: BufWriter::new(std::io::stdout().lock()),
    };
    match list.go(walks.into_iter().flatten()) {
        Ok(()) => {}
        // The reader has had enough (`| head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error.to_string()),
    }
    list.unlisted.tell();
    Ok(ExitCode::SUCCESS)
}

struct List<'a, W: Write> {
    wishes: &'a Wishes,
    regex: Option<pcre2::bytes::Regex>,
    journals: Vec<JournalView>,
    limit: usize,
    now: i64,
    sorted: BinaryHeap<Ranked>,
    shown: usize,
    unlisted: Unlisted,
    out: W,
}

impl<W: Write> List<'_, W> {
    fn go<F>(&mut self, walk: F) -> std::io::Result<()>
    where
        F: Iterator<Item = <Files as Iterator>::Item>,
    {
        if !self.wishes.json {
            writeln!(
                self.out,
                "{:>6} {:>9} {:>8} {:>16} {:>6}  KEY",
                "STATUS", "SIZE", "AGE", "", "USES"
            )?;
        }
        for found in walk {
            if self.shown >= self.limit && self.wishes.sort.is_none() {
                break;
            }
            match found {
                Ok(found) => self.look_at(&found)?,
                Err((path, error)) => {
                    self.unlisted.unread += 1;
                    eprintln!("freewheel: {}: {error}", path.display());
                }
            }
        }
        let sorted = std::mem::take(&mut self.sorted).into_sorted_vec();
        for Ranked(_, row) in sorted {
            self.show(&row)?;
        }
        self.out.flush()
    }

    fn look_at(&mut self, found: &Found) -> std::io::Result<()> {
        match found.place {
            FilePlace::Entry(..) => {}
            FilePlace::Foreign => {
                self.unlisted.foreign += 1;
                return Ok(());
            }
            FilePlace::Temporary | FilePlace::Journal | FilePlace::Segment(_) => return Ok(()),
        }
        let entry = match found.at.head() {
            Ok((entry, _)) => entry,
            Err(unread) => {
                self.unlisted.count(&unread);
                return Ok(());
            }
        };
        if !self.is_wanted(&entry) {
            return Ok(());
        }
        let row = self.row(&entry, found);
        if (self.wishes.fresh && !row.is_fresh) || (self.wishes.stale && row.is_fresh) {
            return Ok(());
        }
        match self.wishes.sort {
            None => self.show(&row),
            Some(sort) => {
                self.sorted.push(Ranked(rank(sort, &row), row));
                if self.sorted.len() > self.limit {
                    self.sorted.pop();
                }
                Ok(())
            }
        }
    }

    fn is_wanted(&self, entry: &Entry) -> bool {
        let wishes = self.wishes;
        let has_tag = |wanted: &String| {
            let mut lines = entry.head().iter();
            lines.any(|(name, value, _)| {
                tags_of(name, value).any(|tag| tag.eq_ignore_ascii_case(wanted.as_bytes()))
            })
        };
        let key = entry.key_text();
        let matches = |regex: &pcre2::bytes::Regex| regex.is_match(key).unwrap_or(false);
        wishes
            .prefix
            .as_ref()
            .is_none_or(|prefix| key.starts_with(prefix.as_bytes()))
            && self.regex.as_ref().is_none_or(matches)
            && wishes.tag.as_ref().is_none_or(has_tag)
            && wishes
                .status
                .is_none_or(|status| entry.head().status == status)
    }

    fn row(&self, entry: &Entry, found: &Found) -> Row {
        let known = self
            .journals
            .iter()
            .find_map(|journal| journal.known(&entry.key()));
        let known = known.filter(|known| known.extent.file == entry.tag());
        let lifetime = latest(*entry.lifetime(), known);
        let tags = entry.head().iter();
        let tags = tags.flat_map(|(name, value, _)| tags_of(name, value));
        Row {
            key: text::shown(entry.key_text()),
            md5: entry.key().name(),
            status: entry.head().status,
            size: entry.body_len(),
            age: lifetime.age(self.now),
            stored: lifetime.date,
            fresh_until: lifetime.expires,
            is_fresh: lifetime.reuse != cache::Reuse::Revalidate && lifetime.expires >= self.now,
            variant: entry.variant().map(|_| text::shown(entry.vary())),
            tags: tags.map(text::shown).collect(),
            uses: known.map(|known| known.uses),
            last_used: known.map(|known| known.used),
            file: found.relative.display().to_string(),
            fresh: text::freshness(&lifetime, self.now),
        }
    }

    fn show(&mut self, row: &Row) -> std::io::Result<()> {
        self.shown += 1;
        if self.wishes.json {
            serde_json::to_writer(&mut self.out, row)?;
            return self.out.write_all(b"\n");
        }
        let uses = row
            .uses
            .map_or_else(|| "-".to_owned(), |uses| uses.to_string());
        let age = text::duration(i64::from(row.age));
        let (size, fresh) = (text::size(row.size), &row.fresh);
        writeln!(
            self.out,
            "{:>6} {size:>9} {age:>8} {fresh:>16} {uses:>6}  {}",
            row.status, row.key
        )
    }
}

fn rank(sort: Sort, row: &Row) -> Rank {
    let number = match sort {
        Sort::Size => i64::try_from(row.size).unwrap_or(i64::MAX),
        Sort::Age => i64::from(row.age),
        Sort::Fresh => row.fresh_until,
        Sort::Uses => row.uses.map_or(-1, i64::from),
        Sort::Key => return Rank::Text(row.key.clone()),
    };
    Rank::Number(Reverse(number))
}

impl Unlisted {
    fn count(&mut self, unread: &Unread) {
        *match unread {
            Unread::Gone => return,
            Unread::Disk(_) => &mut self.unread,
            Unread::Fault(EntryFault::Foreign) => &mut self.foreign,
            Unread::Fault(EntryFault::Version(_)) => &mut self.version,
            Unread::Fault(EntryFault::Incomplete | EntryFault::Needs(_)) => &mut self.incomplete,
            Unread::Fault(_) => &mut self.damaged,
        } += 1;
    }

    fn tell(&self) {
        let counts = [
            (self.damaged, "damaged"),
            (self.version, "of another version"),
            (self.incomplete, "not complete"),
            (self.foreign, "foreign"),
            (self.unread, "not readable"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let told: Vec<_> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !told.is_empty() {
            eprintln!("freewheel: files that are not listed: {}", told.join(", "));
        }
    }
}
