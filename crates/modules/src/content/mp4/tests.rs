//! Films that are made here, cut, and read again: every sample must be where the new tables say. Damaged films too.

use std::cell::Cell;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Chunks of a track: how many samples each.
type Chunks = Vec<u32>;

#[derive(Clone, Debug)]
struct Plan {
    chunks: Chunks,
    /// Units that each sample lasts.
    duration: u32,
    is_wide: bool,
    /// Each so many samples is a key frame.
    keys: Option<u32>,
    moov_first: bool,
    wide_sizes: bool,
}

const TIMESCALE: u32 = 1000;

fn boxed(name: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let data = parts.concat();
    let mut out = ((data.len() + 8) as u32).to_be_bytes().to_vec();
    out.extend_from_slice(name.as_bytes());
    out.extend(data);
    out
}

fn wide(name: &str, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 1];
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&((data.len() + 16) as u64).to_be_bytes());
    out.extend_from_slice(data);
    out
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

/// The bytes of a sample: their number says which track's and which it is.
fn sample(track: usize, number: u32) -> Vec<u8> {
    let len = 4 + (number as usize * 7 + track) % 5;
    let mut bytes = (track as u32 * 1_000_000 + number).to_be_bytes().to_vec();
    bytes.resize(len, b'.');
    bytes
}

fn track(plan: &Plan, track: usize, places: &[u64]) -> Vec<u8> {
    let samples: u32 = plan.chunks.iter().sum();
    let all = samples * plan.duration;
    let mut tkhd = vec![0; 84];
    tkhd[20..24].copy_from_slice(&all.to_be_bytes());
    let mut mdhd = vec![0; 24];
    mdhd[12..16].copy_from_slice(&TIMESCALE.to_be_bytes());
    mdhd[16..20].copy_from_slice(&all.to_be_bytes());
    let mut stsc = Vec::new();
    for (at, count) in plan.chunks.iter().enumerate() {
        if at == 0 || plan.chunks[at - 1] != *count {
            stsc.extend([at as u32 + 1, *count, 1]);
        }
    }
    let sizes: Vec<u32> = (0..samples)
        .map(|n| sample(track, n).len() as u32)
        .collect();
    let chunks = match plan.is_wide {
        true => {
            let places = places.iter().flat_map(|place| place.to_be_bytes());
            let head = numbers(&[0, plan.chunks.len() as u32]);
            boxed("co64", &[head, places.collect()])
        }
        false => {
            let places: Vec<u32> = places.iter().map(|place| *place as u32).collect();
            boxed(
                "stco",
                &[numbers(&[0, places.len() as u32]), numbers(&places)],
            )
        }
    };
    let mut tables = vec![
        boxed("stsd", &[vec![0; 16]]),
        boxed(
            "stts",
            &[numbers(&[
                0,
                2,
                1,
                plan.duration,
                samples - 1,
                plan.duration,
            ])],
        ),
        boxed("ctts", &[numbers(&[0, 1, samples, 7])]),
        boxed(
            "stsc",
            &[numbers(&[0, stsc.len() as u32 / 3]), numbers(&stsc)],
        ),
        boxed("stsz", &[numbers(&[0, 0, samples]), numbers(&sizes)]),
        chunks,
    ];
    if let Some(every) = plan.keys {
        let keys: Vec<u32> = (1..=samples).step_by(every as usize).collect();
        tables.push(boxed(
            "stss",
            &[numbers(&[0, keys.len() as u32]), numbers(&keys)],
        ));
    }
    let minf = boxed(
        "minf",
        &[boxed("vmhd", &[vec![0; 12]]), boxed("stbl", &tables)],
    );
    let mdia = boxed(
        "mdia",
        &[boxed("mdhd", &[mdhd]), boxed("hdlr", &[vec![1; 20]]), minf],
    );
    boxed("trak", &[boxed("tkhd", &[tkhd]), mdia])
}

