//! The cache manager: the thread that opens a worker's caches, walks those without a journal, and sweeps them.
//!
//! One thread serves all caches, with a task for each one, so a disk that hangs delays only its own cache. All work on
//! files is done in the cache's pool. Invariant: one sweep, walk or giving up of a cache at a time.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cache::store::{DirectoryWalk, StoreKind};
use cache::{Error, Store};
use disk::pool::Lane;
use disk::{Access, Disk, Filesystem, Local};
use logs::Level;
use logs::process_log::error_log;
use logs::wall_clock::Moment;
use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::caching::caches::open_cache::{Cache, store_settings};
use crate::caching::caches::{control, disk_watch};

/// Pause before a cache that cannot be opened is tried again; each try in vain doubles it, up to the maximum.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(16);
/// How often a cache is tried that another process has: it may leave at any moment.
const TAKEN_RETRY: Duration = Duration::from_millis(50);
/// Maximum time that fills get to be stored, before a cache is left to another process.
const LAST_FILLS: Duration = Duration::from_millis(500);
/// Interval at which it is checked whether they are.
const LAST_FILLS_TICK: Duration = Duration::from_millis(5);
/// How often a cache is swept.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A command to the thread.
enum Command {
    /// Open a cache and maintain it.
    Keep(Weak<Cache>),
    /// Leave them to another process.
    GiveUp(Vec<Arc<Cache>>),
    /// Compact their journals, then report.
    Close(Vec<Arc<Cache>>, std::sync::mpsc::Sender<()>),
}

/// The sender of the thread's commands.
#[derive(Debug)]
pub(super) struct CacheManager {
    commands: UnboundedSender<Command>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep(_) => "Keep",
            Self::GiveUp(_) => "GiveUp",
            Self::Close(..) => "Close",
        })
    }
}

impl CacheManager {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(disk: &Arc<Disk>) -> io::Result<Self> {
        let (commands, inbox) = unbounded_channel();
        let disk = Arc::clone(disk);
        let runtime = |disk: &Arc<Disk>| {
            let runtime = Builder::new_current_thread()
                .enable_time()
                .enable_io()
                .build_local(Default::default())?;
            runtime.block_on(obey(disk, inbox));
            io::Result::Ok(())
        };
        let run = move || {
            if let Err(error) = runtime(&disk) {
                error_log(
                    Level::Alert,
                    format_args!("the caches' thread cannot run ({error})"),
                );
            }
        };
        thread::Builder::new()
            .name("caches".to_owned())
            .spawn(run)?;
        Ok(Self { commands })
    }

    /// Opens a cache and maintains it for as long as it is referenced.
    pub(super) fn keep(&self, cache: &Arc<Cache>) {
        let _ = self.commands.send(Command::Keep(Arc::downgrade(cache)));
    }

    /// Leaves caches to another process.
    pub(super) fn give_up(&self, caches: Vec<Arc<Cache>>) {
        let _ = self.commands.send(Command::GiveUp(caches));
    }

    /// Compacts journals; waits at most this long.
    pub(super) fn close(&self, caches: Vec<Arc<Cache>>, patience: Duration) {
        let (done, is_done) = std::sync::mpsc::channel();
        if self.commands.send(Command::Close(caches, done)).is_ok() {
            let _ = is_done.recv_timeout(patience);
        }
    }
}

async fn obey(disk: &Arc<Disk>, mut commands: UnboundedReceiver<Command>) {
    let local = Local::new(disk);
    while let Some(command) = commands.recv().await {
        let local = local.clone();
        match command {
            Command::Keep(cache) => {
                tokio::task::spawn_local(keep(local, cache));
            }
            Command::GiveUp(caches) => {
                for cache in caches {
                    tokio::task::spawn_local(give_up(local.clone(), cache));
                }
            }
            Command::Close(caches, done) => {
                tokio::task::spawn_local(close(local, caches, done));
            }
        }
    }
}

/// Leaves a cache to another process. One that is not open yet is not opened any more.
async fn give_up(local: Local, cache: Arc<Cache>) {
    let begun = Instant::now();
    cache.set_given_up();
    let Some(store) = cache.former_store() else {
        return;
    };
    while !cache.fills.is_empty() && begun.elapsed() < LAST_FILLS {
        sleep(LAST_FILLS_TICK).await;
    }
    let _turn = cache.upkeep.lock().await;
    let given = store.give_up(&local).await;
    if let Err(error) = given {
        cache.tell("its journal cannot be ended", &error);
    }
    let directory = cache.zone.directory.escape_ascii();
    error_log(
        Level::Notice,
        format_args!(
            "cache \"{directory}\": {} entries left to another process",
            store.index().len()
        ),
    );
}

async fn close(local: Local, caches: Vec<Arc<Cache>>, done: std::sync::mpsc::Sender<()>) {
    let mut tasks = Vec::new();
    for cache in caches {
        let local = local.clone();
        tasks.push(tokio::task::spawn_local(async move {
            let _turn = cache.upkeep.lock().await;
            // None: it was given up. Where this fails, nothing is lost: the next start reads the log.
            if let Some(store) = cache.store() {
                let _ = store.close(&local).await;
            }
        }));
    }
    for task in tasks {
        let _ = task.await;
    }
    let _ = done.send(());
}

