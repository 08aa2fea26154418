//! Reads all files below a directory, while another task of the same loop wants to run every millisecond, and says how late it was.
//!
//! `cargo run --release -p freewheel-disk --example busy_loop -- /usr/share [--inline]`. With `--inline` every call is made on the
//! loop. Drop the kernel's cache before each (`echo 3 > /proc/sys/vm/drop_caches`, as root), or there is no difference.

use disk::{Access, AioMode, Disk, FileKind, Local, OPERATIONS, Pool, READ_MAX};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum number of directories and files that are read.
const DIRECTORIES_MAX: usize = 10_000;
const FILES_MAX: usize = 50_000;
/// How often the other task wants to run.
const TICK: Duration = Duration::from_millis(1);

/// What was read.
#[derive(Default)]
struct Sums {
    files: usize,
    bytes: u64,
    failed: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().ok_or("usage: busy_loop DIR [--inline]")?;
    let mode = match arguments.next().as_deref() {
        Some("--inline") => AioMode::Inline,
        _ => AioMode::Pool,
    };
    let disk = Disk::new(Disk::prepare());
    let pool = disk.define_pool("files", 8, 1000);
    println!("{}", disk.probe(root.as_bytes()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())?;
    runtime.block_on(async {
        let local = Local::new(&disk);
        let latest = Rc::new(Cell::new(Duration::ZERO));
        let ticking = tokio::task::spawn_local(tick(latest.clone()));
        let begun = Instant::now();
        let sums = read_all(&local, &pool, mode, root.into_bytes()).await;
        let elapsed = begun.elapsed();
        ticking.abort();
        println!(
            "{} files, {} bytes, {} that cannot be read, in {elapsed:.2?}",
            sums.files, sums.bytes, sums.failed
        );
        println!(
            "the other task was late by {:.2?} at most",
            latest.get().saturating_sub(TICK)
        );
        for (operation, count) in OPERATIONS.iter().zip(local.counts()) {
            let at_once = count.memory + count.cached;
            if at_once + count.offloaded > 0 {
                println!(
                    "{operation:?}: {at_once} at once, {} by the pool",
                    count.offloaded
                );
            }
        }
        Ok(())
    })
}

/// Wants to run every [`TICK`], and notes the longest time between two runs.
async fn tick(latest: Rc<Cell<Duration>>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        let now = Instant::now();
        latest.set(latest.get().max(now - last));
        last = now;
    }
}

async fn read_all(local: &Local, pool: &Pool, mode: AioMode, root: Vec<u8>) -> Sums {
    let access = Access {
        mode,
        ..Access::new(pool)
    };
    let mut sums = Sums::default();
    let mut waiting = vec![root];
    let mut directories = 0;
    while let Some(directory) = waiting.pop() {
        // What is in memory never waits, so nothing else would run meanwhile.
        tokio::task::yield_now().await;
        directories += 1;
        let Ok(listing) = local.readdir(&directory, &access).await else {
            sums.failed += 1;
            continue;
        };
        for entry in listing.entries {
            let path = [&directory[..], b"/", &entry.name].concat();
            match entry.meta.kind {
                FileKind::Directory if directories + waiting.len() < DIRECTORIES_MAX => {
                    waiting.push(path);
                }
                FileKind::File if sums.files < FILES_MAX => {
                    sums.files += 1;
                    match read_file(local, &path, &access).await {
                        Ok(bytes) => sums.bytes += bytes,
                        Err(_) => sums.failed += 1,
                    }
                }
                _ => {}
            }
        }
    }
    sums
}

async fn read_file(local: &Local, path: &[u8], access: &Access<'_>) -> Result<u64, disk::Error> {
    let file = local.open(path, access).await?;
    let mut offset = 0;
    loop {
        let bytes = local.read(&file, offset, READ_MAX, access).await?;
        if bytes.is_empty() {
            return Ok(offset);
        }
        offset += bytes.len() as u64;
        tokio::task::yield_now().await;
    }
}
