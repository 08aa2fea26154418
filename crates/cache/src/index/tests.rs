//! The index: what it knows, its size, and eviction.

use super::*;
use crate::lifetime::Reuse;
use proptest::prelude::*;
use std::collections::HashMap;

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn stored(number: u64, used: Seconds) -> KnownKey {
    KnownKey {
        state: KeyState::Stored,
        status: 200,
        extent: EntryExtent {
            file: number as u32,
            offset: 0,
            blocks: 3,
        },
        ..KnownKey::seen(key(number), used)
    }
}

fn in_segment(number: u64, used: Seconds) -> KnownKey {
    let mut known = stored(number, used);
    known.extent.offset = number as u32 + 1;
    known
}

/// Bytes of each key, everything counted.
fn bytes_each(index: &Index) -> f64 {
    index.memory() as f64 / index.len() as f64
}

#[test]
fn an_entry_takes_at_most_64_bytes_in_a_segment_and_72_with_a_file() {
    for keys in [57_345, 200_000] {
        for (kind, max) in [in_segment, stored].into_iter().zip(ENTRY_BYTES_MAX) {
            let index = Index::new(keys);
            for number in 0..keys as u64 {
                index.put(&kind(number, 1));
            }
            let bytes = bytes_each(&index);
            println!("{keys} keys: {bytes:.1} bytes each");
            assert!(bytes <= max as f64, "{bytes}");
        }
    }
}

#[test]
fn memory_that_was_taken_ahead_is_no_more_than_what_grows() {
    for (kind, has_file) in [
        (in_segment as fn(u64, Seconds) -> KnownKey, false),
        (stored, true),
    ] {
        let [grown, ahead] = [false, true].map(|is_ahead| {
            let index = Index::new(200_000);
            if is_ahead {
                index.expect(100_000, has_file);
            }
            for number in 0..100_000 {
                assert!(index.put(&kind(number, 100)).evicted.is_none());
            }
            // One that did not come alone.
            index.expect(120_000, has_file);
            (0..120_000).for_each(|number| _ = index.put(&kind(number, 200)));
            for number in 0..120_000 {
                let known = index.peek(&key(number)).expect("a key that was put");
                assert_eq!(known.extent, kind(number, 200).extent);
            }
            bytes_each(&index)
        });
        assert!(
            ahead <= grown * 1.01,
            "{ahead} bytes, {grown} where it grew"
        );
    }
    let small = Index::new(1000);
    small.expect(usize::MAX, false);
    assert!(small.memory() < 200_000, "{} bytes", small.memory());
}

#[test]
fn what_is_found_replaces_no_entry_and_enters_only_where_it_may() {
    let index = Index::new(100);
    let (newer, older) = (in_segment(1, 7), in_segment(1, 3));
    let _ = index.put(&newer);
    assert_eq!(index.put_absent(&older, || panic!("it is known")), None);
    assert_eq!(index.peek(&newer.key).unwrap().used, newer.used);
    assert_eq!(index.put_absent(&in_segment(2, 3), || false), None);
    assert_eq!((index.peek(&key(2)), index.len()), (None, 1));
    assert_eq!(index.put_absent(&in_segment(2, 3), || true), None);
    let _ = index.put(&KnownKey::seen(key(3), 1));
    assert_eq!(index.put_absent(&in_segment(3, 3), || true), None);
    assert_eq!(index.peek(&key(3)).unwrap().state, KeyState::Stored);
    assert_eq!(index.len(), 3);
}

#[test]
fn memory_stays_bounded_where_files_become_segments_and_back() {
    const KEYS: usize = 60_000;
    let index = Index::new(KEYS);
    for round in 0..6u64 {
        let kind = [in_segment, stored][round as usize % 2];
        for number in 0..KEYS as u64 {
            // Some are replaced, the others evicted.
            index.put(&kind(round * KEYS as u64 / 2 + number, round as Seconds));
        }
        let bytes = bytes_each(&index);
        assert!(bytes <= 1.1 * ENTRY_BYTES_MAX[1] as f64, "{bytes}");
    }
}

#[test]
fn zones_are_as_large_as_nginx_counts_them() {
    assert_eq!(Index::of_zone(10 << 20).keys_max(), 81_920);
    assert_eq!(Index::of_zone(0).keys_max(), KEYS_MIN);
    assert!(
        ENTRY_BYTES_MAX
            .iter()
            .all(|max| *max as u64 <= ZONE_BYTES_OF_KEY),
        "a zone's size is enough for us"
    );
}

