//! The costs of the parts: a job in a pool, beside other ways to run one, and the ways to a file: hot, cold, missing.
//!
//! `cargo bench -p freewheel-disk`; `bench/pools` makes a table of it. Each is measured twice: as elapsed time, and as CPU time
//! of all threads of the process. On a machine with few cores the elapsed time of a hop says more about the scheduler
//! than about us.

#![expect(clippy::disallowed_methods, reason = "a benchmark may wait for a disk")]

mod clock;
mod hops;
mod paths;

use clock::Clock;
use criterion::Criterion;
use disk::{Disk, Local};
use std::time::Duration;
use tokio::runtime::Builder;

/// Threads of every pool here: as many as ours has by default.
const THREADS: usize = disk::pool::DEFAULT_THREADS;

fn main() {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS)
        .build_local(Default::default())
        .expect("a runtime can be made");
    let disk = Disk::new(Disk::prepare());
    println!("{}", disk.abilities());
    let pool = disk.define_pool("bench", THREADS, disk::pool::DEFAULT_MAX_QUEUE);
    let local = runtime.block_on(async { Local::new(&disk) });
    let files = paths::Files::new(&runtime, local, pool.clone());
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    for clock in [Clock::Elapsed, Clock::Cpu] {
        hops::measure(&mut criterion, &runtime, &pool, clock);
        files.measure(&mut criterion, clock);
    }
    criterion.final_summary();
}

/// One group: a thing that is done in several ways.
fn group(
    criterion: &mut Criterion,
    clock: Clock,
    what: &str,
    ways: &mut [(&str, &mut dyn FnMut(u64) -> Duration)],
) {
    let mut group = criterion.benchmark_group(format!("{what}, {}", clock.name()));
    for (way, turns) in ways {
        group.bench_function(*way, |bencher| bencher.iter_custom(&mut **turns));
    }
    group.finish();
}