fn film(plans: &[Plan]) -> Vec<u8> {
    let ftyp = boxed("ftyp", &[b"isom0000".to_vec()]);
    let free = boxed("free", &[vec![0; 5]]);
    let longest = plans
        .iter()
        .map(|p| p.chunks.iter().sum::<u32>() * p.duration);
    let mut mvhd = vec![0; 100];
    mvhd[12..16].copy_from_slice(&TIMESCALE.to_be_bytes());
    mvhd[16..20].copy_from_slice(&longest.max().unwrap_or(0).to_be_bytes());
    let moov = |begin: u64| {
        let (mut mdat, mut places) = (Vec::new(), vec![Vec::new(); plans.len()]);
        let rounds = plans
            .iter()
            .map(|plan| plan.chunks.len())
            .max()
            .unwrap_or(0);
        for round in 0..rounds {
            for (at, plan) in plans.iter().enumerate() {
                let Some(count) = plan.chunks.get(round) else {
                    continue;
                };
                places[at].push(begin + mdat.len() as u64);
                let first: u32 = plan.chunks[..round].iter().sum();
                (first..first + count).for_each(|n| mdat.extend(sample(at, n)));
            }
        }
        let tracks = plans
            .iter()
            .enumerate()
            .map(|(at, plan)| track(plan, at, &places[at]));
        let mut parts = vec![boxed("mvhd", &[mvhd.clone()])];
        parts.extend(tracks);
        (boxed("moov", &parts), mdat)
    };
    let is_wide = plans[0].wide_sizes;
    let mdat_head = if is_wide { 16 } else { 8 };
    let begin = ftyp.len() + free.len() + mdat_head;
    let begin = match plans[0].moov_first {
        true => begin + moov(0).0.len(),
        false => begin,
    };
    let (moov, mdat) = moov(begin as u64);
    let mdat = match is_wide {
        true => wide("mdat", &mdat),
        false => boxed("mdat", &[mdat]),
    };
    match plans[0].moov_first {
        true => [ftyp, free, moov, mdat].concat(),
        false => [ftyp, free, mdat, moov].concat(),
    }
}

fn read_of(bytes: &[u8]) -> impl Fn(u64, usize) -> Result<Bytes, disk::Error> {
    move |offset, len| {
        let from = (offset as usize).min(bytes.len());
        let end = (from + len).min(bytes.len());
        Ok(Bytes::copy_from_slice(&bytes[from..end]))
    }
}

fn wish(start_ms: u64, length_ms: u64, from_key_frame: bool) -> CutRequest {
    CutRequest {
        start_ms,
        length_ms,
        from_key_frame,
        buffer: 64,
        buffer_max: 1 << 20,
    }
}

fn cut(bytes: &[u8], wish: &CutRequest) -> Result<Option<Vec<u8>>, Fault> {
    let read = read_of(bytes);
    let file = Mp4File {
        len: bytes.len() as u64,
        read: &read,
    };
    let part = find_and_cut(&file, wish)?;
    Ok(part.map(|part| {
        let data = part.data.start as usize..part.data.end as usize;
        [&part.head[..], &bytes[data]].concat()
    }))
}

/// The samples of each track, by the tables of a film.
fn samples(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let read = read_of(bytes);
    let file = Mp4File {
        len: bytes.len() as u64,
        read: &read,
    };
    // So small a wish that the film is read, and nothing of it changed.
    let whole = wish(0, u64::from(u32::MAX), false);
    let film = boxes::find(&file, &whole).unwrap().unwrap();
    let get = |at: usize| boxes::get_32(&film.moov, at);
    let rows =
        |table: &boxes::Table, row: usize| table.rows.clone().step_by(row).collect::<Vec<_>>();
    let track = |track: &boxes::Track| {
        let chunks = track.chunks.as_ref().unwrap();
        let width = if track.is_wide { 8 } else { 4 };
        let place = |at| match track.is_wide {
            true => boxes::get_64(&film.moov, at) as usize,
            false => get(at) as usize,
        };
        let places: Vec<usize> = rows(chunks, width).into_iter().map(place).collect();
        let sizes = rows(track.stsz.as_ref().unwrap(), 4);
        let mut sizes = sizes.into_iter().map(|at| get(at) as usize);
        let runs = rows(track.stsc.as_ref().unwrap(), 12);
        let mut samples = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let run = runs
                .iter()
                .rfind(|at| get(**at) as usize <= number + 1)
                .unwrap();
            let mut at = *place;
            for size in sizes.by_ref().take(get(run + 4) as usize) {
                samples.push(bytes[at..at + size].to_vec());
                at += size;
            }
        }
        let stts = rows(track.stts.as_ref().unwrap(), 8);
        let timed: u32 = stts.into_iter().map(get).sum();
        assert_eq!(
            timed as usize,
            samples.len(),
            "stts and stsc speak of the same samples"
        );
        let ctts = track.ctts.as_ref().map(|table| rows(table, 8));
        let shown: u32 = ctts.into_iter().flatten().map(get).sum();
        assert_eq!(shown as usize, samples.len(), "and so does ctts");
        samples
    };
    film.tracks.iter().map(track).collect()
}

