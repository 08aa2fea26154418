//! Selecting the variant of a response that a request asks for (RFC 9111, 4.1), by nginx's rules.

use crate::key::Key;
use md5::{Digest, Md5};

/// Request fields whose values are compared member by member, without blanks and empty members (nginx's list).
const LISTS: [&[u8]; 3] = [b"accept-charset", b"accept-encoding", b"accept-language"];

/// The names in all `Vary` lines of a response: in lower case, in order, separated by `,`. None if one of them is `*`:
/// then no later request can be known to match (RFC 9111, 4.1).
#[must_use]
pub(crate) fn vary_names<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    for name in lines.flat_map(members) {
        if name == b"*" {
            return None;
        }
        if !names.is_empty() {
            names.push(b',');
        }
        names.extend(name.iter().map(u8::to_ascii_lowercase));
    }
    Some(names)
}

/// The key of the variant that a request asks for. `names` as written by `vary_names`, `fields` the request's header
/// lines; a name that the request lacks counts as empty.
#[must_use]
pub fn variant<'a, I>(main: Key, names: &[u8], fields: I) -> Key
where
    I: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
{
    let mut md5 = Md5::new();
    md5.update(main.0);
    for name in members(names) {
        md5.update(name);
        md5.update(b":");
        let is_list = LISTS.contains(&name);
        let mut is_next = false;
        let values = fields
            .clone()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name));
        for (_, value) in values {
            if is_list {
                members(value).for_each(|member| put(&mut md5, member, &mut is_next));
            } else {
                put(&mut md5, value, &mut is_next);
            }
        }
        md5.update(b"\r\n");
    }
    Key(md5.finalize().into())
}

fn put(md5: &mut Md5, value: &[u8], is_next: &mut bool) {
    if std::mem::replace(is_next, true) {
        md5.update(b",");
    }
    md5.update(value);
}

/// The members of a list, which commas and blanks separate.
fn members(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b',' | b' ' | b'\t'))
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &str, fields: &[(&str, &str)]) -> Key {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        variant(Key::of(b"k"), names.as_bytes(), fields)
    }

    fn names(lines: &[&str]) -> Option<String> {
        let names = vary_names(lines.iter().map(|line| line.as_bytes()))?;
        Some(String::from_utf8(names).unwrap())
    }

    #[test]
    fn names_of_all_lines_join() {
        assert_eq!(
            names(&["Accept,  Cookie ,", "X-A"]).unwrap(),
            "accept,cookie,x-a"
        );
        assert_eq!(names(&[]).unwrap(), "");
    }

    #[test]
    fn a_star_anywhere_is_never_the_same() {
        for lines in [
            &["*"][..],
            &["Foo, *"],
            &["*, Foo"],
            &["", "*"],
            &[", *"],
            &["*, *"],
        ] {
            assert_eq!(names(lines), None, "{lines:?}");
        }
    }

    #[test]
    fn blanks_and_order_within_a_list_field() {
        let one = of("accept-encoding", &[("Accept-Encoding", "gzip, br")]);
        assert_eq!(
            one,
            of("accept-encoding", &[("accept-encoding", "gzip,,br ")])
        );
        let lines = [("Accept-Encoding", "gzip"), ("Accept-Encoding", "br")];
        assert_eq!(one, of("accept-encoding", &lines));
        assert_ne!(
            one,
            of("accept-encoding", &[("Accept-Encoding", "br, gzip")])
        );
    }

    #[test]
    fn other_fields_are_compared_as_they_are() {
        let one = of("x-a", &[("X-A", "b  c")]);
        assert_ne!(one, of("x-a", &[("X-A", "b c")]));
        assert_eq!(one, of("x-a", &[("X-B", "z"), ("x-a", "b  c")]));
        assert_ne!(one, of("x-a", &[]));
        assert_eq!(of("x-a", &[]), of("x-a", &[("x-b", "1")]));
        assert_ne!(
            of("x-a,x-b", &[("x-a", "1")]),
            of("x-a,x-b", &[("x-b", "1")])
        );
    }
}
