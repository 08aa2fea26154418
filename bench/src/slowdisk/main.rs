//! `slowdisk`: one file, served by FUSE's own protocol (linux/fuse.h, 7.31), whose reads wait or fail when told to. A loop device over it
//! with direct I/O is a disk that stalls, fails or is gone.
//!
//! Not a file system: one regular file, mounted over a regular file. Invariant: the n-th read after `spikes` waits as long for everyone
//! who names the same seed. Root only; ends when it is unmounted, or when standard input ends.
//!
//!     spikes SEED    from now on one read in a thousand waits, up to a second, as the seed says
//!     hold           every read and write waits
//!     fail N         one read in N fails (EIO)
//!     gone           every read and write fails (ENXIO)
//!     forgetful      from now on the disk has a cache of writes, which a sync empties
//!     cut SEED       the power fails: of the blocks in that cache a part is lost, as the seed says (0: all), and every read and write fails; answered
//!                    with their number
//!     go             nothing waits, and nothing fails
//!     counts         reads, waits (failures behind fail and gone)
//! Each is answered with a line once it holds.

mod protocol;
mod write_cache;

use protocol::{Call, Reply};
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use write_cache::WriteCache;

/// Calls that may wait at once.
const THREADS: usize = 96;
/// One read in so many waits.
const ONE_IN: u64 = 1000;
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A write of 1 MiB with its head.
const MESSAGE: usize = (1 << 20) + 4096;

/// What reads and writes do now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Calm,
    Spikes(u64),
    Held,
    /// One read in so many.
    Fails(u64),
    Gone,
}

struct Disk {
    backing: File,
    device: File,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    mood: Mood,
    reads: u64,
    waits: u64,
    /// None: what is written stays.
    unsynced: Option<WriteCache>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [point, backing] => run(point, backing),
        _ => Err("usage: slowdisk POINT BACKING\n  both regular files; says `ready`; commands on standard input".to_owned()),
    };
    outcome.map_or_else(
        |message| {
            eprintln!("slowdisk: {message}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

#[expect(clippy::disallowed_methods, reason = "a tool without an event loop")]
fn run(point: &str, backing: &str) -> Result<(), String> {
    let open = |path: &str| {
        File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| format!("{path}: {error}"))
    };
    let disk = Arc::new(Disk {
        backing: open(backing)?,
        device: open("/dev/fuse")?,
        state: Mutex::new(State {
            mood: Mood::Calm,
            reads: 0,
            waits: 0,
            unsynced: None,
        }),
        freed: Condvar::new(),
    });
    protocol::mount(&disk.device, point)?;
    for _ in 0..THREADS {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || disk.serve());
    }
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        println!("{}", disk.obey(&line)?);
    }
    Ok(())
}

impl Disk {
    fn obey(&self, command: &str) -> Result<String, String> {
        let mut state = self.state.lock().map_err(|error| error.to_string())?;
        let mut lost = None;
        let mood = match command.split_once(' ').unwrap_or((command, "")) {
            ("spikes", seed) => Mood::Spikes(seed.parse().map_err(|_| format!("{seed}: no seed"))?),
            ("hold", "") => Mood::Held,
            ("fail", of) => Mood::Fails(of.parse().map_err(|_| format!("{of}: no number"))?),
            ("gone", "") => Mood::Gone,
            ("go", "") => Mood::Calm,
            ("forgetful", "") => {
                state.unsynced.get_or_insert_default();
                Mood::Calm
            }
            ("cut", seed) => {
                let seed = seed.parse().map_err(|_| format!("{seed}: no seed"))?;
                if let Some(unsynced) = &mut state.unsynced {
                    let done = unsynced.lose(&self.backing, seed);
                    lost = Some(done.map_err(|error| error.to_string())?);
                }
                Mood::Gone
            }
            ("counts", "") => return Ok(format!("{} {}", state.reads, state.waits)),
            _ => return Err(format!("{command}: not a command")),
        };
        (state.mood, state.reads, state.waits) = (mood, 0, 0);
        self.freed.notify_all();
        Ok(lost.map_or("done".to_owned(), |lost| lost.to_string()))
    }

