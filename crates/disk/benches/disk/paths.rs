//! The ways to a file that is in memory, is not, or does not exist, beside the plain calls, which may wait.
//!
//! Invariant: a hot case never went to the pool while it was measured. A cold case did, except for a few reads that a
//! fast disk answered while the kernel was asked whether the data is in memory.

use crate::clock::Clock;
use crate::group;
use criterion::Criterion;
use disk::{Access, Local, OPERATIONS, OpenFile, Pool, Symlinks, WINDOW};
use rustix::fs::{Advice, fadvise, sendfile};
use std::cell::Cell;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::LocalRuntime;

/// Bytes of the file that is kept, of one read, of one sending.
const SMALL: usize = 1 << 10;
const READ: usize = 16 << 10;
const SENT: usize = 64 << 10;
/// Of what is read cold, one after the other: a proof of a window has ended (10 ms) before it comes again.
const COLD_WINDOWS: u64 = 256;
/// Times that something is asked for at most before it is in memory.
const WARM_MAX: usize = 1000;
/// So many cold ones are surely not all in memory.
const SURE_FROM: u64 = 8;

/// What is opened, read and sent.
pub struct Files<'a> {
    runtime: &'a LocalRuntime,
    local: Local,
    pool: Pool,
    _directory: tempfile::TempDir,
    path: PathBuf,
    /// Counts names that were never asked for, and windows.
    asked: Cell<u64>,
}

impl<'a> Files<'a> {
    /// Makes them in the working directory, whose file system is the one that is measured.
    pub fn new(runtime: &'a LocalRuntime, local: Local, pool: Pool) -> Self {
        let directory = tempfile::tempdir_in(".").expect("a directory can be made");
        let path = directory.path().canonicalize().expect("it was made");
        let all = [
            ("small", 1),
            ("hot", WINDOW / SMALL as u64),
            ("cold", COLD_WINDOWS * WINDOW / SMALL as u64),
        ];
        for (name, blocks) in all {
            let file = File::create(path.join(name)).expect("it can be made");
            let mut writer = std::io::BufWriter::new(&file);
            for _ in 0..blocks {
                writer.write_all(&[7; SMALL]).expect("there is room");
            }
            writer.flush().expect("there is room");
            drop(writer);
            file.sync_all().expect("it can be written");
        }
        let cold = File::open(path.join("cold")).expect("it was made");
        fadvise(&cold, 0, None, Advice::DontNeed).expect("it can be advised on");
        // What has just changed is not kept.
        std::thread::sleep(Duration::from_millis(30));
        Self {
            runtime,
            local,
            pool,
            _directory: directory,
            path,
            asked: Cell::new(0),
        }
    }

    /// Measures all of them.
    pub fn measure(&self, criterion: &mut Criterion, clock: Clock) {
        self.opens(criterion, clock);
        self.missing(criterion, clock);
        for is_cold in [false, true] {
            self.reads(criterion, clock, is_cold);
            self.sends(criterion, clock, is_cold);
        }
    }

    fn opens(&self, criterion: &mut Criterion, clock: Clock) {
        let (path, access) = (self.path.join("small"), Access::new(&self.pool));
        let each_anew = Access {
            symlinks: Symlinks::Refuse { from: 0 },
            ..access
        };
        let open = |access| {
            let file = self.local.try_open(path.as_os_str().as_bytes(), access);
            file.expect("it is in memory").expect("it is there")
        };
        let mut kept = self.runs(clock, || (), async |()| open(&access).body().is_some());
        // News of mounts or directories put an end to that, until the loop turns.
        let kept = |count| {
            self.warm(async || {
                let before = self.local.counts()[0].cached;
                let file = self.opened(&path).await;
                let body = self.local.read(&file, 0, SMALL, &access).await;
                black_box(body.expect("it can be read"));
                file.body().is_some() && self.local.counts()[0].cached > before
            });
            kept(count)
        };
        let plain = self.runs(
            clock,
            || (),
            async |()| {
                let file = File::open(&path).expect("it is there");
                let mut bytes = [0; SMALL];
                let is_read = file.read_exact_at(&mut bytes, 0).is_ok();
                is_read && file.metadata().is_ok() && black_box(bytes)[0] == 7
            },
        );
        two(criterion, clock, "1 KiB, hot and kept", kept, plain);
        let anew = self.runs(
            clock,
            || (),
            async |()| open(&each_anew).meta().len == SMALL as u64,
        );
        let plain = self.runs(
            clock,
            || (),
            async |()| File::open(&path).and_then(|file| file.metadata()).is_ok(),
        );
        two(criterion, clock, "open, hot", anew, plain);
    }

