//! What storing costs: fills of one size by one loop into a cache that evicts, per second and per second of CPU time.
//!
//! `fills DIRECTORY files|segments BYTES COUNT MAX_MIB [hits]`; with `hits`, each entry is also looked up once.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use bytes::Bytes;
use cache::store::{LookupOutcome, StoreKind, StoreSettings};
use cache::{Description, Key, Levels, Lifetime, Store};
use disk::{Access, Disk, Local};
use message::HeaderId;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Fills that run at once, as many as one loop has permits.
const TASKS: usize = 32;
const NOW: i64 = 1_700_000_000;

struct Wishes {
    directory: String,
    kind: StoreKind,
    bytes: usize,
    count: usize,
    max_bytes: u64,
    has_hits: bool,
}

fn wishes() -> Option<Wishes> {
    let mut words = std::env::args().skip(1);
    Some(Wishes {
        directory: words.next()?,
        kind: match words.next()?.as_str() {
            "segments" => StoreKind::Segments,
            _ => StoreKind::Files,
        },
        bytes: words.next()?.parse().ok()?,
        count: words.next()?.parse().ok()?,
        max_bytes: words.next()?.parse::<u64>().ok()? << 20,
        has_hits: words.next().is_some(),
    })
}

fn main() {
    let Some(wishes) = wishes() else {
        return println!("fills DIRECTORY files|segments BYTES COUNT MAX_MIB [hits]");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default());
    runtime.expect("a runtime").block_on(run(wishes));
}

async fn run(wishes: Wishes) {
    let disk = Disk::new(Disk::prepare());
    let pool = disk.define_pool("fills", 32, 65_536);
    let local = Local::new(&disk);
    let settings = StoreSettings {
        directory: wishes.directory.clone().into_bytes(),
        levels: Levels::parse("1:2").unwrap_or_default(),
        zone_bytes: 128 << 20,
        max_bytes: Some(wishes.max_bytes),
        min_free_bytes: 0,
        inactive: 1 << 40,
        kind: wishes.kind,
        pool: pool.clone(),
    };
    let (store, _) = Store::open(&local, settings).await.expect("it opens");
    let body = Bytes::from(vec![b'x'; wishes.bytes]);
    for round in ["to full", "evicting"] {
        let (begun, used) = (Instant::now(), cpu());
        let next = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (store, local, next, body) =
                    (store.clone(), local.clone(), next.clone(), body.clone());
                let round = round.to_owned();
                tokio::task::spawn_local(async move {
                    while next.get() < wishes.count {
                        let number = next.replace(next.get() + 1);
                        fill(&store, &local, &format!("{round} {number}"), &body).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        tell(round, wishes.count, begun, used);
    }
    if wishes.has_hits {
        let (begun, used) = (Instant::now(), cpu());
        let access = Access::new(&pool);
        let mut hits = 0;
        for number in 0..wishes.count {
            let text = format!("evicting {number}");
            let none = std::iter::empty();
            let key = (Key::of(text.as_bytes()), text.as_bytes());
            let found = store.find(&local, &access, key, none, NOW);
            hits += usize::from(matches!(found.await, Ok(LookupOutcome::Hit(_))));
        }
        tell("hits", hits, begun, used);
    }
    println!("{:?}\n{:?}", store.counters(), store.segment_metrics());
    store.close(&local).await.expect("it closes");
}

async fn fill(store: &Store, local: &Local, text: &str, body: &Bytes) {
    let key = Key::of(text.as_bytes());
    let description = Description {
        key,
        main: key,
        variant: key,
        tag: 0,
        key_text: text.as_bytes(),
        vary: b"",
        status: 200,
        status_line: b"200 OK",
        lifetime: Lifetime {
            date: NOW,
            expires: NOW + 600,
            ..Lifetime::default()
        },
    };
    let lines: [(&[u8], &[u8], HeaderId); 2] = [
        (b"Content-Type", b"text/plain", HeaderId::ContentType),
        (b"Cache-Control", b"max-age=600", HeaderId::CacheControl),
    ];
    let (len, moment) = (body.len() as u64, store.moment());
    let begun = store.begin(local, &description, lines.into_iter(), len, NOW, moment);
    let Ok(mut writing) = begun.await else { return };
    if writing.push(local, body.clone()).await.is_ok() {
        let _ = writing.finish(local).await;
    }
}

/// Seconds of CPU time so far, of all threads.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn tell(what: &str, count: usize, begun: Instant, used: f64) {
    let (wall, used) = (begun.elapsed().as_secs_f64(), cpu() - used);
    println!(
        "{what}: {count}, {:.0}/s, {:.0} per CPU second",
        count as f64 / wall,
        count as f64 / used
    );
}
