//! Conditional requests: whether the client's copy is still valid (304) or a precondition fails (412). By nginx's
//! rules, not RFC 9110's precedence: given both If-Modified-Since and If-None-Match, *both* must say that nothing
//! changed.

use crate::date::{self, Seconds};
use crate::etag::{self, ETag};
use crate::field::HeaderId;
use crate::head::RequestHead;

/// `if_modified_since`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfModifiedSince {
    /// The header is ignored: the response always counts as modified.
    Off,
    /// The dates must be equal.
    #[default]
    Exact,
    /// The response must not be newer than the date.
    Before,
    /// As `Before`, but ignored where `If-None-Match` is given (RFC 9110, 13.1.3).
    Yields,
}

/// The outcome of the conditions of a request for a 200 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionalVerdict {
    /// Send it.
    Send,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the conditions for a response of status 200 with this date and tag.
pub fn judge(
    head: &RequestHead,
    last_modified: Option<Seconds>,
    tag: Option<&ETag>,
    rule: IfModifiedSince,
) -> ConditionalVerdict {
    if let Some(since) = head.get(HeaderId::IfUnmodifiedSince)
        && !is_unmodified(since, last_modified)
    {
        return ConditionalVerdict::Failed;
    }
    if let Some(list) = head.get(HeaderId::IfMatch)
        && !etag::list_matches(list, tag, false)
    {
        return ConditionalVerdict::Failed;
    }
    let list = head.get(HeaderId::IfNoneMatch);
    let yields = rule == IfModifiedSince::Yields && list.is_some();
    let since = head.get(HeaderId::IfModifiedSince).filter(|_| !yields);
    if since.is_none() && list.is_none() {
        return ConditionalVerdict::Send;
    }
    if since.is_some_and(|since| is_modified(since, last_modified, rule)) {
        return ConditionalVerdict::Send;
    }
    if list.is_some_and(|list| !etag::list_matches(list, tag, true)) {
        return ConditionalVerdict::Send;
    }
    ConditionalVerdict::NotModified
}

fn is_unmodified(since: &[u8], last_modified: Option<Seconds>) -> bool {
    // nginx reads an invalid date as -1, which is before every file.
    last_modified.is_some_and(|time| date::parse(since).unwrap_or(-1) >= time)
}

fn is_modified(since: &[u8], last_modified: Option<Seconds>, rule: IfModifiedSince) -> bool {
    let (Some(time), false) = (last_modified, rule == IfModifiedSince::Off) else {
        return true;
    };
    let since = date::parse(since).unwrap_or(-1);
    since != time && (rule == IfModifiedSince::Exact || since < time)
}

/// Whether `If-Range` is fulfilled or absent. A tag must be identical byte by byte; a date must be equal.
pub fn if_range_holds(
    head: &RequestHead,
    last_modified: Option<Seconds>,
    tag: Option<&ETag>,
) -> bool {
    let Some(condition) = head.get(HeaderId::IfRange) else {
        return true;
    };
    if condition.len() >= 2 && condition.ends_with(b"\"") {
        return tag.is_some_and(|tag| tag.with_text(|text| text == condition));
    }
    last_modified.is_some_and(|time| date::parse(condition).unwrap_or(-1) == time)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const TIME: Seconds = 784_111_777;

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        RequestHead::of_fields(fields)
    }

    #[test]
    fn verdicts() {
        let tag = ETag::Text(Bytes::from_static(b"\"a\""));
        let (ims, inm, ius, im) = (
            "If-Modified-Since",
            "If-None-Match",
            "If-Unmodified-Since",
            "If-Match",
        );
        use IfModifiedSince::*;
        for (fields, rule, verdict) in [
            (&[][..], Exact, ConditionalVerdict::Send),
            (&[(ims, SAME)], Exact, ConditionalVerdict::NotModified),
            (&[(ims, NEW)], Exact, ConditionalVerdict::Send),
            (&[(ims, NEW)], Before, ConditionalVerdict::NotModified),
            (&[(ims, OLD)], Before, ConditionalVerdict::Send),
            (&[(ims, SAME)], Off, ConditionalVerdict::Send),
            (&[(inm, "W/\"a\"")], Exact, ConditionalVerdict::NotModified),
            (&[(inm, "\"b\"")], Exact, ConditionalVerdict::Send),
            (
                &[(ims, SAME), (inm, "\"b\"")],
                Exact,
                ConditionalVerdict::Send,
            ),
            (
                &[(ims, OLD), (inm, "\"a\"")],
                Exact,
                ConditionalVerdict::Send,
            ),
            (
                &[(ims, SAME), (inm, "\"a\"")],
                Exact,
                ConditionalVerdict::NotModified,
            ),
            (&[(ius, OLD)], Exact, ConditionalVerdict::Failed),
            (&[(ius, NEW)], Exact, ConditionalVerdict::Send),
            (&[(ius, "nonsense")], Exact, ConditionalVerdict::Failed),
            (&[(im, "W/\"a\"")], Exact, ConditionalVerdict::Failed),
            (
                &[(im, "\"a\""), (inm, "\"a\"")],
                Exact,
                ConditionalVerdict::NotModified,
            ),
        ] {
            assert_eq!(
                judge(&head(fields), Some(TIME), Some(&tag), rule),
                verdict,
                "{fields:?} {rule:?}"
            );
        }
        assert_eq!(
            judge(&head(&[(ius, NEW)]), None, None, Exact),
            ConditionalVerdict::Failed
        );
        assert_eq!(
            judge(&head(&[(ims, SAME)]), None, None, Exact),
            ConditionalVerdict::Send
        );
    }

    #[test]
    fn if_range() {
        let tag = ETag::Text(Bytes::from_static(b"\"a\""));
        let weak = ETag::Text(Bytes::from_static(b"W/\"a\""));
        assert!(if_range_holds(&head(&[]), None, None));
        assert!(if_range_holds(
            &head(&[("If-Range", "\"a\"")]),
            None,
            Some(&tag)
        ));
        assert!(!if_range_holds(
            &head(&[("If-Range", "\"a\"")]),
            Some(TIME),
            Some(&weak)
        ));
        assert!(!if_range_holds(
            &head(&[("If-Range", "\"a\"")]),
            Some(TIME),
            None
        ));
        assert!(if_range_holds(
            &head(&[("If-Range", SAME)]),
            Some(TIME),
            None
        ));
        assert!(!if_range_holds(
            &head(&[("If-Range", NEW)]),
            Some(TIME),
            None
        ));
        assert!(!if_range_holds(
            &head(&[("If-Range", SAME)]),
            None,
            Some(&tag)
        ));
    }
}
