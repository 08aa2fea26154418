//! What can be measured.

use crate::Options;
use crate::bench::{Bench, block_on, cpu, now};
use bytes::Bytes;
use cache::store::StoreKind;
use cache::{Index, KeyState, KnownKey};
use cache::{Key, Store};
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub fn key_text(number: u64) -> String {
    format!("http://origin.example/objects/{number}")
}

fn body(number: u64, size: u64) -> Bytes {
    let mut body = vec![0x5A; size as usize];
    body[..8].copy_from_slice(&number.to_le_bytes());
    Bytes::from(body)
}

/// Fills of distinct keys; with `--max-size`, evicting from the moment on when that is reached.
pub fn fills(options: &Options) -> Result<(), String> {
    block_on(async {
        let bench = Rc::new(Bench::new(&options.dir, options.kind, options.max_size)?);
        let store = bench.open().await?;
        let first = now() as u64 * 1_000_000;
        let (next, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let shared = body(0, options.size.max(8));
        let (begun, cpu_begun) = (Instant::now(), cpu());
        let sweeper = tokio::task::spawn_local(sweep_now_and_then(bench.clone(), store.clone()));
        let sampler = options
            .max_size
            .map(|max| Sampler::start(&options.dir, max));
        let mut tasks = Vec::new();
        for _ in 0..options.at_once {
            let (bench, store, next, failed) =
                (bench.clone(), store.clone(), next.clone(), failed.clone());
            let (shared, entries, rate) = (shared.clone(), options.entries, options.rate);
            tasks.push(tokio::task::spawn_local(async move {
                while next.get() < entries {
                    let number = next.replace(next.get() + 1);
                    if let Some(rate) = rate {
                        let due = begun + Duration::from_micros(number * 1_000_000 / rate);
                        tokio::time::sleep_until(due.into()).await;
                    }
                    let text = key_text(first + number);
                    let filled = bench.fill(&store, text.as_bytes(), shared.clone());
                    if let Err(error) = filled.await
                        && failed.replace(failed.get() + 1) == 0
                    {
                        eprintln!("the first that failed: {error}");
                    }
                }
            }));
        }
        for task in tasks {
            task.await.map_err(|error| error.to_string())?;
        }
        sweeper.abort();
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu() - cpu_begun);
        let done = options.entries - failed.get();
        println!(
            "{done} fills of {} bytes in {seconds:.2} s, {cpu:.2} s of CPU: {:.0}/s, {:.0} per CPU second; {} failed; {:?}",
            options.size,
            done as f64 / seconds,
            done as f64 / cpu,
            failed.get(),
            store.counters()
        );
        sampler.map_or(Ok(()), Sampler::end)
    })
}

/// Counts the bytes below a directory ten times a second, as du(1) does.
struct Sampler {
    max: u64,
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<(u64, u64, u64)>,
}

impl Sampler {
    fn start(dir: &str, max: u64) -> Self {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let dir = std::path::PathBuf::from(dir);
        let thread = std::thread::spawn(move || {
            let (mut samples, mut largest, mut over) = (0, 0, 0);
            while stopped.recv_timeout(Duration::from_millis(100)).is_err() {
                let bytes = bytes_below(&dir);
                (samples, largest) = (samples + 1, bytes.max(largest));
                over += u64::from(bytes > max);
            }
            (samples, largest, over)
        });
        Self { max, stop, thread }
    }

    fn end(self) -> Result<(), String> {
        let _ = self.stop.send(());
        let sampled = self.thread.join().map_err(|_| "the sampler panicked")?;
        let (samples, largest, over) = sampled;
        println!(
            "{samples} samples: at most {largest} of {} bytes, {over} over",
            self.max
        );
        match over {
            0 => Ok(()),
            _ => Err("max_size was exceeded".to_owned()),
        }
    }
}

/// Blocks of all that lies below a directory, in bytes. (What goes meanwhile does not count.)
fn bytes_below(dir: &std::path::Path) -> u64 {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    names
        .map(|name| {
            let meta = name.metadata();
            let own = meta.as_ref().map_or(0, |meta| meta.blocks() * 512);
            match meta.is_ok_and(|meta| meta.is_dir()) {
                true => own + bytes_below(&name.path()),
                false => own,
            }
        })
        .sum()
}