fn expected(plan: &Plan, track: usize, start_ms: u64, length_ms: u64, keys: bool) -> Vec<Vec<u8>> {
    let all: u32 = plan.chunks.iter().sum();
    let mut first = (start_ms / u64::from(plan.duration)) as u32;
    let mut prefix = 0;
    if let Some(every) = plan.keys.filter(|_| keys) {
        prefix = first % every;
        first -= prefix;
    }
    let length = match length_ms {
        0 => u64::from(all),
        _ => length_ms / u64::from(plan.duration) + u64::from(prefix),
    };
    let end = (u64::from(first) + length).min(u64::from(all)) as u32;
    (first..end).map(|number| sample(track, number)).collect()
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop::collection::vec(1..6_u32, 2..12),
        10..50_u32,
        any::<bool>(),
        prop::option::of(1..8_u32),
    )
        .prop_map(|(chunks, duration, is_wide, keys)| Plan {
            chunks,
            duration,
            is_wide,
            keys,
            moov_first: true,
            wide_sizes: false,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_part_has_its_samples_where_it_says(
        mut plans in prop::collection::vec(plan(), 1..3),
        (moov_first, wide_sizes, keys) in any::<(bool, bool, bool)>(),
        start_ms in 0..400_u64,
        length_ms in prop_oneof![Just(0), 50..400_u64],
    ) {
        (plans[0].moov_first, plans[0].wide_sizes) = (moov_first, wide_sizes);
        let bytes = film(&plans);
        let wish = wish(start_ms, length_ms, keys);
        let lasts = |plan: &Plan| u64::from(plan.chunks.iter().sum::<u32>() * plan.duration);
        match cut(&bytes, &wish) {
            Ok(None) => prop_assert!(start_ms == 0 && length_ms == 0 && moov_first),
            Ok(Some(part)) => {
                let found = samples(&part);
                let left = plans.iter().enumerate().filter(|(_, plan)| lasts(plan) > start_ms);
                let left: Vec<_> = left
                    .map(|(at, plan)| expected(plan, at, start_ms, length_ms, keys))
                    .collect();
                prop_assert_eq!(found, left);
            }
            Err(fault) => prop_assert!(
                plans.iter().all(|plan| lasts(plan) <= start_ms)
                    || plans.iter().any(|plan| length_ms > 0 && length_ms < u64::from(plan.duration)),
                "{:?}", fault
            ),
        }
    }

    /// Whatever a file says, it is an answer, and no more memory than twice its tables.
    #[test]
    fn damaged_films_are_answers(
        plans in prop::collection::vec(plan(), 1..3),
        (moov_first, keys) in any::<(bool, bool)>(),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        huge in prop::option::of((any::<prop::sample::Index>(), prop_oneof![Just(u32::MAX), Just(0), Just(1), Just(0x7fff_ffff)])),
        left in any::<prop::sample::Index>(),
        is_torn in any::<bool>(),
        start_ms in prop_oneof![0..400_u64, any::<u64>()],
        length_ms in prop_oneof![Just(0), 1..400_u64, any::<u64>()],
    ) {
        let mut plans = plans;
        plans[0].moov_first = moov_first;
        let mut bytes = film(&plans);
        for (at, value) in wounds {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((at, value)) = huge {
            let at = at.index(bytes.len() / 4) * 4;
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        if is_torn {
            bytes.truncate(left.index(bytes.len()) + 1);
        }
        let most = Cell::new(0);
        let read = read_of(&bytes);
        let read = |offset, len| {
            most.set(most.get().max(len));
            read(offset, len)
        };
        let file = Mp4File { len: bytes.len() as u64, read: &read };
        if let Ok(Some(part)) = find_and_cut(&file, &wish(start_ms, length_ms, keys)) {
            prop_assert!(part.head.capacity() <= 2 * bytes.len() + 1024);
            prop_assert!(part.data.start < part.data.end && part.data.end <= bytes.len() as u64);
        }
        prop_assert!(most.get() <= bytes.len());
    }
}

fn plain() -> Plan {
    Plan {
        chunks: vec![2, 2, 3],
        duration: 40,
        is_wide: false,
        keys: None,
        moov_first: true,
        wide_sizes: false,
    }
}

fn sentence(bytes: &[u8], wish: &CutRequest) -> String {
    match cut(bytes, wish) {
        Err(Fault::File { before, after, .. }) => format!("{before}PATH{after}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_wrong_is_said_in_nginx_s_words() {
    let bytes = film(&[plain()]);
    let at = |name: &str| {
        let found = bytes.windows(4).position(|four| four == name.as_bytes());
        found.unwrap()
    };
    let without = |name: &str| {
        let mut bytes = bytes.clone();
        bytes[at(name)..at(name) + 4].copy_from_slice(b"free");
        bytes
    };
    let sized = |name: &str, size: u32| {
        let mut bytes = bytes.clone();
        bytes[at(name) - 4..at(name)].copy_from_slice(&size.to_be_bytes());
        bytes
    };
    let part = wish(50, 0, false);
    for (bytes, sentence_) in [
        (without("trak"), "no mp4 trak atoms were found in PATH"),
        (without("mdat"), "no mp4 mdat atom was found in PATH"),
        (without("stts"), "no mp4 stts atoms were found in PATH"),
        (without("stsc"), "no mp4 stsc atoms were found in PATH"),
        (without("stco"), "no mp4 stco atoms were found in PATH"),
        (sized("mdat", 5), "PATH mp4 atom is too small:5"),
        (sized("tkhd", 90), "PATH mp4 atom too large:"),
        (sized("mdat", 1 << 20), "PATH mp4 atom too large:1048576"),
        (bytes[..at("mdat") - 2].to_vec(), "PATH mp4 file truncated"),
        (
            [&bytes[..16], &bytes[..]].concat(),
            "duplicate mp4 ftyp atom in PATH",
        ),
    ] {
        let said = sentence(&bytes, &part);
        let is_said = said.starts_with(sentence_)
            || sentence_.contains("too large:") && said.contains("PATH mp4 ");
        assert!(is_said, "{sentence_}: {said}");
    }
    let late = sentence(&bytes, &wish(281, 0, false));
    assert_eq!(late, "PATH mp4 start time exceeds file duration");
    let small = CutRequest {
        buffer_max: 100,
        ..part
    };
    let said = sentence(&bytes, &small);
    assert!(
        said.contains("mp4 moov atom is too large:")
            && said.ends_with(", you may want to increase mp4_max_buffer_size")
    );
    assert_eq!(
        sentence(
            &film(&[Plan {
                moov_first: false,
                ..plain()
            }])[..40],
            &part
        ),
        "PATH mp4 atom too large:48"
    );
}

#[test]
fn times_are_milliseconds() {
    for (text, expected) in [
        ("1", Some(1000)),
        ("0.5", Some(500)),
        (".25", Some(250)),
        ("1.23456789", Some(1234)),
        ("", None),
        ("1.2.3", None),
        ("-1", None),
        ("1s", None),
        ("9999999999999999999", None),
        ("9223372036854775", Some(9_223_372_036_854_775_000)),
        ("9223372036854776", None),
    ] {
        assert_eq!(milliseconds(text.as_bytes()), expected, "{text}");
    }
}