    fn missing(&self, criterion: &mut Criterion, clock: Clock) {
        let (path, access) = (self.path.join("missing"), Access::new(&self.pool));
        let known = path.as_os_str().as_bytes();
        self.warm(async || {
            let _ = self.local.stat(known, &access).await;
            self.local.try_stat(known, &access).is_ok()
        });
        let ours = self.runs(
            clock,
            || (),
            async |()| {
                self.local
                    .try_stat(known, &access)
                    .is_ok_and(|found| found.is_err())
            },
        );
        let plain = self.runs(clock, || (), async |()| std::fs::metadata(&path).is_err());
        two(criterion, clock, "stat, missing, hot", ours, plain);
        let next = || self.path.join(format!("missing-{}", self.next()));
        let ours = self.runs(clock, next, async |path: PathBuf| {
            let found = self.local.stat(path.as_os_str().as_bytes(), &access).await;
            found.is_err()
        });
        let ours = self.checked("stat", true, ours);
        let plain = self.runs(clock, next, async |path: PathBuf| {
            std::fs::metadata(path).is_err()
        });
        two(criterion, clock, "stat, missing, cold", ours, plain);
    }

    fn reads(&self, criterion: &mut Criterion, clock: Clock, is_cold: bool) {
        let path = self.path.join(heat(is_cold));
        let file = self.runtime.block_on(self.opened(&path));
        let (plain, access) = (
            File::open(&path).expect("it is there"),
            Access::new(&self.pool),
        );
        let read = async |at| {
            let bytes = self.local.read(&file, at, READ, &access).await;
            bytes.is_ok_and(|bytes| bytes.len() == READ)
        };
        if !is_cold {
            self.warm(async || read(0).await && self.local.try_read(&file, 0, READ).is_ok());
        }
        let next = || self.place(is_cold, &plain);
        let ours = self.checked("read", is_cold, self.runs(clock, next, read));
        let plainly = self.runs(clock, next, async |at| {
            let mut bytes = vec![0; READ];
            plain.read_exact_at(&mut bytes, at).is_ok() && black_box(bytes)[0] == 7
        });
        let what = format!("read of 16 KiB, {}", heat(is_cold));
        two(criterion, clock, &what, ours, plainly);
    }

    fn sends(&self, criterion: &mut Criterion, clock: Clock, is_cold: bool) {
        let path = self.path.join(heat(is_cold));
        let file = self.runtime.block_on(self.opened(&path));
        let (plain, access) = (
            File::open(&path).expect("it is there"),
            Access::new(&self.pool),
        );
        let (socket, peer) = self.runtime.block_on(connection());
        let send = async |mut at: u64| {
            let end = at + SENT as u64;
            let sent = self.local.send(&file, &mut at, end, &socket, &access);
            sent.await.is_ok()
        };
        if !is_cold {
            self.warm(async || {
                drain(&peer);
                let before = self.offloaded("send");
                send(0).await && self.offloaded("send") == before
            });
        }
        let next = || {
            drain(&peer);
            self.place(is_cold, &plain)
        };
        let ours = self.checked("send", is_cold, self.runs(clock, next, send));
        let plainly = self.runs(clock, next, async |mut at: u64| {
            let end = at + SENT as u64;
            while at < end {
                let left = (end - at) as usize;
                // Full: what it holds is not measured.
                if sendfile(&socket, &plain, Some(&mut at), left).is_err() {
                    drain(&peer);
                }
            }
            true
        });
        let what = format!("sending of 64 KiB, {}", heat(is_cold));
        two(criterion, clock, &what, ours, plainly);
    }

