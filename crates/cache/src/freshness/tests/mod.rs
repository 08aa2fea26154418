//! Tables: the header lines of a response, and the verdict.

mod directives;
mod fields;
mod usage;

use super::*;
use message::date::format;
use proptest::prelude::*;

const NOW: Seconds = 1_700_000_000;

/// Lines as in a message; `{+60}` is the date 60 seconds from now.
struct Head(Vec<(Vec<u8>, Vec<u8>)>);

fn head(text: &str) -> Head {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Head(lines.map(line).collect())
}

fn line(text: &str) -> (Vec<u8>, Vec<u8>) {
    let (name, value) = text.split_once(':').unwrap();
    let mut value = value.trim().to_owned();
    while let Some((before, rest)) = value.split_once('{') {
        let (offset, after) = rest.split_once('}').unwrap();
        let date = format(NOW + offset.parse::<i64>().unwrap());
        value = format!("{before}{}{after}", str::from_utf8(&date).unwrap());
    }
    (name.as_bytes().to_vec(), value.into_bytes())
}

impl Head {
    fn lines(&self) -> impl Iterator<Item = FieldLine<'_>> + Clone {
        self.0
            .iter()
            .map(|(name, value)| (&name[..], &value[..], HeaderId::find(name)))
    }
}

fn answer<I>(status: u16, fields: I) -> OriginResponse<I> {
    OriginResponse {
        status,
        fields,
        is_authorized: false,
        is_slice: false,
        asked: NOW,
        now: NOW,
    }
}

type Fresh = Result<i64, PassReason>;

/// Seconds until it is stale, or why it is not stored.
fn fresh_for(text: &str, rules: &Rules) -> Fresh {
    let head = head(text);
    match judge(&answer(200, head.lines()), rules) {
        StoreVerdict::Store(storable) if storable.lifetime.reuse == Reuse::Revalidate => Ok(-1),
        StoreVerdict::Store(storable) => Ok(storable.lifetime.expires - NOW),
        StoreVerdict::Pass(why) => Err(why),
    }
}

fn lifetime_of(text: &str, rules: &Rules) -> Lifetime {
    let head = head(text);
    match judge(&answer(200, head.lines()), rules) {
        StoreVerdict::Store(storable) => storable.lifetime,
        StoreVerdict::Pass(why) => panic!("{text}: {why}"),
    }
}

/// Both sets of rules give the same.
fn check(table: &[(&str, Fresh)]) {
    for (text, expected) in table {
        assert_eq!(fresh_for(text, &Rules::nginx()), *expected, "nginx: {text}");
        assert_eq!(
            fresh_for(text, &Rules::rfc9111()),
            *expected,
            "rfc9111: {text}"
        );
    }
}

/// The sets of rules differ.
fn check_both(table: &[(&str, Fresh, Fresh)]) {
    for (text, nginx, strict) in table {
        assert_eq!(fresh_for(text, &Rules::nginx()), *nginx, "nginx: {text}");
        assert_eq!(
            fresh_for(text, &Rules::rfc9111()),
            *strict,
            "rfc9111: {text}"
        );
    }
}

