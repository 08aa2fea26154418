//! `freewheel cache verify DIR`: every entry is read and its checksums are compared, off the server's way.
//!
//! The process reads with idle I/O priority, past the kernel's memory where the file system can, and at most as fast as
//! `--rate` says. Invariant: without `--remove` or `--quarantine` nothing is changed; with them, a server that owns the
//! directory looks at the entry itself, and deletes it.
#![expect(
    clippy::disallowed_methods,
    reason = "a command: no loop runs in this process"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cache::inspect::Place as FilePlace;
use cache::{EntryFault, Key};
use proxy::caching::caches::control::{Answer, Order};
use serde::Serialize;

use super::files::{Checker, Files, Found, Unread};
use super::place::{FOUND, Place, Which, now};
use super::show::reason;
use super::{purge, text};
use httpcore::handler::Modules;

/// Times that an entry is read before it counts as damaged: it may be overwritten in between.
const READ_TIMES: usize = 3;
/// The pause between two of them.
const READ_AGAIN: Duration = Duration::from_millis(50);
/// Age in seconds up to which an incomplete file counts as one that is being written.
const WRITING_SECONDS: i64 = 60;

/// What to verify.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    #[command(flatten)]
    which: Which,
    /// Deletes entries that are damaged or cut off
    #[arg(long)]
    remove: bool,
    /// Moves them to this directory, which lies elsewhere
    #[arg(long, value_name = "DIRECTORY")]
    quarantine: Option<PathBuf>,
    /// Reads at most so many MiB a second
    #[arg(long, value_name = "MIB")]
    rate: Option<u64>,
    /// Shows also foreign files
    #[arg(long)]
    foreign: bool,
    /// A JSON object for each file at fault, and one with the sums, one a line
    #[arg(long)]
    json: bool,
}

/// The sums.
#[derive(Debug, Default, Serialize)]
struct Sums {
    entries: u64,
    bytes: u64,
    damaged: u64,
    cut: u64,
    other_version: u64,
    being_written: u64,
    foreign: u64,
    unread: u64,
    removed: u64,
    seconds: f64,
}

/// What is wrong with a file.
#[derive(Debug, Serialize)]
struct Fault<'a> {
    file: String,
    kind: &'a str,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<String>,
}

/// Verifies.
pub(super) fn run(wishes: &Wishes, modules: Modules) -> Result<ExitCode, String> {
    wishes
        .which
        .for_each(modules, |place| verify(place, wishes))
}

/// Verifies one directory. False: something is damaged.
fn verify(place: &Place, wishes: &Wishes) -> Result<bool, String> {
    if let Some(quarantine) = &wishes.quarantine {
        check_quarantine(place, quarantine)?;
    }
    // The kernel or a container may forbid it; --rate works everywhere.
    let _ = sys::set_idle_io();
    let walk = Files::below(place)?;
    let mut verify = Verify {
        wishes,
        place,
        checker: Checker::new(),
        sums: Sums::default(),
        begun: Instant::now(),
    };
    for found in walk {
        match found {
            Ok(found) => verify.look_at(&found)?,
            Err((path, error)) => {
                verify.sums.unread += 1;
                eprintln!("freewheel: {}: {error}", path.display());
            }
        }
    }
    Ok(verify.end() == ExitCode::SUCCESS)
}

fn check_quarantine(place: &Place, quarantine: &Path) -> Result<(), String> {
    let name = quarantine.display();
    let found = std::fs::canonicalize(quarantine)
        .map_err(|error| format!("--quarantine {name}: {error}"))?;
    match found.starts_with(&place.directory) {
        true => Err(format!("--quarantine {name}: it lies in the cache")),
        false => Ok(()),
    }
}

struct Verify<'a> {
    wishes: &'a Wishes,
    place: &'a Place,
    checker: Checker,
    sums: Sums,
    begun: Instant,
}