    /// Measures so many turns as it is told; what comes before each is not measured.
    fn runs<'s, T>(
        &'s self,
        clock: Clock,
        before: impl Fn() -> T + 's,
        turn: impl AsyncFn(T) -> bool + 's,
    ) -> impl FnMut(u64) -> Duration + 's {
        move |count| {
            self.runtime.block_on(async {
                let mut took = Duration::ZERO;
                if size_of::<T>() == 0 {
                    let begun = clock.now();
                    for _ in 0..count {
                        assert!(black_box(turn(before()).await));
                    }
                    return clock.now() - begun;
                }
                for _ in 0..count {
                    let with = before();
                    let begun = clock.now();
                    assert!(black_box(turn(with).await));
                    took += clock.now() - begun;
                }
                took
            })
        }
    }

    /// The same, where it must go to the pool, or must not. (The kernel may keep a page that it was told to drop, so
    /// that a cold one now and then is not.)
    fn checked<'s>(
        &'s self,
        operation: &'s str,
        is_cold: bool,
        mut runs: impl FnMut(u64) -> Duration + 's,
    ) -> impl FnMut(u64) -> Duration + 's {
        move |count| {
            let before = self.offloaded(operation);
            let took = runs(count);
            let went = self.offloaded(operation) - before;
            assert!(
                if is_cold {
                    count < SURE_FROM || 2 * went >= count
                } else {
                    went == 0
                },
                "{went} of {count} went to the pool: {operation}, {}",
                heat(is_cold)
            );
            took
        }
    }

    /// Asks until it is in memory.
    fn warm(&self, ask: impl AsyncFn() -> bool) {
        self.runtime.block_on(async {
            for _ in 0..WARM_MAX {
                if ask().await {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            panic!("it does not come into memory");
        });
    }

    fn offloaded(&self, operation: &str) -> u64 {
        let counts = OPERATIONS.iter().zip(self.local.counts());
        let mut those = counts.filter(|(name, _)| **name == operation);
        those.next().expect("it is one of them").1.offloaded
    }

    async fn opened(&self, path: &Path) -> Rc<OpenFile> {
        let access = Access::new(&self.pool);
        let file = self.local.open(path.as_os_str().as_bytes(), &access).await;
        file.expect("it is there")
    }

    fn next(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.asked.get()
    }

    /// Where to read: the next window, taken out of memory, or the first.
    fn place(&self, is_cold: bool, file: &File) -> u64 {
        if !is_cold {
            return 0;
        }
        let at = self.next() % COLD_WINDOWS * WINDOW;
        let window = std::num::NonZeroU64::new(WINDOW);
        fadvise(file, at, window, Advice::DontNeed).expect("it can be advised on");
        at
    }
}

fn heat(is_cold: bool) -> &'static str {
    if is_cold { "cold" } else { "hot" }
}

fn two(
    criterion: &mut Criterion,
    clock: Clock,
    what: &str,
    mut ours: impl FnMut(u64) -> Duration,
    mut plain: impl FnMut(u64) -> Duration,
) {
    let mut ways: [(&str, &mut dyn FnMut(u64) -> Duration); 2] =
        [("freewheel", &mut ours), ("plain calls", &mut plain)];
    group(criterion, clock, what, &mut ways);
}

/// A connection; what arrives is read by [`drain`].
async fn connection() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("there is a port");
    let address = listener.local_addr().expect("it is bound");
    let socket = TcpStream::connect(address).await.expect("it listens");
    let (peer, _) = listener.accept().await.expect("it was connected");
    (socket, peer.into_std().expect("it is a socket"))
}

/// Reads what is there.
fn drain(mut peer: &std::net::TcpStream) {
    let mut bytes = [0; SENT];
    while peer.read(&mut bytes).is_ok_and(|read| read > 0) {}
}
