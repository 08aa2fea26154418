//! Random damages on the disk: each is found, nothing wrong is given away, and what was damaged is stored anew.

use crate::Options;
use crate::bench::{Bench, block_on};
use crate::runs::key_text;
use bytes::Bytes;
use cache::inspect::entries_in_segment;
use cache::store::{Checks, LookupOutcome, StoreKind, Uses};
use cache::{Error, Key, SEGMENTS_FOLDER, Store};
use disk::Access;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// Where an entry lies.
struct Place {
    path: PathBuf,
    at: u64,
    len: u64,
}

/// Numbers that look random, and are the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

/// A body that no other entry has in any part of it.
fn body(number: u64, size: u64) -> Bytes {
    let mut random = Random(number * 2 + 0x9E37_79B9);
    let words = (0..size.div_ceil(8)).flat_map(|_| {
        random.below(1);
        random.0.to_le_bytes()
    });
    words.take(size as usize).collect()
}

/// Entries differ in length: from an eighth of `--size` on.
fn len(number: u64, size: u64) -> u64 {
    (size / 8 + number * 7919 % size).max(16)
}

#[derive(Debug, Default)]
struct Outcome {
    found: u64,
    untouched: u64,
    wrong: u64,
    lost: u64,
    anew: u64,
}

/// Fills, damages, looks.
pub fn damages(options: &Options) -> Result<(), String> {
    block_on(async {
        let bench = Bench::new(&options.dir, options.kind, options.max_size)?;
        let store = bench.open().await?;
        let size = options.size;
        for number in 0..options.entries {
            let (text, body) = (key_text(number), body(number, len(number, size)));
            let filled = bench.fill(&store, text.as_bytes(), body);
            filled.await.map_err(|error| error.to_string())?;
        }
        store
            .close(&bench.local)
            .await
            .map_err(|error| error.to_string())?;
        let places = places(&store, options)?;
        drop(store);
        if (places.len() as u64) < options.entries {
            return Err(format!("{} entries are on the disk", places.len()));
        }
        let damaged = damage_some(&places, options)?;
        let begun = Instant::now();
        let store = bench.open().await?;
        let mut outcome = Outcome::default();
        for number in 0..options.entries {
            look(
                &bench,
                &store,
                options,
                number,
                damaged.get(&number),
                &mut outcome,
            )
            .await?;
        }
        let mut kinds: HashMap<&str, u64> = HashMap::new();
        damaged
            .values()
            .for_each(|kind| *kinds.entry(kind).or_default() += 1);
        println!(
            "{} of {} entries damaged ({kinds:?}), looked at in {:?}: {} found, {} of them fetched again and right; \
             {} damaged outside of what is an entry's and right; {} wrong, {} undamaged ones lost; {:?}",
            damaged.len(),
            options.entries,
            begun.elapsed(),
            outcome.found,
            outcome.anew,
            outcome.untouched,
            outcome.wrong,
            outcome.lost,
            store.counters()
        );
        let is_right = outcome.wrong == 0
            && outcome.lost == 0
            && outcome.found == outcome.anew
            && outcome.found + outcome.untouched == damaged.len() as u64;
        is_right
            .then_some(())
            .ok_or("the cache did not stand the damages".to_owned())
    })
}

/// Where each entry lies, by its number.
fn places(store: &Store, options: &Options) -> Result<Vec<Place>, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut by_key = HashMap::new();
    if options.kind == StoreKind::Segments {
        let folder = Path::new(&options.dir).join(SEGMENTS_FOLDER);
        for name in std::fs::read_dir(folder).map_err(told)? {
            let path = name.map_err(told)?.path();
            let file = File::open(&path).map_err(told)?;
            let read = |at, len| read_at(&file, at, len);
            for entry in entries_in_segment(read).map_err(told)?.unwrap_or_default() {
                let (path, at, len) = (path.clone(), entry.at, entry.len);
                by_key.insert(entry.key.0, Place { path, at, len });
            }
        }
    }
    let place = |number| {
        let key = Key::of(key_text(number).as_bytes());
        let path = || PathBuf::from(String::from_utf8_lossy(&store.path(&key)).into_owned());
        let of_file = || {
            let path = path();
            let len = std::fs::metadata(&path).ok()?.len();
            Some(Place { path, at: 0, len })
        };
        by_key.remove(&key.0).or_else(of_file)
    };
    Ok((0..options.entries).filter_map(place).collect())
}

