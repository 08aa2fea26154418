//! The control socket of a cache's directory, `.freewheel/control`: purges, checks, conversions and the disk's state that `freewheel
//! cache` asks the owner of the directory for.
//!
//! A connection has one line, an order, and gets one line back. Whoever may enter the directory of the journal (the
//! worker's user, root) may order. Not here: how a purge is carried out (`purging`). Invariant: an order runs on the
//! cache manager's thread; no loop sees it.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cache::store::{Checked, Conversion, StoreKind};
use cache::{JOURNAL_FOLDER, Key, PurgeRule, Store};
use disk::Local;
use logs::Level;
use logs::process_log::error_log;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::caching::caches::disk_report::DiskReport;
use crate::caching::caches::open_cache::Cache;
use crate::caching::purging;

/// The socket's name, in the directory of the journal.
pub const NAME: &str = "control";
/// Maximum length of an order, in bytes.
pub const ORDER_BYTES_MAX: usize = 4096;
/// Maximum of orders that one cache carries out at a time.
const ORDERS_MAX: usize = 4;
/// Maximum time that a client gets to send its order, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum of the pause after each step of a conversion.
const CONVERT_PAUSE_MAX: Duration = Duration::from_millis(2);
/// Interval at which it is checked whether the cache is still in use.
const TICK: Duration = Duration::from_secs(1);

/// What the owner of a directory is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// To purge.
    Purge(PurgeRule),
    /// To read an entry, and to delete it if it is damaged.
    Check(Key),
    /// To move small entries to where its store puts them: into segments, or into files of their own.
    Convert,
    /// To tell the state of its disk.
    Disk,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Purged. False: nothing was stored under the key.
    Purged(bool),
    /// There is no such entry.
    Absent,
    /// The entry is whole.
    Whole,
    /// It was damaged, in this way, and is deleted.
    Dropped(String),
    /// So many entries were moved, into this.
    Converted(u64, StoreKind),
    /// The state of its disk.
    Disk(DiskReport),
    /// It could not be done, for this reason.
    Failed(String),
}

impl Order {
    /// The order as a line.
    #[must_use]
    pub fn line(&self) -> String {
        let (what, bytes) = match self {
            Self::Purge(PurgeRule::Key(key)) => ("purge-key", &key.0[..]),
            Self::Purge(PurgeRule::Prefix(text)) => ("purge-prefix", &text[..]),
            Self::Purge(PurgeRule::Tag(text)) => ("purge-tag", &text[..]),
            Self::Check(key) => ("check", &key.0[..]),
            Self::Convert => ("convert", &[][..]),
            Self::Disk => return "disk\n".to_owned(),
        };
        let mut line = format!("{what} ");
        for byte in bytes {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        line
    }

    /// The order in a line; `None`: it is none.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        if line == "disk\n" {
            return Some(Self::Disk);
        }
        let line = line.strip_suffix('\n').unwrap_or(line);
        let (what, digits) = line.split_once(' ')?;
        let pairs = digits.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
        let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
        let key = || Some(Key(bytes.as_slice().try_into().ok()?));
        Some(match what {
            "purge-key" => Self::Purge(PurgeRule::Key(key()?)),
            "purge-prefix" => Self::Purge(PurgeRule::Prefix(bytes.into())),
            "purge-tag" => Self::Purge(PurgeRule::Tag(bytes.into())),
            "check" => Self::Check(key()?),
            "convert" if bytes.is_empty() => Self::Convert,
            _ => return None,
        })
    }
}

impl Answer {
    fn line(&self) -> String {
        match self {
            Self::Purged(true) => "purged\n".to_owned(),
            Self::Purged(false) => "nothing\n".to_owned(),
            Self::Absent => "absent\n".to_owned(),
            Self::Whole => "whole\n".to_owned(),
            Self::Dropped(why) => format!("dropped {why}\n"),
            Self::Converted(count, StoreKind::Segments) => format!("converted {count}\n"),
            Self::Converted(count, StoreKind::Files) => format!("unconverted {count}\n"),
            Self::Disk(report) => format!("disk {}\n", report.text()),
            Self::Failed(why) => format!("failed {}\n", why.replace('\n', " ")),
        }
    }

    /// The answer in a line; `None`: it is none.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.strip_suffix('\n')?;
        let (what, why) = line.split_once(' ').unwrap_or((line, ""));
        Some(match what {
            "purged" => Self::Purged(true),
            "nothing" => Self::Purged(false),
            "absent" => Self::Absent,
            "whole" => Self::Whole,
            "dropped" => Self::Dropped(why.to_owned()),
            "converted" => Self::Converted(why.parse().ok()?, StoreKind::Segments),
            "unconverted" => Self::Converted(why.parse().ok()?, StoreKind::Files),
            "disk" => Self::Disk(DiskReport::parse(why)?),
            "failed" => Self::Failed(why.to_owned()),
            _ => return None,
        })
    }
}