#[test]
fn a_record_is_returned_as_it_was_put() {
    let index = Index::new(1_000);
    let known = KnownKey {
        key: key(1),
        state: KeyState::Stored,
        status: 404,
        lifetime: Lifetime {
            date: 1_700_000_000,
            expires: 1_700_000_100,
            updating: u32::MAX,
            error: 7,
            initial_age: 0,
            reuse: Reuse::NeverStale,
        },
        extent: EntryExtent {
            file: 4_000_000_000,
            offset: 17,
            blocks: 18,
        },
        varies: Varies::of(5, &key(9)),
        uses: USES_MAX,
        used: 1_700_000_050,
        is_verified: true,
        clean_of: 3_000_000_000,
        purge_filter: filter(&key(1)),
    };
    assert_eq!(index.put(&known), Displaced::default());
    assert_eq!(index.peek(&key(1)), Some(known));
    assert_eq!(index.put(&stored(1, 2)).replaced, Some(known));
    assert_eq!(index.len(), 1);
    assert_eq!(index.peek(&key(2)), None);
    // Under the key of its variant; names that are not kept.
    let own = KnownKey {
        varies: Varies::of(VARY_UNKNOWN, &key(1)),
        purge_filter: filter(&key(9)),
        state: KeyState::Failed,
        ..known
    };
    index.put(&own);
    assert_eq!(index.peek(&key(1)), Some(own));
}

/// The purge filter of an entry with this main key.
fn filter(main: &Key) -> crate::purge::PurgeFilter {
    let [a, b, ..] = main.0;
    let own = u64::from(u16::from_le_bytes([a, b]));
    crate::purge::PurgeFilter(own << crate::purge::KEY_BITS_AT | 0x5678_9ABC_DEF0)
}

#[test]
fn of_date_and_age_the_difference_is_kept() {
    let index = Index::new(1_000);
    let mut known = stored(1, 5);
    known.lifetime = Lifetime {
        date: 1_700_000_000,
        initial_age: 100,
        ..Lifetime::default()
    };
    index.put(&known);
    let kept = index.peek(&key(1)).unwrap().lifetime;
    assert_eq!((kept.date, kept.initial_age), (1_699_999_900, 0));
    let now = 1_700_000_007;
    assert_eq!(kept.age(now), known.lifetime.age(now));
}

#[test]
fn uses_are_counted_from_the_first_on() {
    let index = Index::new(1_000);
    let uses = |now| index.count(key(1), now).0.uses;
    assert_eq!((uses(5), uses(5), uses(6)), (1, 2, 3));
    assert_eq!(index.peek(&key(1)).unwrap().used, 6);
    assert_eq!(index.look_up(&key(2), 6), None);
}

#[test]
fn a_full_index_evicts_the_least_recently_used_key() {
    let index = Index::new(100);
    for number in 0..100 {
        index.put(&stored(number, number as Seconds));
    }
    assert!(index.look_up(&key(0), 1_000).is_some());
    for number in 100..150 {
        let displaced = index.put(&stored(number, 1_000 + number as Seconds));
        assert_eq!(displaced.evicted.unwrap().key, key(number - 99));
    }
    assert_eq!(index.len(), 100);
}

#[test]
fn what_is_used_again_stays_even_where_all_comes_within_a_second() {
    const NOW: Seconds = 7;
    const USED_AGAIN: u64 = 20;
    let index = Index::new(640);
    for number in 0..5_000 {
        index.put(&stored(number, NOW));
        let again = number % USED_AGAIN;
        assert!(
            index.look_up(&key(again), NOW).is_some(),
            "{again} of {number}"
        );
    }
}

#[test]
fn a_full_index_evicts_the_oldest_of_any_kind() {
    let index = Index::new(300);
    let kinds = [in_segment, stored, |number, now| {
        KnownKey::seen(key(number), now)
    }];
    for number in 0..300 {
        index.put(&kinds[number as usize % 3](number, number as Seconds));
    }
    for number in (0..60).step_by(2) {
        assert!(index.look_up(&key(number), 1_000).is_some());
    }
    let rest = (1..60).step_by(2).chain(60..300);
    for (number, oldest) in (300..500).zip(rest) {
        let put = kinds[number as usize % 3](number, 1_000 + number as Seconds);
        assert_eq!(index.put(&put).evicted.unwrap().key, key(oldest));
    }
    assert_eq!(index.len(), 300);
}