impl Verify<'_> {
    fn look_at(&mut self, found: &Found) -> Result<(), String> {
        match found.place {
            FilePlace::Entry(key, _) => self.look_at_entry(found, &key),
            FilePlace::Temporary if is_young(&found.at.path) => {
                self.sums.being_written += 1;
                Ok(())
            }
            FilePlace::Temporary => {
                self.sums.cut += 1;
                self.tell(
                    found,
                    "cut",
                    "left by a process that was killed; a walk of the server deletes it".to_owned(),
                    None,
                );
                Ok(())
            }
            FilePlace::Journal | FilePlace::Segment(_) => Ok(()),
            FilePlace::Foreign => {
                self.tell_foreign(found);
                Ok(())
            }
        }
    }

    fn look_at_entry(&mut self, found: &Found, key: &Key) -> Result<(), String> {
        let mut last = None;
        for turn in 0..READ_TIMES {
            if turn > 0 {
                std::thread::sleep(READ_AGAIN);
            }
            let checked = match self.checker.check(&found.at) {
                Ok(entry) if entry.key() != *key => {
                    Err(Unread::Fault(EntryFault::Damaged("place")))
                }
                checked => checked.map(drop),
            };
            self.keep_pace();
            match checked {
                Ok(()) => {
                    self.sums.entries += 1;
                    return Ok(());
                }
                Err(Unread::Gone) => return Ok(()),
                // Of nginx, or of a program that is not ours.
                Err(Unread::Fault(EntryFault::Foreign)) => {
                    self.tell_foreign(found);
                    return Ok(());
                }
                Err(Unread::Fault(fault @ EntryFault::Version(_))) => {
                    self.sums.other_version += 1;
                    self.tell(found, "other version", fault.to_string(), None);
                    return Ok(());
                }
                Err(unread) => last = Some(unread),
            }
        }
        match last {
            Some(unread) => self.at_fault(found, key, &unread),
            None => Ok(()),
        }
    }

    /// An entry that stays unusable however often it is read.
    fn at_fault(&mut self, found: &Found, key: &Key, unread: &Unread) -> Result<(), String> {
        let is_cut = matches!(
            unread,
            Unread::Fault(EntryFault::Incomplete | EntryFault::Needs(_))
        );
        if is_cut && is_young(&found.at.path) {
            self.sums.being_written += 1;
            return Ok(());
        }
        let kind = match unread {
            Unread::Disk(_) => {
                self.sums.unread += 1;
                "not readable"
            }
            _ if is_cut => {
                self.sums.cut += 1;
                "cut"
            }
            _ => {
                self.sums.damaged += 1;
                "damaged"
            }
        };
        let is_to_go =
            kind != "not readable" && (self.wishes.remove || self.wishes.quarantine.is_some());
        let done = is_to_go.then(|| self.take_away(found, key)).transpose();
        match done {
            Ok(done) => {
                self.tell(found, kind, reason(unread), done);
                Ok(())
            }
            Err(sentence) => {
                self.tell(found, kind, reason(unread), None);
                Err(sentence)
            }
        }
    }

    /// Copies an entry to the quarantine and has it deleted: by its server, or under the directory's lock.
    fn take_away(&mut self, found: &Found, key: &Key) -> Result<String, String> {
        let fault =
            |error: std::io::Error| format!("{}: {}", found.at.shown(), super::place::told(&error));
        if let Some(quarantine) = &self.wishes.quarantine {
            found
                .at
                .copy_to(&quarantine.join(key.name()))
                .map_err(fault)?;
        }
        let done = match self.place.order(&Order::Check(*key))? {
            Some(Answer::Dropped(_)) => "deleted by the server",
            Some(Answer::Whole) => {
                return Ok("the server finds it whole: it was replaced meanwhile".to_owned());
            }
            Some(Answer::Absent) => return Ok("the server does not find it any more".to_owned()),
            Some(other) => return Err(format!("the server answers {other:?}")),
            None => {
                self.delete(found)?;
                "deleted"
            }
        };
        self.sums.removed += 1;
        Ok(match &self.wishes.quarantine {
            Some(quarantine) => format!("{done}; a copy lies in {}", quarantine.display()),
            None => done.to_owned(),
        })
    }

    /// Deletes a file of a directory that no process owns.
    fn delete(&self, found: &Found) -> Result<(), String> {
        let place = self.place;
        place.with_disk(async |local, pool| {
            let lock = cache::inspect::lock(local, place.bytes(), pool).await;
            match lock {
                Ok(Some(_lock)) => found.at.remove().map_err(|error| {
                    format!("{}: {}", found.at.shown(), super::place::told(&error))
                }),
                Ok(None) => Err(purge::in_use(place)),
                Err(error) => Err(error.to_string()),
            }
        })?
    }

    fn tell_foreign(&mut self, found: &Found) {
        self.sums.foreign += 1;
        if self.wishes.foreign {
            self.tell(
                found,
                "foreign",
                "not a file of this cache; it is left alone".to_owned(),
                None,
            );
        }
    }

    fn tell(&self, found: &Found, kind: &str, why: String, done: Option<String>) {
        let file = found.relative.display().to_string();
        if self.wishes.json {
            let fault = Fault {
                file,
                kind,
                why,
                done,
            };
            text::say(format_args!(
                "{}\n",
                serde_json::to_string(&fault).unwrap_or_default()
            ));
            return;
        }
        let done = done.map_or_else(String::new, |done| format!("; {done}"));
        text::say(format_args!("{kind:13} {file}: {why}{done}\n"));
    }

    /// Waits until what was read is no more than the rate allows.
    fn keep_pace(&self) {
        let Some(rate) = self.wishes.rate.filter(|rate| *rate > 0) else {
            return;
        };
        let due = self.checker.bytes as f64 / (rate as f64 * 1024.0 * 1024.0);
        let early = due - self.begun.elapsed().as_secs_f64();
        if early > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(early.min(60.0)));
        }
    }

    /// Tells the sums.
    fn end(mut self) -> ExitCode {
        let sums = &mut self.sums;
        (sums.bytes, sums.seconds) = (self.checker.bytes, self.begun.elapsed().as_secs_f64());
        let counts = [
            (sums.damaged, "damaged"),
            (sums.cut, "cut off"),
            (sums.other_version, "of another version"),
            (sums.unread, "not readable"),
            (sums.removed, "deleted"),
            (sums.being_written, "being written"),
            (sums.foreign, "foreign files"),
        ];
        if self.wishes.json {
            text::say(format_args!(
                "{}\n",
                serde_json::to_string(sums).unwrap_or_default()
            ));
        } else {
            let (bytes, seconds) = (text::size(sums.bytes), sums.seconds);
            text::say(format_args!(
                "{} entries whole, {bytes} read in {seconds:.1} s",
                sums.entries
            ));
            for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
                text::say(format_args!(", {count} {what}"));
            }
            text::say(format_args!("\n"));
        }
        let is_bad = sums.damaged + sums.cut + sums.other_version + sums.unread > 0;
        if is_bad {
            ExitCode::from(FOUND)
        } else {
            ExitCode::SUCCESS
        }
    }
}

/// Whether a file was written to so lately that it may still be written to.
fn is_young(path: &Path) -> bool {
    let meta = std::fs::symlink_metadata(path);
    // Gone: its writer has ended.
    meta.map_or(true, |meta| {
        std::os::unix::fs::MetadataExt::mtime(&meta) > now() - WRITING_SECONDS
    })
}