/// The maintenance of a cache, from opening to its end.
async fn keep(local: Local, kept: Weak<Cache>) {
    tokio::task::spawn_local(disk_watch::run(Arc::clone(local.disk()), kept.clone()));
    let Some((store, listener)) = open(&local, &kept).await else {
        return;
    };
    if let Some(listener) = listener {
        let orders = control::take_orders(listener, local.clone(), kept.clone(), store.clone());
        tokio::task::spawn_local(orders);
    }
    if store.is_cold() && walk(&local, &kept, &store).await.is_none() {
        return;
    }
    loop {
        let Some(pause) = sweep(&local, &kept, &store).await else {
            return;
        };
        sleep(pause).await;
    }
}

/// Opens it, with as many tries as that takes: its store, and the socket for orders. None: it is no longer referenced.
async fn open(local: &Local, kept: &Weak<Cache>) -> Option<(Store, Option<UnixListener>)> {
    let (mut has_told, mut retry) = (false, RETRY);
    loop {
        let cache = kept.upgrade()?;
        if cache.is_given_up() {
            return None;
        }
        if !has_told {
            tell_proof(local, &cache).await;
        }
        let settings = store_settings(&cache, local.disk());
        let directory = cache.zone.directory.clone();
        let opened = Store::open(local, settings).await;
        let is_taken = matches!(opened, Err(Error::InUse));
        // Before the first hit: orders can be given once responses come from here.
        let listener = match &opened {
            Ok((store, _)) => control::listen(local, store).await,
            Err(_) => None,
        };
        if cache.is_given_up() {
            return None;
        }
        cache.set_taken(is_taken);
        match opened {
            Ok((store, recovered)) => {
                error_log(
                    Level::Notice,
                    format_args!(
                        "cache \"{}\": {} entries known{}",
                        directory.escape_ascii(),
                        recovered.entries,
                        if recovered.is_complete {
                            ""
                        } else {
                            ", others are looked for in the directory"
                        },
                    ),
                );
                cache.set_store(store.clone());
                return Some((store, listener));
            }
            Err(Error::InUse) if has_told => {}
            Err(Error::InUse) => error_log(
                Level::Warn,
                format_args!(
                    "cache \"{}\" is in use by another process: what is stored{} and fresh is read, nothing is stored until that one leaves",
                    directory.escape_ascii(),
                    match cache.zone.store {
                        StoreKind::Files => "",
                        StoreKind::Segments => " in files of their own",
                    },
                ),
            ),
            Err(error) => cache.tell(cannot_open(&error), &error),
        }
        has_told = true;
        drop(cache);
        if is_taken {
            sleep(TAKEN_RETRY).await;
            continue;
        }
        sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// What is said of a cache that cannot be opened. After a change of `user` its files are another one's.
fn cannot_open(error: &Error) -> &'static str {
    match error {
        Error::Disk(error) if error.errno() == Some(disk::Errno::ACCESS) => {
            "it cannot be opened (do all files in it belong to this server's \"user\"?)"
        }
        _ => "it cannot be opened",
    }
}

/// Logs once how the residency of its files is proven.
async fn tell_proof(local: &Local, cache: &Cache) {
    let (disk, directory) = (Arc::clone(local.disk()), cache.zone.directory.clone());
    let pool = store_settings(cache, &disk).pool;
    let probe = pool.run(Lane::Read, move || disk.probe(&directory)).await;
    let Ok(probe) = probe else { return };
    let is_usual = probe.filesystem.is_some_and(Filesystem::is_native) && !probe.is_forbidden;
    let level = if is_usual { Level::Notice } else { Level::Warn };
    error_log(level, format_args!("cache {probe}"));
}

/// Finds files that the journal does not know, in slices with a pause after each, and sweeps meanwhile. None: the cache
/// is no longer referenced.
async fn walk(local: &Local, kept: &Weak<Cache>, store: &Store) -> Option<()> {
    let pool = store.settings().pool.clone();
    let access = Access {
        noatime: true,
        ..Access::new(&pool)
    };
    let mut walk = DirectoryWalk::new(store);
    let mut begun = Instant::now();
    let mut sweep_at = begun + SWEEP_EVERY;
    loop {
        let cache = kept.upgrade()?;
        let upkeep = cache.upkeep.lock().await;
        if cache.is_given_up() {
            return None;
        }
        let pace = cache.zone.loader;
        let pause = match walk.step(local, &access, Moment::now().second()).await {
            Ok(true) => break,
            Ok(false) if begun.elapsed() < pace.threshold => continue,
            Ok(false) => pace.sleep,
            Err(error) => {
                cache.tell("it cannot be walked", &error);
                RETRY
            }
        };
        drop(upkeep);
        drop(cache);
        if Instant::now() >= sweep_at {
            sweep_at = Instant::now() + sweep(local, kept, store).await?;
        }
        sleep(pause).await;
        begun = Instant::now();
    }
    let cache = kept.upgrade()?;
    let directory = cache.zone.directory.escape_ascii();
    error_log(
        Level::Notice,
        format_args!(
            "cache \"{directory}\": {} entries known, all of the directory was looked at",
            store.index().len()
        ),
    );
    Some(())
}

/// Sweeps once, and returns when to do it again. None: the cache is no longer referenced.
async fn sweep(local: &Local, kept: &Weak<Cache>, store: &Store) -> Option<Duration> {
    let cache = kept.upgrade()?;
    let _turn = cache.upkeep.lock().await;
    if cache.is_given_up() {
        return None;
    }
    let pace = cache.zone.manager;
    let now = Moment::now().second();
    match store.sweep(local, now, pace.files).await {
        Ok(true) => Some(pace.sleep),
        Ok(false) => Some(SWEEP_EVERY),
        Err(error) => {
            cache.tell("it cannot be swept", &error);
            Some(SWEEP_EVERY)
        }
    }
}