#[test]
fn undisputed_lifetimes() {
    check(&[
        // RFC 9111, 4.2.1: s-maxage, max-age, Expires less Date.
        ("Cache-Control: max-age=60", Ok(60)),
        ("Cache-Control: max-age=60, s-maxage=30", Ok(30)),
        (
            "Cache-Control: s-maxage=90\nCache-Control: max-age=60",
            Ok(90),
        ),
        ("Expires: {+60}", Ok(60)),
        ("Expires: {+60}\nDate: {+0}", Ok(60)),
        ("Expires: {-60}\nCache-Control: max-age=60", Ok(60)),
        ("Expires: 0\nCache-Control: max-age=60", Ok(60)),
        // 5.2: names have no case; unknown ones are ignored; 5.2 also: a number in quotes is no directive.
        ("Cache-Control: MAX-Age=60", Ok(60)),
        (
            "Cache-Control: foo, max-age=60, bar=\"max-age=1, public\"",
            Ok(60),
        ),
        ("Cache-Control: x=\"\\\"\", max-age=60", Ok(60)),
        ("Cache-Control: max-age=060", Ok(60)),
        // 1.2.2: an overflow saturates. 4.2.1: of two, the smaller.
        (
            "Cache-Control: max-age=99999999999999999999999",
            Ok(1 << 31),
        ),
        ("Cache-Control: max-age=60, max-age=30", Ok(30)),
        (
            "Cache-Control: max-age=30\nCache-Control: max-age=60",
            Ok(30),
        ),
        // 5.2.2.5, 5.2.2.7.
        (
            "Cache-Control: max-age=60, no-store",
            Err(PassReason::NoStore),
        ),
        (
            "Cache-Control: private\nCache-Control: max-age=60",
            Err(PassReason::Private),
        ),
        ("Cache-Control: max-age =60", Err(PassReason::NoLifetime)),
        ("Cache-Control: public", Err(PassReason::NoLifetime)),
        ("", Err(PassReason::NoLifetime)),
        // 3.5 and 4.1.
        (
            "Cache-Control: max-age=60\nVary: Foo, *",
            Err(PassReason::Vary),
        ),
        (
            "Cache-Control: max-age=60\nSet-Cookie: a=b",
            Err(PassReason::SetCookie),
        ),
    ]);
}

#[test]
fn what_is_never_fresh() {
    check_both(&[
        // nginx stores none of these; by RFC 9111, 5.2.2.4 and 4.2.1, they are stored and revalidated each time.
        (
            "Cache-Control: no-cache, max-age=60",
            Err(PassReason::NoCache),
            Ok(-1),
        ),
        ("Cache-Control: No-Cache", Err(PassReason::NoCache), Ok(-1)),
        (
            "Cache-Control: max-age=0\nExpires: {+60}",
            Err(PassReason::Stale),
            Ok(-1),
        ),
        ("Cache-Control: max-age=", Err(PassReason::Invalid), Ok(-1)),
        (
            "Cache-Control: max-age=-1",
            Err(PassReason::Invalid),
            Ok(-1),
        ),
        (
            "Cache-Control: max-age=60s",
            Err(PassReason::Invalid),
            Ok(-1),
        ),
        (
            "Cache-Control: max-age='60'",
            Err(PassReason::Invalid),
            Ok(-1),
        ),
        (
            "Cache-Control: max-age=\"60\"",
            Err(PassReason::Invalid),
            Ok(-1),
        ),
        (
            "Cache-Control: max-age=60, max-age=x",
            Err(PassReason::Invalid),
            Ok(-1),
        ),
        (
            "Cache-Control: max-age= 60",
            Err(PassReason::Invalid),
            Ok(-1),
        ),
        // RFC 5861: a malformed window.
        (
            "Cache-Control: max-age=60, stale-if-error=x",
            Err(PassReason::Invalid),
            Ok(60),
        ),
    ]);
}

#[test]
fn expires_is_read_strictly() {
    check_both(&[
        // 5.3: an invalid Expires, "0" above all, is in the past. Zones other than GMT are invalid (RFC 9110, 5.6.7).
        ("Expires: {-60}", Err(PassReason::Stale), Ok(-60)),
        ("Expires: 0", Err(PassReason::Stale), Ok(-1)),
        ("Expires: -1", Err(PassReason::Stale), Ok(-1)),
        (
            "Expires: Thu, 18 Aug 2050 02:01:18 AEST",
            Err(PassReason::Stale),
            Ok(-1),
        ),
        (
            "Expires: Thu, 18 Aug 50 02:01:18 GMT",
            Err(PassReason::Stale),
            Ok(-1),
        ),
        (
            "Expires: Thu 18 Aug 2050 02:01:18 GMT",
            Err(PassReason::Stale),
            Ok(-1),
        ),
        (
            "Expires: Thu, 18-Aug-2050 02:01:18 GMT",
            Err(PassReason::Stale),
            Ok(-1),
        ),
        (
            "Expires: {+60}\nDate: {+90}",
            Err(PassReason::Stale),
            Ok(-30),
        ),
        // 4.2.1: two lines.
        ("Expires: {+60}\nExpires: {+90}", Ok(60), Ok(-1)),
    ]);
}