#[test]
fn keys_in_segments_that_were_used_again_are_not_inactive() {
    let index = Index::new(10_000);
    for number in 0..6_000 {
        index.put(&in_segment(number, 1 + number as Seconds % 7));
    }
    for number in (0..6_000).filter(|number| number % 3 > 0) {
        assert!(index.look_up(&key(number), 100).is_some());
    }
    let more = || {
        index
            .may_have_inactive(100)
            .then(|| index.evict_inactive(100, 150))
    };
    let all: Vec<_> = std::iter::from_fn(more)
        .flatten()
        .map(|known| known.extent.file % 3)
        .collect();
    assert_eq!(
        (all.len(), all.iter().sum::<u32>(), index.len()),
        (2_000, 0, 4_000)
    );
}

#[test]
fn a_call_looks_at_so_many_slabs_that_were_used_again_and_the_next_goes_on() {
    const KEYS: u64 = 100_000;
    let index = Index::new(2 * KEYS as usize);
    for number in 0..KEYS {
        index.put(&in_segment(number, 1));
    }
    for number in 1..KEYS {
        assert!(index.look_up(&key(number), 100).is_some());
    }
    let (mut calls, mut gone) = (0, Vec::new());
    while index.may_have_inactive(50) {
        calls += 1;
        gone.extend(index.evict_inactive(50, 100));
    }
    let slabs = KEYS as usize / slabs::SLOTS;
    assert!(
        (slabs / LOOKS_MAX..=slabs / LOOKS_MAX + 2).contains(&calls),
        "{calls}"
    );
    assert_eq!((gone.len(), gone[0].key), (1, key(0)));
    assert!(index.evict_inactive(50, 100).is_empty());
}

#[test]
fn eviction_follows_the_order_of_use_and_skips_keys_without_an_entry() {
    let index = Index::new(1_000);
    for number in 0..50 {
        index.put(&stored(number, 50 - number as Seconds));
        let _ = index.count(key(1_000 + number), number as Seconds);
    }
    let order: Vec<_> = std::iter::from_fn(|| index.evict())
        .map(|known| known.used)
        .collect();
    assert_eq!(order, (1..=50).collect::<Vec<_>>());
    assert_eq!(index.len(), 50, "what was only seen has no file");
}

#[test]
fn keys_that_came_in_any_order_are_sorted() {
    let index = Index::new(2_000);
    for number in 0..1_000 {
        index.put(&stored(number, (number * 379 % 1_000) as Seconds));
    }
    index.sort();
    let order: Vec<_> = std::iter::from_fn(|| index.evict())
        .map(|known| known.used)
        .collect();
    assert_eq!(order, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn inactive_entries_go_a_few_at_a_time() {
    let index = Index::new(1_000);
    for number in 0..100 {
        index.put(&stored(number, number as Seconds));
    }
    assert_eq!(index.evict_inactive(60, 40).len(), 40);
    assert_eq!(index.evict_inactive(60, 40).len(), 20);
    assert_eq!(index.evict_inactive(60, 40).len(), 0);
    assert_eq!(index.len(), 40);
}

#[test]
fn changes_reach_only_the_entry_that_they_are_meant_for() {
    let index = Index::new(1_000);
    index.put(&stored(1, 5));
    let lifetime = Lifetime {
        expires: 99,
        ..Lifetime::default()
    };
    assert!(!index.renew(&key(1), 2, lifetime), "another tag");
    assert!(index.renew(&key(1), 1, lifetime));
    assert!(index.set_verified(&key(1), 1));
    let known = index.peek(&key(1)).unwrap();
    assert_eq!((known.lifetime.expires, known.is_verified), (99, true));
    assert!(index.remove_entry(&key(1), 2).is_none());
    assert!(index.remove_entry(&key(1), 1).is_some());
    assert!(!index.renew(&key(1), 1, lifetime));
    assert!(index.is_empty());
}

#[test]
fn names_of_vary_are_kept_once() {
    let index = Index::new(1_000);
    let number = index.vary_number(b"accept-encoding");
    assert_eq!(index.vary_number(b"accept-encoding"), number);
    assert_eq!(&*index.vary_names(number).unwrap(), b"accept-encoding");
    assert_eq!((index.vary_number(b""), index.vary_names(0)), (0, None));
    for other in 0..VARY_MAX {
        let _ = index.vary_number(format!("x-{other}").as_bytes());
    }
    assert_eq!(index.vary_number(b"one more"), VARY_UNKNOWN);
    assert_eq!(index.vary_names(VARY_UNKNOWN), None);
}

#[test]
fn a_walk_gives_every_key_once() {
    let index = Index::new(10_000);
    for number in 0..5_000 {
        index.put(&stored(number, 1));
    }
    for number in (0..5_000).step_by(3) {
        index.remove(&key(number));
    }
    let mut cursor = Cursor::default();
    let mut seen = HashMap::new();
    loop {
        let step = index.scan(&mut cursor, 100);
        assert!(step.len() <= 100);
        if step.is_empty() {
            break;
        }
        step.iter()
            .for_each(|known| *seen.entry(known.key.0).or_insert(0) += 1);
    }
    assert_eq!(seen.len(), index.len());
    assert!(seen.values().all(|times| *times == 1));
}

#[test]
fn threads_share_it() {
    let index = Index::new(500);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let index = &index;
            scope.spawn(move || {
                for step in 0..20_000u64 {
                    let number = (step * 7 + thread) % 1_000;
                    let known = stored(number, step as Seconds);
                    index.put(&known);
                    let _ = index.look_up(&key(number + 1), step as Seconds);
                    if step % 5 == 0 {
                        index.remove(&key(number));
                    }
                    if step % 11 == 0 {
                        let _ = index.evict();
                    }
                }
            });
        }
    });
    let mut cursor = Cursor::default();
    let walk =
        std::iter::from_fn(|| Some(index.scan(&mut cursor, 100)).filter(|step| !step.is_empty()));
    assert_eq!(walk.map(|step| step.len()).sum::<usize>(), index.len());
    assert!(index.len() <= 500);
}

