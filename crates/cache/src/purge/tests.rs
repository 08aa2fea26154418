//! Purge rules and filters; their effect on a store is tested there.

use super::*;
use crate::entry::{Description, EntryEncoder};
use crate::key::Key;
use crate::lifetime::Lifetime;
use bytes::Bytes;
use message::HeaderId;
use proptest::prelude::*;

type Lines<'a> = &'a [(&'a str, &'a str)];

fn entry(key_text: &str, lines: Lines<'_>) -> (Entry, PurgeFilter) {
    let main = Key::of(key_text.as_bytes());
    let description = Description {
        key: main,
        main,
        variant: main,
        tag: 1,
        key_text: key_text.as_bytes(),
        vary: b"",
        status: 200,
        status_line: b"200 OK",
        lifetime: Lifetime::default(),
    };
    let lines = || {
        lines
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes(), HeaderId::Other))
    };
    let whole = EntryEncoder::new(&description, lines())
        .unwrap()
        .finish()
        .front;
    let entry = Entry::decode_whole(&whole).unwrap();
    let purge_filter = PurgeFilter::of_key(main, key_text.as_bytes());
    let purge_filter = lines().fold(purge_filter, |purge_filter, (name, value, _)| {
        purge_filter.and_line(name, value)
    });
    (entry, purge_filter)
}

fn tag(text: &'static str) -> PurgeRule {
    PurgeRule::Tag(Bytes::from_static(text.as_bytes()))
}

fn prefix(text: &'static str) -> PurgeRule {
    PurgeRule::Prefix(Bytes::from_static(text.as_bytes()))
}

fn fits(rule: &PurgeRule, purge_filter: PurgeFilter) -> bool {
    NumberedRule::new(1, rule.clone()).may_cover(purge_filter, 0)
}

#[test]
fn tags_are_members_of_two_fields() {
    let lines = [
        ("Surrogate-Key", "news  front,page"),
        ("cache-tag", "Sport, a b ,,x"),
        ("X-Tag", "other"),
    ];
    let (entry, purge_filter) = entry("http://a/", &lines);
    for covering in ["news", "front,page", "sport", "SPORT", "a b", "x"] {
        assert!(tag(covering).covers(&entry), "{covering}");
        assert!(fits(&tag(covering), purge_filter), "{covering}");
    }
    for other in ["new", "front", "page", "a", "b", "other", ""] {
        assert!(!tag(other).covers(&entry), "{other}");
    }
}

#[test]
fn filters_exclude_most_entries() {
    let (mut wrongly, tries) = (0, 2_000);
    for number in 0..tries {
        let text = format!("http://example.com/{}/{number}/x", number % 50);
        let (_, purge_filter) = entry(&text, &[("Cache-Tag", &format!("t{number}, site"))]);
        wrongly += usize::from(fits(&tag("other"), purge_filter));
        wrongly += usize::from(fits(&prefix("http://example.com/other/x"), purge_filter));
        wrongly += usize::from(fits(&PurgeRule::Key(Key::of(b"other")), purge_filter));
    }
    assert!(wrongly * 10 < tries * 3, "{wrongly} of {}", tries * 3);
}

#[test]
fn numbers_count_around() {
    assert!(is_before(1, 2) && !is_before(2, 1) && !is_before(2, 2));
    assert!(is_before(u32::MAX, 0) && is_before(u32::MAX - 5, 7));
}

#[test]
fn rules_are_bounded_and_the_same_one_is_kept_once() {
    let rules = PurgeRules::new(PurgeList::default());
    for number in 0..RULES_MAX {
        rules
            .add(&PurgeRule::Tag(number.to_string().into()), RULES_MAX)
            .unwrap();
    }
    assert_eq!(
        rules.add(&tag("one more"), RULES_MAX),
        Err(TooManyPurges(RULES_MAX))
    );
    assert!(rules.add(&tag("7"), RULES_MAX).is_ok());
    assert_eq!(rules.len(), RULES_MAX);
    let (end, all) = rules.settled().unwrap();
    assert_eq!(all.len(), RULES_MAX);
    rules.forget(end);
    assert_eq!((rules.len(), rules.settled()), (0, None));
    assert!(rules.add(&tag("one more"), RULES_MAX).is_ok());
}

#[test]
fn rules_stay_while_older_fetches_run() {
    let rules = PurgeRules::new(PurgeList::default());
    let _ = rules.add(&tag("a"), RULES_MAX);
    let moment = rules.moment(0);
    let _ = rules.add(&tag("b"), RULES_MAX);
    let (end, settled) = rules.settled().unwrap();
    assert_eq!((end, settled.len()), (moment.number(), 1));
    rules.forget(end);
    assert_eq!(rules.settled(), None);
    drop(moment);
    assert_eq!(rules.settled().unwrap().1.len(), 1);
    let slow = rules.moment(0);
    for number in 0..=RULES_MANY {
        rules
            .add(&PurgeRule::Tag(number.to_string().into()), RULES_MAX)
            .unwrap();
    }
    let late = rules.moment(0);
    assert!(!slow.is_void());
    assert_eq!(rules.settled().unwrap().1.len(), RULES_MANY + 2);
    assert!(slow.is_void() && !late.is_void());
}

#[test]
fn loops_may_record_rules_in_another_order() {
    let mut purges = PurgeList::default();
    for (number, rule) in [(2, tag("b")), (1, tag("a")), (5, tag("c")), (4, tag("c"))] {
        purges.add(number, rule);
    }
    let numbers: Vec<_> = purges.pending().map(|known| known.number).collect();
    assert_eq!(
        (numbers, purges.latest, purges.floor()),
        (vec![1, 2, 5], 5, 0)
    );
    purges.forget(2);
    assert_eq!((purges.pending().count(), purges.floor()), (1, 4));
}

proptest! {
    #[test]
    fn a_rule_that_covers_matches_the_filter(text in "[a-c/]{0,30}", cut in 0usize..30, line in "[a-c ,]{0,12}") {
        let lines = [("Cache-Tag", &line[..]), ("Surrogate-Key", &line[..])];
        let (entry, purge_filter) = entry(&text, &lines);
        let beginning = Bytes::copy_from_slice(&text.as_bytes()[..cut.min(text.len())]);
        let tags = lines.iter().flat_map(|(name, value)| tags_of(name.as_bytes(), value.as_bytes()));
        let tags = tags.map(|tag| PurgeRule::Tag(Bytes::copy_from_slice(tag)));
        for rule in tags.chain([PurgeRule::Prefix(beginning), PurgeRule::Key(entry.main())]) {
            prop_assert!(rule.covers(&entry) && fits(&rule, purge_filter), "{:?}", rule);
        }
    }
}