#[test]
fn age_counts() {
    check_both(&[
        // RFC 9111, 4.2.3 and 5.1: the first member; a malformed number is ignored; an overflow saturates.
        ("Cache-Control: max-age=60\nAge: 20", Ok(40), Ok(40)),
        ("Cache-Control: max-age=60\nAge: 20, 0", Ok(40), Ok(40)),
        ("Cache-Control: max-age=60\nAge: 0, 20", Ok(60), Ok(60)),
        ("Cache-Control: max-age=60\nAge: 20\nAge: 0", Ok(40), Ok(40)),
        ("Cache-Control: max-age=60\nAge: abc", Ok(60), Ok(60)),
        ("Cache-Control: max-age=60\nAge: -20", Ok(60), Ok(60)),
        ("Cache-Control: max-age=60\nAge: 20.0", Ok(60), Ok(60)),
        (
            "Cache-Control: max-age=60\nAge: 100",
            Err(PassReason::Stale),
            Ok(-40),
        ),
        ("Expires: {+60}\nAge: 20", Ok(40), Ok(40)),
        (
            "Cache-Control: max-age=60\nAge: 99999999999999",
            Err(PassReason::Stale),
            Ok(60 - (1 << 31)),
        ),
        // Apparent age: the origin's clock may be wrong.
        ("Cache-Control: max-age=60\nDate: {-20}", Ok(60), Ok(40)),
        (
            "Cache-Control: max-age=60\nDate: {-20}\nAge: 30",
            Ok(30),
            Ok(30),
        ),
        ("Expires: {+10}\nDate: {-50}", Ok(60), Ok(10)),
        // X-Accel-Expires is meant for this cache.
        ("X-Accel-Expires: 60\nAge: 20", Ok(60), Ok(60)),
    ]);
}

#[test]
fn the_response_delay_counts() {
    let head = head("Cache-Control: max-age=60\nAge: 20");
    let slow = OriginResponse {
        asked: NOW - 5,
        ..answer(200, head.lines())
    };
    let StoreVerdict::Store(storable) = judge(&slow, &Rules::nginx()) else {
        panic!("it is fresh");
    };
    let lifetime = storable.lifetime;
    assert_eq!((lifetime.initial_age, lifetime.expires), (25, NOW + 35));
    assert_eq!(lifetime.age(NOW + 10), 35);
    let mut off = Rules::nginx();
    off.counts_age = false;
    assert_eq!(
        fresh_for("Cache-Control: max-age=60\nAge: 20", &off),
        Ok(60)
    );
}

#[test]
fn x_accel_expires_overrides_all_whatever_the_order() {
    check(&[
        (
            "X-Accel-Expires: 60\nCache-Control: no-store, max-age=5\nExpires: {+5}",
            Ok(60),
        ),
        (
            "Expires: 0\nCache-Control: private\nX-Accel-Expires: 60",
            Ok(60),
        ),
        (
            "X-Accel-Expires: 0\nCache-Control: max-age=5",
            Err(PassReason::Accel),
        ),
        (
            "Cache-Control: max-age=5\nX-Accel-Expires: 0",
            Err(PassReason::Accel),
        ),
        ("X-Accel-Expires: @1700000090", Ok(90)),
        ("X-Accel-Expires: @1699999990", Ok(-10)),
        ("X-Accel-Expires: 60\nX-Accel-Expires: 0", Ok(60)),
        ("X-Accel-Expires: abc\nCache-Control: max-age=5", Ok(5)),
        ("X-Accel-Expires:\nCache-Control: max-age=5", Ok(5)),
        ("X-Accel-Expires: @\nCache-Control: max-age=5", Ok(5)),
        ("X-Accel-Expires: @0\nCache-Control: max-age=5", Ok(5)),
        (
            "X-Accel-Expires: 60\nSet-Cookie: a=b",
            Err(PassReason::SetCookie),
        ),
        ("X-Accel-Expires: 60\nVary: *", Err(PassReason::Vary)),
    ]);
}