#[test]
fn nothing_counts_as_verified_while_it_is_not_trusted() {
    let index = Index::new(40);
    let known = KnownKey {
        is_verified: true,
        ..stored(1, 1)
    };
    index.put(&known);
    for is_trusted in [false, true] {
        index.trust(is_trusted);
        assert_eq!(index.peek(&known.key).unwrap().is_verified, is_trusted);
        let found = index.look_up(&known.key, 1).unwrap();
        assert_eq!(found.is_verified, is_trusted);
    }
}

#[test]
fn the_head_of_a_file_is_not_that_of_an_entry_in_a_segment() {
    let index = Index::new(40);
    let (file, segment) = (stored(1, 1), in_segment(1, 1));
    let patched = KnownKey {
        extent: EntryExtent {
            file: 7,
            ..file.extent
        },
        ..file
    };
    index.put(&file);
    assert!(index.put_at(&file.extent, &segment).is_some());
    assert!(!index.set_head(file.extent.file, &patched));
    assert_eq!(index.peek(&file.key).unwrap().extent, segment.extent);
    index.put(&file);
    assert!(index.set_head(file.extent.file, &patched));
    assert_eq!(index.peek(&file.key).unwrap().extent, patched.extent);
}

proptest! {
    #[test]
    fn it_agrees_with_a_map_and_a_list(steps in proptest::collection::vec((0u8..5, 0u64..60), 0..300)) {
        let index = Index::new(40);
        let mut model: Vec<(u64, Seconds)> = Vec::new();
        for (now, (step, number)) in steps.into_iter().enumerate() {
            let now = now as Seconds + 1;
            let known = model.iter().position(|(other, _)| *other == number);
            match step {
                0 | 1 => {
                    known.map(|at| model.remove(at));
                    if model.len() == 40 {
                        model.remove(0);
                    }
                    model.push((number, now));
                    index.put(&stored(number, now));
                }
                2 => {
                    prop_assert_eq!(index.look_up(&key(number), now).is_some(), known.is_some());
                    known.map(|at| model.remove(at));
                    model.extend(known.map(|_| (number, now)));
                }
                3 => {
                    prop_assert_eq!(index.remove(&key(number)).is_some(), known.is_some());
                    known.map(|at| model.remove(at));
                }
                _ => {
                    let oldest = if model.is_empty() { None } else { Some(key(model.remove(0).0)) };
                    prop_assert_eq!(index.evict().map(|known| known.key), oldest);
                }
            }
            prop_assert_eq!(index.len(), model.len());
            for (number, used) in &model {
                prop_assert_eq!(index.peek(&key(*number)).map(|known| known.used), Some(*used));
            }
        }
    }
}