/// Takes orders for as long as the cache is in use and not given up.
pub(super) async fn listen(local: Local, kept: Weak<Cache>, store: Store) {
    let settings = store.settings();
    let folder = [&settings.directory[..], b"/", JOURNAL_FOLDER.as_bytes()].concat();
    let made = local
        .listen_unix(&folder, NAME.as_bytes(), &settings.pool)
        .await;
    let made = made.map_err(|error| error.to_string()).and_then(listener);
    let listener = match made {
        Ok(listener) => listener,
        Err(why) => {
            let directory = settings.directory.escape_ascii();
            return error_log(
                Level::Warn,
                format_args!("cache \"{directory}\": \"freewheel cache\" cannot reach it ({why})"),
            );
        }
    };
    let places = Arc::new(Semaphore::new(ORDERS_MAX));
    loop {
        let place = timeout(TICK, Arc::clone(&places).acquire_owned()).await;
        let accepted = match place {
            Ok(Ok(place)) => Some((timeout(TICK, listener.accept()).await, place)),
            _ => None,
        };
        let Some(cache) = kept.upgrade().filter(|cache| !cache.is_given_up()) else {
            return;
        };
        match accepted {
            Some((Ok(Ok((stream, _))), place)) => {
                let (local, store) = (local.clone(), store.clone());
                tokio::task::spawn_local(async move {
                    let _place = place;
                    serve(&local, &cache, &store, stream).await;
                });
            }
            // Out of descriptors, perhaps.
            Some((Ok(Err(_)), _)) => sleep(TICK).await,
            Some((Err(_), _)) | None => {}
        }
    }
}

fn listener(fd: OwnedFd) -> Result<UnixListener, String> {
    UnixListener::from_std(fd.into()).map_err(|error| error.to_string())
}

/// Carries out the order of one connection.
async fn serve(local: &Local, cache: &Arc<Cache>, store: &Store, mut stream: UnixStream) {
    let line = timeout(PATIENCE, read_line(&mut stream)).await;
    let Some(line) = line.ok().flatten() else {
        return;
    };
    let answer = match Order::parse(&line) {
        Some(order) => obey(local, cache, store, order).await,
        None => Answer::Failed("no order that this version knows".to_owned()),
    };
    // A client that has left needs no answer.
    let _ = timeout(PATIENCE, stream.write_all(answer.line().as_bytes())).await;
}

async fn read_line(stream: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if line.len() > ORDER_BYTES_MAX || stream.read_buf(&mut line).await.ok()? == 0 {
            return None;
        }
    }
    String::from_utf8(line).ok()
}

async fn obey(local: &Local, cache: &Arc<Cache>, store: &Store, order: Order) -> Answer {
    let done = match &order {
        Order::Purge(rule) => purging::carry_out(cache, store, local, rule)
            .await
            .map(Answer::Purged),
        Order::Check(key) => store.check(local, key).await.map(|found| match found {
            Checked::Absent => Answer::Absent,
            Checked::Whole => Answer::Whole,
            Checked::Dropped(fault) => Answer::Dropped(fault.to_string()),
        }),
        Order::Convert => {
            let moved = convert(local, cache, store).await;
            moved.map(|count| Answer::Converted(count, store.settings().kind))
        }
        Order::Disk => Ok(Answer::Disk(DiskReport::of(&cache.disk))),
    };
    let directory = cache.zone.directory.escape_ascii();
    if let Ok(Answer::Purged(_) | Answer::Dropped(_) | Answer::Converted(..)) = &done {
        let what = shown(&order);
        error_log(
            Level::Notice,
            format_args!("cache \"{directory}\": \"freewheel cache\" {what}"),
        );
    }
    done.unwrap_or_else(|error| Answer::Failed(error.to_string()))
}

/// Moves small entries to where the store puts them, a few at a time, for as long as the cache is this process's.
async fn convert(local: &Local, cache: &Cache, store: &Store) -> Result<u64, cache::Error> {
    let mut conversion = Conversion::default();
    while !cache.is_given_up() && conversion.step(store, local).await? {
        sleep(cache.zone.manager.sleep.min(CONVERT_PAUSE_MAX)).await;
    }
    Ok(conversion.moved)
}

/// What was done, for the log.
fn shown(order: &Order) -> String {
    match order {
        Order::Purge(PurgeRule::Key(key)) => format!("purged the key {}", key.name()),
        Order::Purge(PurgeRule::Prefix(text)) => {
            format!("purged the prefix \"{}\"", text.escape_ascii())
        }
        Order::Purge(PurgeRule::Tag(text)) => format!("purged the tag \"{}\"", text.escape_ascii()),
        Order::Check(key) => format!("found the entry {} damaged; it is deleted", key.name()),
        Order::Convert => "moved small entries".to_owned(),
        Order::Disk => "told the state of its disk".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn orders_and_answers_survive_their_lines() {
        let orders = [
            Order::Purge(PurgeRule::Key(Key::of(b"a"))),
            Order::Purge(PurgeRule::Prefix(Bytes::from_static(b"http\0\n\xff"))),
            Order::Purge(PurgeRule::Tag(Bytes::from_static(b"news"))),
            Order::Check(Key::of(b"b")),
            Order::Convert,
            Order::Disk,
        ];
        for order in orders {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        for other in [
            "",
            "purge-key 00\n",
            "check xx\n",
            "drop 00\n",
            "purge-tag 0\u{e9}\n",
        ] {
            assert_eq!(Order::parse(other), None, "{other}");
        }
        let answers = [
            Answer::Purged(true),
            Answer::Purged(false),
            Answer::Absent,
            Answer::Whole,
            Answer::Converted(7, StoreKind::Segments),
            Answer::Converted(8, StoreKind::Files),
            Answer::Dropped("damaged: head".to_owned()),
            Answer::Failed("no space".to_owned()),
        ];
        for answer in answers {
            assert_eq!(Answer::parse(&answer.line()), Some(answer));
        }
        assert_eq!(Answer::parse("purged"), None, "cut off");
    }
}
