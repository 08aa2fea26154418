//! Tables: when a stored response may be used.

use super::*;

#[test]
fn stale_windows() {
    let window = |text: &str, rules: &Rules| {
        let lifetime = lifetime_of(text, rules);
        (lifetime.updating, lifetime.error)
    };
    let (nginx, strict) = (Rules::nginx(), Rules::rfc9111());
    let both = "Cache-Control: max-age=1, stale-while-revalidate=5, stale-if-error=7";
    assert_eq!(
        (window(both, &nginx), window(both, &strict)),
        ((5, 7), (5, 7))
    );
    // nginx gives the first window to errors too; RFC 5861 does not.
    let one = "Cache-Control: max-age=1, stale-while-revalidate=5";
    assert_eq!(
        (window(one, &nginx), window(one, &strict)),
        ((5, 5), (5, 0))
    );
    let accel = "X-Accel-Expires: 9\nCache-Control: no-cache, stale-while-revalidate=5";
    assert_eq!(window(accel, &nginx), (5, 5));
}

#[test]
fn use_of_what_is_stale() {
    let (nginx, strict) = (Rules::nginx(), Rules::rfc9111());
    let lifetime = lifetime_of(
        "Cache-Control: max-age=10, stale-while-revalidate=5, stale-if-error=7",
        &nginx,
    );
    let at = |seconds: i64| NOW + seconds;
    // RFC 9111, 4.2: fresh while the lifetime is longer than the age. nginx: one second more.
    assert!(nginx.is_fresh(&lifetime, at(10)) && !nginx.is_fresh(&lifetime, at(11)));
    assert!(strict.is_fresh(&lifetime, at(9)) && !strict.is_fresh(&lifetime, at(10)));
    assert!(nginx.may_use_while_updating(&lifetime, at(15), false));
    assert!(!nginx.may_use_while_updating(&lifetime, at(16), false));
    assert!(nginx.may_use_while_updating(&lifetime, at(99), true));
    let lost = OriginFailure::Connection;
    assert!(nginx.may_cover(&lifetime, at(17), lost, false));
    assert!(!nginx.may_cover(&lifetime, at(18), lost, false));
    // RFC 5861, 4: 500, 502, 503, 504 as well. nginx: only if the directive names them.
    let answered = OriginFailure::Status(503);
    assert!(!nginx.may_cover(&lifetime, at(17), answered, false));
    assert!(nginx.may_cover(&lifetime, at(17), answered, true));
    assert!(strict.may_cover(&lifetime, at(17), answered, false));
    assert!(!strict.may_cover(&lifetime, at(17), OriginFailure::Status(404), false));
}

#[test]
fn some_responses_are_never_used_stale() {
    let (nginx, strict) = (Rules::nginx(), Rules::rfc9111());
    // RFC 9111, 4.2.4 with 5.2.2.2, 5.2.2.8, 5.2.2.10.
    for control in [
        "max-age=1, must-revalidate",
        "max-age=1, proxy-revalidate",
        "s-maxage=1",
    ] {
        let text = format!("Cache-Control: {control}, stale-if-error=100");
        let lifetime = lifetime_of(&text, &nginx);
        assert_eq!(lifetime.reuse, Reuse::NeverStale);
        assert!(nginx.may_cover(&lifetime, NOW + 50, OriginFailure::Connection, true));
        assert!(
            !strict.may_cover(&lifetime, NOW + 50, OriginFailure::Connection, true),
            "{control}"
        );
        assert!(!strict.may_use_while_updating(&lifetime, NOW + 50, true));
        assert!(strict.is_fresh(&lifetime, NOW));
    }
    let asked = lifetime_of("Cache-Control: no-cache, stale-if-error=100", &strict);
    assert_eq!(asked.reuse, Reuse::Revalidate);
    assert!(!strict.is_fresh(&asked, NOW));
    assert!(!strict.may_cover(&asked, NOW, OriginFailure::Connection, true));
}

fn wishes(control: &str, pragma: &str) -> RequestControl {
    let lines = |text: &'static str| Some(text.as_bytes()).filter(|text| !text.is_empty());
    let leak = |text: &str| -> &'static str { String::from(text).leak() };
    RequestControl::of(
        lines(leak(control)).into_iter(),
        lines(leak(pragma)).into_iter(),
    )
}

#[test]
fn requests_wish() {
    let (nginx, strict) = (Rules::nginx(), Rules::rfc9111());
    let lifetime = lifetime_of("Cache-Control: max-age=100\nAge: 40", &strict);
    let admit = |control: &str, pragma: &str, now: i64| {
        let wishes = wishes(control, pragma);
        let is_fresh = strict.is_fresh(&lifetime, NOW + now);
        assert_eq!(
            nginx.admit(&lifetime, NOW, &wishes, true),
            ReuseDecision::Use
        );
        strict.admit(&lifetime, NOW + now, &wishes, is_fresh)
    };
    // RFC 9111, 5.2.1.1 to 5.2.1.7, and 5.4 for Pragma. 60 seconds are left, 40 are gone.
    let table = [
        ("", "", 0, ReuseDecision::Use),
        ("no-cache", "", 0, ReuseDecision::Ask),
        ("", "no-cache", 0, ReuseDecision::Ask),
        ("max-age=1000", "no-cache", 0, ReuseDecision::Use),
        ("max-age=40", "", 0, ReuseDecision::Use),
        ("max-age=39", "", 0, ReuseDecision::Ask),
        ("max-age=x", "", 0, ReuseDecision::Ask),
        ("min-fresh=60", "", 0, ReuseDecision::Use),
        ("min-fresh=61", "", 0, ReuseDecision::Ask),
        ("", "", 60, ReuseDecision::Ask),
        ("max-stale", "", 1000, ReuseDecision::Use),
        ("max-stale=10", "", 69, ReuseDecision::Use),
        ("max-stale=10", "", 70, ReuseDecision::Ask),
        ("only-if-cached", "", 0, ReuseDecision::Use),
        ("only-if-cached", "", 60, ReuseDecision::Refuse),
    ];
    for (control, pragma, now, expected) in table {
        assert_eq!(
            admit(control, pragma, now),
            expected,
            "{control} {pragma} {now}"
        );
    }
    let only = wishes("only-if-cached, no-store", "");
    assert!(strict.refuses_miss(&only) && !nginx.refuses_miss(&only));
    assert!(strict.forbids_storing(&only) && !nginx.forbids_storing(&only));
}
