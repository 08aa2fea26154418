//! What the parts cost: a pool hop, a kept file, an open from memory, the proofs of a window.
//!
//! `cargo bench -p disk`. CPU per operation is that of the whole process (all threads), from getrusage(2): on a machine
//! with few cores the elapsed time of a hop says more about the scheduler than about us.

#![allow(missing_docs, reason = "a program")]
#![expect(clippy::disallowed_methods, reason = "a benchmark may wait for a disk")]

use disk::{Access, Disk, Lane, Local, Pool};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

const OUTSTANDING: usize = 32;
const HOPS: usize = 400_000;
const TURNS: u32 = 300_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default());
    runtime.expect("a runtime can be made").block_on(async {
        let disk = Disk::new(Disk::prepare());
        println!("{}", disk.abilities());
        let pool = disk.define_pool("bench", 32, 65536);
        hops("pool hop, woken one by one (no mailbox)", &pool).await;
        let local = Local::new(&disk);
        hops("pool hop", &pool).await;
        files(&local, &pool).await;
    });
}

/// CPU time of all threads so far.
fn cpu() -> Duration {
    let times = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        times.tv_sec.unsigned_abs(),
        u32::try_from(times.tv_nsec).unwrap_or(0),
    )
}

async fn hops(what: &str, pool: &Pool) {
    let (begun, before) = (Instant::now(), cpu());
    let tasks: Vec<_> = (0..OUTSTANDING)
        .map(|_| {
            let pool = pool.clone();
            tokio::task::spawn_local(async move {
                for number in 0..HOPS / OUTSTANDING {
                    black_box(
                        pool.run(Lane::Read, move || black_box(number))
                            .await
                            .expect("there is room"),
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it does not panic");
    }
    report(what, begun, before, HOPS as u32);
}

fn report(what: &str, begun: Instant, before: Duration, times: u32) {
    println!(
        "{what:<48} {:>8.3} µs CPU {:>8.3} µs",
        micros((cpu() - before) / times),
        micros(begun.elapsed() / times)
    );
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

async fn files(local: &Local, pool: &Pool) {
    let dir = tempfile::tempdir_in(".").expect("a directory can be made");
    let dir = dir.path().canonicalize().expect("it exists");
    let (small, large) = (dir.join("small"), dir.join("large"));
    std::fs::write(&small, [7; 1024]).expect("it can be written");
    std::fs::write(&large, vec![7; 1 << 20]).expect("it can be written");
    std::thread::sleep(Duration::from_millis(30));
    let access = Access::new(pool);
    let path = small.as_os_str().as_bytes();
    while local.counts()[0].cached == 0 {
        let file = local.open(path, &access).await.expect("it is there");
        local
            .read(&file, 0, 1024, &access)
            .await
            .expect("it can be read");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let fd = std::fs::File::open(&small).expect("it is there");
    time("fstat alone", || rustix::fs::fstat(&fd).is_ok());
    let inotify =
        rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::NONBLOCK).expect("inotify");
    time("empty read of inotify alone", || {
        rustix::io::read(&inotify, &mut [0; 64]).is_err()
    });
    time("try_open of a kept 1 KiB file, with its body", || {
        let file = local
            .try_open(path, &access)
            .expect("in memory")
            .expect("it is there");
        file.body().is_some()
    });
    let inline = Access {
        symlinks: disk::Symlinks::Refuse { from: 0 },
        ..access
    };
    time("try_open from the dentry cache, fstat, close", || {
        local
            .try_open(path, &inline)
            .expect("in memory")
            .expect("it is there")
            .meta()
            .len
            == 1024
    });
    let missing = dir.join("missing");
    let missing = missing.as_os_str().as_bytes();
    let _ = local.open(missing, &access).await;
    time("try_stat of a name that is not there", || {
        local
            .try_stat(missing, &access)
            .expect("in memory")
            .is_err()
    });
}

fn time(what: &str, mut work: impl FnMut() -> bool) {
    let (begun, before) = (Instant::now(), cpu());
    for _ in 0..TURNS {
        assert!(black_box(work()));
    }
    report(what, begun, before, TURNS);
}