    /// Answers calls until the file is unmounted.
    fn serve(&self) {
        let mut message = vec![0; MESSAGE];
        let mut data = vec![0; MESSAGE];
        loop {
            let count = match (&self.device).read(&mut message) {
                Ok(count) => count,
                // An interrupted call, or one that was given up before it was read.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {
                    continue;
                }
                Err(_) => return,
            };
            let Some((unique, call)) = protocol::read(&message[..count]) else {
                continue;
            };
            let reply = self.carry_out(call, &mut data);
            // What was given up meanwhile has no one to answer.
            let _ = (&self.device).write(&protocol::write(unique, &reply));
        }
    }

    fn carry_out<'a>(&self, call: Call<'_>, data: &'a mut [u8]) -> Reply<'a> {
        match call {
            Call::Read { offset, size } => {
                if let Err(number) = self.wait(true) {
                    return Reply::Error(number);
                }
                let data = &mut data[..size];
                match self.read(offset, data) {
                    Ok(()) => Reply::Data(data),
                    Err(number) => Reply::Error(number),
                }
            }
            Call::Write { offset, data } => {
                if let Err(number) = self.wait(false) {
                    return Reply::Error(number);
                }
                match self.write(offset, data) {
                    Ok(()) => Reply::Written(u32::try_from(data.len()).unwrap_or(0)),
                    Err(number) => Reply::Error(number),
                }
            }
            Call::Sync => {
                if let Err(number) = self.wait(false) {
                    return Reply::Error(number);
                }
                if let Ok(mut state) = self.state.lock()
                    && state.mood != Mood::Gone
                    && let Some(unsynced) = &mut state.unsynced
                {
                    unsynced.sync();
                }
                Reply::Done
            }
            Call::Attributes => Reply::Attributes(self.backing.metadata().map_or(0, |m| m.len())),
            Call::Init => Reply::Init,
            Call::Open => Reply::Opened,
            Call::Nothing => Reply::Done,
            Call::Other => Reply::Error(libc::ENOSYS),
        }
    }

    /// The number of the error, if there is one.
    fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), i32> {
        let state = self.state.lock().map_err(|_| libc::EIO)?;
        // What is lost when the power fails is never read by what ran then: it holds the lock until it is over.
        let held = match (state.unsynced.is_some(), state.mood) {
            (true, Mood::Gone) => return Err(libc::ENXIO),
            (is_forgetful, _) => is_forgetful.then_some(state),
        };
        let done = self.backing.read_exact_at(data, offset);
        drop(held);
        done.map_err(|_| libc::EIO)
    }

    /// The number of the error, if there is one.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        let mut state = self.state.lock().map_err(|_| libc::EIO)?;
        let State { mood, unsynced, .. } = &mut *state;
        if let Some(unsynced) = unsynced {
            // The power may have failed since this write began to wait; it holds the lock until it is over.
            let kept = match mood {
                Mood::Gone => return Err(libc::ENXIO),
                _ => unsynced.keep(&self.backing, offset, data.len()),
            };
            let done = kept.and_then(|()| self.backing.write_all_at(data, offset));
            return done.map_err(|_| libc::EIO);
        }
        drop(state);
        let done = self.backing.write_all_at(data, offset);
        done.map_err(|_| libc::EIO)
    }

    /// Waits as long as the disk does; the number of its error, if it fails.
    #[expect(clippy::disallowed_methods, reason = "to wait is its purpose")]
    fn wait(&self, is_read: bool) -> Result<(), i32> {
        let Ok(mut state) = self.state.lock() else {
            return Ok(());
        };
        while state.mood == Mood::Held {
            let Ok(freed) = self.freed.wait(state) else {
                return Ok(());
            };
            state = freed;
        }
        if state.mood == Mood::Gone {
            state.waits += 1;
            return Err(libc::ENXIO);
        }
        if !is_read {
            return Ok(());
        }
        let drawn = mixed(state.reads);
        state.reads += 1;
        let seed = match state.mood {
            Mood::Spikes(seed) => seed,
            Mood::Fails(of) if drawn.is_multiple_of(of.max(1)) => {
                state.waits += 1;
                return Err(libc::EIO);
            }
            _ => return Ok(()),
        };
        let drawn = mixed(seed ^ drawn);
        if !drawn.is_multiple_of(ONE_IN) {
            return Ok(());
        }
        state.waits += 1;
        drop(state);
        std::thread::sleep(WAIT_MAX.mul_f64((drawn >> 32) as f64 / f64::from(u32::MAX)));
        Ok(())
    }
}

/// splitmix64
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