fn read_at(file: &File, at: u64, len: usize) -> std::io::Result<Bytes> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], at + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(bytes.into())
}

/// Damages so many different entries. Returns how, by their numbers.
fn damage_some(places: &[Place], options: &Options) -> Result<HashMap<u64, &'static str>, String> {
    let mut random = Random(0x2026_1126);
    let mut damaged = HashMap::new();
    while (damaged.len() as u64) < options.count.min(options.entries) {
        let number = random.below(options.entries);
        if let Entry::Vacant(place) = damaged.entry(number) {
            let other = &places[random.below(options.entries) as usize];
            let done = damage(&places[number as usize], other, &mut random);
            place.insert(done.map_err(|error| error.to_string())?);
        }
    }
    Ok(damaged)
}

/// A bit, a sector or a page of zeros, the end missing, a page of another entry.
fn damage(at: &Place, other: &Place, random: &mut Random) -> std::io::Result<&'static str> {
    let file = OpenOptions::new().read(true).write(true).open(&at.path)?;
    let offset = random.below(at.len);
    let aligned = |unit: u64| {
        let begin = offset / unit * unit;
        (at.at + begin, unit.min(at.len - begin) as usize)
    };
    let (kind, (place, bytes)) = match random.below(5) {
        0 => {
            let mut byte = read_at(&file, at.at + offset, 1)?.to_vec();
            byte[0] ^= 1 << random.below(8);
            ("bit", (at.at + offset, byte))
        }
        1 => ("sector", zeros(aligned(SECTOR))),
        2 => ("page", zeros(aligned(PAGE))),
        3 => ("end", zeros((at.at + offset, (at.len - offset) as usize))),
        _ => {
            let (place, len) = aligned(PAGE);
            let from = File::open(&other.path)?;
            ("other", (place, read_at(&from, other.at, len)?.to_vec()))
        }
    };
    file.write_all_at(&bytes, place)?;
    Ok(kind)
}

fn zeros((place, len): (u64, usize)) -> (u64, Vec<u8>) {
    (place, vec![0; len])
}

/// Looks at an entry as a request does, and stores it again if it is not found.
async fn look(
    bench: &Bench,
    store: &Store,
    options: &Options,
    number: u64,
    damage: Option<&&str>,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let (text, right) = (key_text(number), body(number, len(number, options.size)));
    let told = |error: Error| format!("{text}: {error}");
    let got = read(bench, store, text.as_bytes()).await.map_err(told)?;
    match (got, damage) {
        (Some(got), None) if got == right => return Ok(()),
        (Some(got), Some(_)) if got == right => {
            outcome.untouched += 1;
            return Ok(());
        }
        (Some(_), _) => outcome.wrong += 1,
        (None, None) => outcome.lost += 1,
        (None, Some(_)) => outcome.found += 1,
    }
    let filled = bench.fill(store, text.as_bytes(), right.clone());
    filled.await.map_err(told)?;
    let again = read(bench, store, text.as_bytes()).await.map_err(told)?;
    outcome.anew += u64::from(again.as_ref() == Some(&right));
    Ok(())
}

/// The body of an entry, verified as before it is sent. None: there is none, or it is damaged.
async fn read(bench: &Bench, store: &Store, text: &[u8]) -> Result<Option<Bytes>, Error> {
    let access = Access {
        noatime: true,
        ..Access::new(&bench.pool)
    };
    let (key, none) = ((Key::of(text), text), std::iter::empty());
    let found = store.find(
        &bench.local,
        &access,
        key,
        none,
        crate::bench::now(),
        Uses::Count,
    );
    let LookupOutcome::Hit(hit) = found.await? else {
        return Ok(None);
    };
    let (mut checks, all) = (Checks::of(&hit), 0..hit.entry.body_len());
    let verified = store.verify(&bench.local, &access, &hit, &mut checks, &all);
    match verified.await {
        Err(Error::Fault(_)) => return Ok(None),
        done => done?,
    }
    let body = hit.entry.body();
    let (at, len) = (hit.base + body.start, (body.end - body.start) as usize);
    Ok(Some(bench.local.read(&hit.file, at, len, &access).await?))
}
