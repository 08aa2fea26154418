//! The control socket of a cache's directory, `.freewheel/control`: purges, checks, conversions and the disk's state that `freewheel
//! cache` asks the owner of the directory for.
//!
//! A connection has one line, an order, and gets one line back; a conversion, which may take hours, tells its progress meanwhile,
//! and ends with its connection. Whoever may enter the directory of the journal (the
//! worker's user, root) may order. Not here: how a purge is carried out (`purging`). Invariant: an order runs on the
//! cache manager's thread; no loop sees it.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cache::store::{Checked, Conversion, StoreKind};
use cache::{JOURNAL_FOLDER, Key, PurgeRule, Store};
use disk::Local;
use logs::Level;
use logs::process_log::error_log;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::caching::caches::disk_report::DiskReport;
use crate::caching::caches::open_cache::Cache;
use crate::caching::purging;

/// The socket's name, in the directory of the journal.
pub const NAME: &str = "control";
/// Maximum length of an order, in bytes.
pub const ORDER_BYTES_MAX: usize = 4096;
/// What a line about progress begins with; more such lines or the answer follow.
pub const PROGRESS: &str = "moved ";
/// Maximum of orders that one cache carries out at a time, apart from one conversion.
const ORDERS_MAX: usize = 4;
/// Maximum time that a client gets to send its order, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum of the pause after each step of a conversion.
const CONVERT_PAUSE_MAX: Duration = Duration::from_millis(2);
/// Maximum of pauses in a row of a conversion that finds no room, or whose disk is out or has too much to do.
const CONVERT_WAITS_MAX: u32 = 60;
/// Interval at which a conversion tells its progress: a client waits for a word longer than that.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);
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

/// The socket for orders to the process that has opened the store. None: there is none, and a line says why.
pub(super) async fn listen(local: &Local, store: &Store) -> Option<UnixListener> {
    let settings = store.settings();
    let folder = [&settings.directory[..], b"/", JOURNAL_FOLDER.as_bytes()].concat();
    let made = local
        .listen_unix(&folder, NAME.as_bytes(), &settings.pool)
        .await;
    let made = made.map_err(|error| error.to_string()).and_then(listener);
    let told = made.inspect_err(|why| {
        let directory = settings.directory.escape_ascii();
        error_log(
            Level::Warn,
            format_args!("cache \"{directory}\": \"freewheel cache\" cannot reach it ({why})"),
        );
    });
    told.ok()
}