#[test]
fn proxy_cache_valid_is_for_responses_without_a_lifetime() {
    let valid = |status, seconds| ValidFor { status, seconds };
    let rules = Rules {
        valid: vec![valid(Some(200), 60), valid(Some(404), 0), valid(None, 5)],
        ..Rules::nginx()
    };
    assert_eq!(fresh_for("", &rules), Ok(60));
    assert_eq!(fresh_for("Age: 20", &rules), Ok(60));
    assert_eq!(fresh_for("Cache-Control: public", &rules), Ok(60));
    assert_eq!(fresh_for("Cache-Control: max-age=7", &rules), Ok(7));
    assert_eq!(
        fresh_for("Cache-Control: no-cache", &rules),
        Err(PassReason::NoCache)
    );
    assert_eq!(fresh_for("Expires: 0", &rules), Err(PassReason::Stale));
    assert_eq!(rules.valid(502), Some(5));
    assert_eq!(rules.valid(404), None);
}

#[test]
fn ignored_lines_count_as_absent() {
    let all = "X-Accel-Expires: 5\nCache-Control: max-age=6\nExpires: {+7}\nSet-Cookie: a\nVary: *";
    let mut rules = Rules::nginx();
    rules.ignored.set_cookie = true;
    assert_eq!(fresh_for(all, &rules), Err(PassReason::Vary));
    rules.ignored.vary = true;
    assert_eq!(fresh_for(all, &rules), Ok(5));
    rules.ignored.accel_expires = true;
    assert_eq!(fresh_for(all, &rules), Ok(6));
    rules.ignored.cache_control = true;
    assert_eq!(fresh_for(all, &rules), Ok(7));
    rules.ignored.expires = true;
    assert_eq!(fresh_for(all, &rules), Err(PassReason::NoLifetime));
}

#[test]
fn statuses() {
    let head = head("Cache-Control: max-age=60");
    let judged = |status, is_slice| {
        let answer = OriginResponse {
            is_slice,
            ..answer(status, head.lines())
        };
        match judge(&answer, &Rules::nginx()) {
            StoreVerdict::Store(_) => None,
            StoreVerdict::Pass(why) => Some(why),
        }
    };
    // RFC 9111, 3.3 and 3: a partial response is not complete; 304 and 1xx are about another response.
    for status in [100, 103, 206, 304] {
        assert_eq!(judged(status, false), Some(PassReason::Status), "{status}");
    }
    for status in [200, 204, 301, 302, 404, 410, 416, 500, 503, 599] {
        assert_eq!(judged(status, false), None, "{status}");
    }
    assert_eq!(judged(206, true), None);
}

#[test]
fn responses_to_authorization_are_shared_only_if_they_allow_it() {
    // RFC 9111, 3.5.
    let table = [
        ("max-age=60", false),
        ("max-age=60, public", true),
        ("s-maxage=60", true),
        ("max-age=60, must-revalidate", true),
        ("max-age=60, proxy-revalidate", false),
    ];
    for (control, is_shared) in table {
        let head = head(&format!("Cache-Control: {control}"));
        let asked = OriginResponse {
            is_authorized: true,
            ..answer(200, head.lines())
        };
        let verdict = judge(&asked, &Rules::nginx());
        assert_eq!(
            matches!(verdict, StoreVerdict::Store(_)),
            is_shared,
            "{control}"
        );
        let as_nginx = Rules {
            shares_authorized: true,
            ..Rules::nginx()
        };
        assert!(matches!(judge(&asked, &as_nginx), StoreVerdict::Store(_)));
    }
}