/// As a worker does it, at the pace of nginx's `manager_` defaults.
async fn sweep_now_and_then(bench: Rc<Bench>, store: Store) {
    loop {
        let more = store.sweep(&bench.local, now(), 100).await;
        let pause = if more.unwrap_or(false) { 50 } else { 1_000 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Finds of entries that are in memory, each with its body.
pub fn finds(options: &Options) -> Result<(), String> {
    block_on(async {
        let bench = Bench::new(&options.dir, options.kind, None)?;
        let store = bench.open().await?;
        let texts: Vec<_> = (0..options.entries).map(key_text).collect();
        for (number, text) in texts.iter().enumerate() {
            let body = body(number as u64, options.size.max(8));
            bench
                .fill(&store, text.as_bytes(), body)
                .await
                .map_err(|error| error.to_string())?;
        }
        // Until then, a change may not show in a file's time stamp.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for round in 0..options.rounds {
            let (begun, cpu_begun) = (Instant::now(), cpu());
            for text in &texts {
                let found = bench.find(&store, text.as_bytes()).await;
                if found.map_err(|error| error.to_string())?.is_none() {
                    return Err(format!("{text} is gone"));
                }
            }
            let (each, cpu) = (begun.elapsed() / texts.len() as u32, cpu() - cpu_begun);
            if round < 2 || round + 1 == options.rounds {
                println!(
                    "round {round}: {each:?} a find, {:.0} per CPU second",
                    texts.len() as f64 / cpu
                );
            }
        }
        Ok(())
    })
}

/// Fills what is missing, many at once; the first `--tagged` entries get a tag.
async fn fill_up(
    options: &Options,
    bench: &Rc<Bench>,
    store: &Store,
    known: u64,
) -> Result<(), String> {
    let next = Rc::new(Cell::new(known));
    let tasks: Vec<_> = (0..options.at_once)
        .map(|_| {
            let (bench, store, next) = (Rc::clone(bench), store.clone(), Rc::clone(&next));
            let (entries, size, tagged) = (options.entries, options.size.max(8), options.tagged);
            tokio::task::spawn_local(async move {
                while next.get() < entries {
                    let number = next.replace(next.get() + 1);
                    let (text, body) = (key_text(number), body(number, size));
                    let filled = bench.fill_with(&store, text.as_bytes(), body, number < tagged);
                    filled.await.map_err(|error| error.to_string())?;
                }
                Ok::<(), String>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// A start with so many entries: from opening to the first hit. The first run fills the directory.
pub fn start(options: &Options) -> Result<(), String> {
    block_on(async {
        let bench = Rc::new(Bench::new(&options.dir, options.kind, None)?);
        let begun = Instant::now();
        let store = bench.open().await?;
        let opened = begun.elapsed();
        let known = store.index().len() as u64;
        fill_up(options, &bench, &store, known).await?;
        if known > 0 {
            let text = key_text(known / 2);
            let hit = bench
                .find(&store, text.as_bytes())
                .await
                .map_err(|error| error.to_string())?;
            println!(
                "{known} entries known after {opened:?}, first hit ({} bytes) after {:?}, {:.1} bytes of memory each, cold: {}",
                hit.map_or(0, |body| body.len()),
                begun.elapsed(),
                store.index().memory() as f64 / known as f64,
                store.is_cold()
            );
        }
        if known < options.entries {
            let mut walk = cache::store::DirectoryWalk::new(&store);
            let access = disk::Access::new(&bench.pool);
            while !walk
                .step(&bench.local, &access, now())
                .await
                .map_err(|error| error.to_string())?
            {}
        }
        let (begun, cpu_begun) = (Instant::now(), cpu());
        store
            .close(&bench.local)
            .await
            .map_err(|error| error.to_string())?;
        println!(
            "closed in {:?}, {:.3} s of CPU",
            begun.elapsed(),
            cpu() - cpu_begun
        );
        Ok(())
    })
}

/// Threads that look up and put at once.
pub fn index(options: &Options) -> Result<(), String> {
    let index = Index::new(options.entries as usize);
    let keys: Vec<Key> = (0..options.entries)
        .map(|number| Key::of(&number.to_le_bytes()))
        .collect();
    for (number, key) in (1..).zip(&keys) {
        let mut known = KnownKey {
            state: KeyState::Stored,
            ..KnownKey::seen(*key, now())
        };
        known.extent.blocks = 1;
        if options.kind == StoreKind::Segments {
            known.extent.offset = number;
        }
        index.put(&known);
    }
    println!(
        "{} entries, {:.1} bytes each",
        index.len(),
        index.memory() as f64 / index.len() as f64
    );
    for threads in [1, options.threads] {
        let begun = Instant::now();
        let rounds = 2_000_000u64;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (index, keys) = (&index, &keys);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let at = (round * 7919 + thread * 104_729) as usize % keys.len();
                        std::hint::black_box(index.look_up(&keys[at], now_of(round)));
                    }
                });
            }
        });
        let each = begun.elapsed().as_nanos() as f64 / rounds as f64;
        println!("{threads} threads: {each:.0} ns a look-up on each");
    }
    Ok(())
}

/// A second passes every so often.
fn now_of(round: u64) -> i64 {
    1_800_000_000 + (round / 100_000) as i64
}