/// Takes orders for as long as the cache is in use and not given up.
pub(super) async fn take_orders(
    listener: UnixListener,
    local: Local,
    kept: Weak<Cache>,
    store: Store,
) {
    let places = Arc::new(Semaphore::new(ORDERS_MAX));
    let ordered = Ordered {
        local,
        kept,
        store,
        converting: Arc::new(Semaphore::new(1)),
    };
    loop {
        let place = timeout(TICK, Arc::clone(&places).acquire_owned()).await;
        let accepted = match place {
            Ok(Ok(place)) => Some((timeout(TICK, listener.accept()).await, place)),
            _ => None,
        };
        if ordered.cache().is_none() {
            return;
        }
        match accepted {
            Some((Ok(Ok((stream, _))), place)) => {
                let ordered = ordered.clone();
                tokio::task::spawn_local(async move { ordered.serve(stream, place).await });
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

/// What orders are about.
#[derive(Clone)]
struct Ordered {
    local: Local,
    kept: Weak<Cache>,
    store: Store,
    /// One place.
    converting: Arc<Semaphore>,
}

impl Ordered {
    /// The cache, as long as it is in use here.
    fn cache(&self) -> Option<Arc<Cache>> {
        self.kept.upgrade().filter(|cache| !cache.is_given_up())
    }

    /// Carries out the order of one connection.
    async fn serve(&self, mut stream: UnixStream, place: OwnedSemaphorePermit) {
        let line = timeout(PATIENCE, read_line(&mut stream)).await;
        let Some(line) = line.ok().flatten() else {
            return;
        };
        let order = Order::parse(&line);
        // A conversion keeps no other order out.
        let _place = (order != Some(Order::Convert)).then_some(place);
        let done = match (order, self.cache()) {
            (None, _) => Ok(Answer::Failed(
                "no order that this version knows".to_owned(),
            )),
            (_, None) => return,
            (Some(order), Some(cache)) => self.obey(cache, &order, &mut stream).await,
        };
        let answer = done.unwrap_or_else(|error| Answer::Failed(error.to_string()));
        // A client that has left needs no answer.
        let _ = timeout(PATIENCE, stream.write_all(answer.line().as_bytes())).await;
    }

    async fn obey(
        &self,
        cache: Arc<Cache>,
        order: &Order,
        stream: &mut UnixStream,
    ) -> Result<Answer, cache::Error> {
        let (local, store) = (&self.local, &self.store);
        let done = match order {
            Order::Purge(rule) => {
                Answer::Purged(purging::carry_out(&cache, store, local, rule).await?)
            }
            Order::Check(key) => match store.check(local, key).await? {
                Checked::Absent => Answer::Absent,
                Checked::Whole => Answer::Whole,
                Checked::Dropped(fault) => Answer::Dropped(fault.to_string()),
            },
            Order::Convert => {
                drop(cache);
                self.convert(stream).await?
            }
            Order::Disk => Answer::Disk(DiskReport::of(&cache.disk)),
        };
        if let Answer::Purged(_) | Answer::Dropped(_) = &done {
            log_done(store, format_args!("{}", shown(order)));
        }
        Ok(done)
    }

    /// Moves small entries to where the store puts them, a few at a time, for as long as the cache is in use here and the
    /// client waits.
    async fn convert(&self, stream: &mut UnixStream) -> Result<Answer, cache::Error> {
        let Ok(_place) = self.converting.try_acquire() else {
            return Ok(Answer::Failed(
                "its entries are being moved already".to_owned(),
            ));
        };
        let mut conversion = Conversion::default();
        let (mut told, mut waits) = (Instant::now(), 0);
        let end = loop {
            // Not held over the pause: a cache that a reload has taken out is closed then.
            let Some(cache) = self.cache() else {
                break Some("the cache is in use no more");
            };
            if has_left(stream) {
                break Some("the command has ended");
            }
            let pause = match conversion.step(&self.store, &self.local).await {
                Ok(true) => {
                    waits = 0;
                    cache.zone.manager.sleep.min(CONVERT_PAUSE_MAX)
                }
                Ok(false) => break None,
                Err(cache::Error::NoRoom(_) | cache::Error::Disk(disk::Error::Overflow(_)))
                    if waits < CONVERT_WAITS_MAX =>
                {
                    waits += 1;
                    TICK
                }
                Err(error) => return Err(error),
            };
            drop(cache);
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let line = format!("{PROGRESS}{}\n", conversion.moved);
                let _ = timeout(PATIENCE, stream.write_all(line.as_bytes())).await;
            }
            sleep(pause).await;
        };
        let (moved, unread) = (conversion.moved, conversion.unread);
        let end = end.or((unread > 0).then_some("some could not be read"));
        log_done(
            &self.store,
            format_args!("moved {moved} small entries{}", Until(end)),
        );
        Ok(match end {
            None => Answer::Converted(moved, self.store.settings().kind),
            Some(why) => Answer::Failed(format!("{why}; {moved} entries were moved")),
        })
    }
}

/// Why something was not done to its end, behind what was done.
struct Until(Option<&'static str>);

impl std::fmt::Display for Until {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |why| write!(f, ", not all: {why}"))
    }
}

/// Whether the client has closed its end.
fn has_left(stream: &UnixStream) -> bool {
    let read = stream.try_read(&mut [0]);
    !matches!(read, Ok(1..)) && !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn log_done(store: &Store, what: std::fmt::Arguments<'_>) {
    let directory = store.settings().directory.escape_ascii();
    error_log(
        Level::Notice,
        format_args!("cache \"{directory}\": \"freewheel cache\" {what}"),
    );
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