#[test]
fn a_targeted_field_overrides_the_others() {
    // RFC 9213, 2.1 and 2.2.
    check_both(&[
        (
            "CDN-Cache-Control: max-age=60\nCache-Control: no-store\nExpires: 0",
            Err(PassReason::NoStore),
            Ok(60),
        ),
        (
            "CDN-Cache-Control: max-age=1\nCache-Control: max-age=60",
            Ok(60),
            Ok(1),
        ),
        (
            "CDN-Cache-Control: private\nCache-Control: max-age=60",
            Ok(60),
            Err(PassReason::Private),
        ),
        (
            "CDN-Cache-Control: no-store\nCache-Control: max-age=60",
            Ok(60),
            Err(PassReason::NoStore),
        ),
        (
            "CDN-Cache-Control: foo\nExpires: {+60}",
            Ok(60),
            Err(PassReason::NoLifetime),
        ),
        (
            "CDN-Cache-Control: max-age=\"60\"\nCache-Control: no-store",
            Err(PassReason::NoStore),
            Err(PassReason::NoStore),
        ),
        (
            "CDN-Cache-Control: max-age=5\nX-Accel-Expires: 60",
            Ok(60),
            Ok(60),
        ),
    ]);
}

#[test]
fn heuristics_are_off_unless_wanted() {
    let text = "Date: {+0}\nLast-Modified: {-1000}";
    check(&[(text, Err(PassReason::NoLifetime))]);
    let rules = Rules {
        heuristic: Some(Heuristic {
            percent: 10,
            max: 50,
        }),
        ..Rules::rfc9111()
    };
    // RFC 9111, 4.2.2.
    assert_eq!(
        fresh_for("Date: {+0}\nLast-Modified: {-300}", &rules),
        Ok(30)
    );
    assert_eq!(fresh_for(text, &rules), Ok(50));
    assert_eq!(fresh_for("Date: {+0}", &rules), Err(PassReason::NoLifetime));
    assert_eq!(
        fresh_for("Last-Modified: {+50}", &rules),
        Err(PassReason::NoLifetime)
    );
    for (status, control, is_stored) in [(404, "", true), (500, "", false), (500, "public", true)] {
        let head = head(&format!(
            "Last-Modified: {{-300}}\nCache-Control: {control}"
        ));
        let verdict = judge(&answer(status, head.lines()), &rules);
        assert_eq!(
            matches!(verdict, StoreVerdict::Store(_)),
            is_stored,
            "{status} {control}"
        );
    }
}

proptest! {
    #[test]
    fn any_lines_are_judged_and_never_fresh_for_ever(
        fields in proptest::collection::vec(
            (prop_oneof![
                Just("Cache-Control"), Just("Expires"), Just("Age"), Just("Date"),
                Just("X-Accel-Expires"), Just("Vary"),
                Just("CDN-Cache-Control"), Just("Last-Modified"),
            ], prop_oneof![
                "[ -~]{0,40}", "(s-maxage|max-age|no-cache|private|stale-if-error)=\"?[0-9]{0,30}\"?", "@?[0-9]{1,30}",
            ]), 0..8),
        status in 100u16..600, asked in any::<i64>(), now in -10i64..1 << 40, is_strict in any::<bool>(),
    ) {
        let rules = if is_strict { Rules::rfc9111() } else { Rules::nginx() };
        let lines = fields.iter().map(|(name, value)| {
            (name.as_bytes(), value.as_bytes(), HeaderId::find(name.as_bytes()))
        });
        let answer = OriginResponse { status, fields: lines, is_authorized: false, is_slice: false, asked, now };
        if let StoreVerdict::Store(storable) = judge(&answer, &rules) {
            let lifetime = storable.lifetime;
            let has_accel = fields.iter().any(|(name, _)| *name == "X-Accel-Expires");
            let has_expires = fields.iter().any(|(name, _)| *name == "Expires");
            prop_assert!(has_accel || has_expires || lifetime.expires <= now + (1 << 31));
            let _ = (rules.is_fresh(&lifetime, i64::MAX), lifetime.age(i64::MIN), lifetime.is_within_error(i64::MAX));
        }
    }
}
