//! Tables: how `Cache-Control` is taken apart, and the zones of dates.

use super::*;

#[test]
fn what_forbids_storing_is_obeyed_however_it_is_written() {
    let valid = ValidFor {
        status: None,
        seconds: 600,
    };
    // As in nginx the words count wherever they stand.
    for (control, why) in [
        ("private; max-age=60", PassReason::Private),
        ("max-age=60; private", PassReason::Private),
        ("max-age=60 private", PassReason::Private),
        ("public;no-store", PassReason::NoStore),
        ("no-cache no-store", PassReason::NoStore),
        ("PRIVATE;", PassReason::Private),
        ("private =\"X-A\"", PassReason::Private),
        ("private=1, max-age=60", PassReason::Private),
        ("private=\"\"", PassReason::Private),
        ("private=\"X-A;\"", PassReason::Private),
        ("private=\"X-A", PassReason::Private),
        ("x-private", PassReason::Private),
        ("max-age=60, x=\"a, no-store\"", PassReason::NoStore),
        ("max-age=60, x=\"a, no-store", PassReason::NoStore),
        ("max-age=60, x=\"\\\"private", PassReason::Private),
    ] {
        for rules in [Rules::nginx(), Rules::rfc9111()] {
            let rules = Rules {
                valid: vec![valid],
                ..rules
            };
            let fresh = fresh_for(&format!("Cache-Control: {control}"), &rules);
            assert_eq!(fresh, Err(why), "{control}");
        }
    }
    check_both(&[
        (
            "Cache-Control: no-cache; max-age=60",
            Err(PassReason::NoCache),
            Ok(-1),
        ),
        (
            "Cache-Control: public; max-age=0",
            Err(PassReason::Stale),
            Ok(-1),
        ),
    ]);
}

#[test]
fn semicolons_and_blanks_end_directives() {
    check(&[
        ("Cache-Control: max-age=60; public", Ok(60)),
        ("Cache-Control: public; max-age=60", Ok(60)),
        ("Cache-Control: public max-age=60", Ok(60)),
        ("Cache-Control: ;; max-age=60 ; s-maxage=30;", Ok(30)),
        ("Cache-Control: x=\"a; max-age=5\" max-age=60", Ok(60)),
        // A quote that never ends quotes nothing, nor do those behind it.
        ("Cache-Control: x=\"a, max-age=60", Ok(60)),
        ("Cache-Control: x=\"a\\\", max-age=60, y=\"b\"", Ok(60)),
        ("Cache-Control: max-age  =60", Err(PassReason::NoLifetime)),
    ]);
}

#[test]
fn zones_are_strict_only_by_the_rfc() {
    let at = |offset| 2_145_916_555 - NOW - offset;
    let cases = [
        ("Thu, 31 Dec 2037 23:55:55 UTC", Ok(at(0))),
        ("Thu, 31 Dec 2037 23:55:55 Z", Ok(at(0))),
        ("Thu, 31 Dec 2037 23:55:55", Ok(at(0))),
        ("Thu, 31 Dec 2037 23:55:55 +0000", Ok(at(0))),
        ("Thu, 31 Dec 2037 23:55:55 -0000", Ok(at(0))),
        ("Thu, 31 Dec 2037 23:55:55 +0230", Ok(at(9000))),
        ("Thu, 31 Dec 2037 23:55:55 -0500", Ok(at(-18_000))),
        ("Thursday, 31-Dec-37 23:55:55 UTC", Ok(at(0))),
        ("Thu Dec 31 23:55:55 2037 GMT", Ok(at(0))),
        ("Thu, 31 Dec 2037 23:55:55 CET", Err(PassReason::Stale)),
        ("Thu, 31 Dec 2037 23:55:55 +02", Err(PassReason::Stale)),
        ("Thu, 31 Dec 2037 23:55:55 +2x00", Err(PassReason::Stale)),
    ];
    for (expires, nginx) in cases {
        let text = format!("Expires: {expires}");
        assert_eq!(fresh_for(&text, &Rules::nginx()), nginx, "{text}");
        assert_eq!(fresh_for(&text, &Rules::rfc9111()), Ok(-1), "{text}");
    }
    for expires in ["Thu, 31 Dec 2037 23:55:55 gmt", "Thu Dec 31 23:55:55 2037"] {
        check(&[(&format!("Expires: {expires}"), Ok(at(0)))]);
    }
}
