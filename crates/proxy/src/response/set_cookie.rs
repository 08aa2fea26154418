//! `Set-Cookie` lines under our name: the rules of `proxy_cookie_domain`, `_path` and `_flags`, applied to each.

use bytes::Bytes;

use httpcore::request::Request;

use crate::settings::cookie_flags::CookieFlags;
use crate::settings::directives::ProxyRewrites;
use crate::settings::proxy_redirect;

/// Maximum of attributes of a cookie that are parsed; a line with more is passed on unchanged.
const ATTRIBUTES_MAX: usize = 256;

/// The change of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagChange {
    Set(&'static str),
    Removed,
}

/// The flags that a line sets or clears.
#[derive(Debug, Default)]
struct FlagChanges {
    secure: Option<FlagChange>,
    http_only: Option<FlagChange>,
    same_site: Option<FlagChange>,
}

impl FlagChanges {
    fn add(&mut self, flag: &[u8]) {
        let is = |word: &str| flag.eq_ignore_ascii_case(word.as_bytes());
        let same_site = &mut self.same_site;
        match () {
            () if is("secure") => self.secure = Some(FlagChange::Set("")),
            () if is("nosecure") => {
                self.secure.get_or_insert(FlagChange::Removed);
            }
            () if is("httponly") => self.http_only = Some(FlagChange::Set("")),
            () if is("nohttponly") => {
                self.http_only.get_or_insert(FlagChange::Removed);
            }
            () if is("samesite=strict") => *same_site = Some(FlagChange::Set("Strict")),
            () if is("samesite=lax") && *same_site != Some(FlagChange::Set("Strict")) => {
                *same_site = Some(FlagChange::Set("Lax"));
            }
            () if is("samesite=none") && !matches!(same_site, Some(FlagChange::Set(_))) => {
                *same_site = Some(FlagChange::Set("None"));
            }
            () if is("nosamesite") => {
                same_site.get_or_insert(FlagChange::Removed);
            }
            () => {} // another word of a variable's, or an empty one: nothing
        }
    }
}

/// An attribute; the first one is the cookie itself.
#[derive(Debug)]
struct Attribute {
    name: Bytes,
    value: Option<Bytes>,
}

/// A `Set-Cookie` with our name; `None`: it is unchanged.
#[must_use]
pub(crate) fn rewrite(request: &Request, settings: &ProxyRewrites, line: &Bytes) -> Option<Bytes> {
    let mut attributes = parse(line)?;
    let mut is_changed = false;
    for attribute in attributes.iter_mut().skip(1) {
        is_changed |= move_attribute(request, settings, attribute);
    }
    if let Some(flags) = &settings.proxy_cookie_flags {
        is_changed |= set_flags(request, flags.rules(), &mut attributes);
    }
    is_changed.then(|| write(&attributes))
}

fn parse(line: &Bytes) -> Option<Vec<Attribute>> {
    let mut attributes = Vec::new();
    for part in line.split(|byte| *byte == b';') {
        if attributes.len() == ATTRIBUTES_MAX {
            return None;
        }
        let (name, value) = match memchr::memchr(b'=', part) {
            Some(at) => (&part[..at], Some(&part[at + 1..])),
            None => (part, None),
        };
        attributes.push(Attribute {
            name: line.slice_ref(trim(name)),
            value: value.map(|value| line.slice_ref(trim(value))),
        });
    }
    attributes.first()?.value.is_some().then_some(attributes)
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

fn move_attribute(request: &Request, settings: &ProxyRewrites, attribute: &mut Attribute) -> bool {
    let Some(value) = &attribute.value else {
        return false;
    };
    let moved = if attribute.name.eq_ignore_ascii_case(b"domain") {
        let rules = settings.proxy_cookie_domain.as_ref();
        rules.and_then(|rules| proxy_redirect::cookie_domain(request, rules.rules(), value))
    } else if attribute.name.eq_ignore_ascii_case(b"path") {
        let rules = settings.proxy_cookie_path.as_ref();
        rules.and_then(|rules| proxy_redirect::cookie_path(request, rules.rules(), value))
    } else {
        None
    };
    let is_moved = moved.is_some();
    if is_moved {
        attribute.value = moved;
    }
    is_moved
}

/// Applies the first line that matches the cookie. Returns whether it asked for anything.
fn set_flags(request: &Request, lines: &[CookieFlags], attributes: &mut Vec<Attribute>) -> bool {
    let name = attributes[0].name.clone();
    let Some(line) = lines.iter().find(|line| line.is_for(request, &name)) else {
        return false;
    };
    let mut changes = FlagChanges::default();
    for flag in &line.flags {
        changes.add(&request.evaluate(flag));
    }
    let all = [
        ("Secure", changes.secure),
        ("HttpOnly", changes.http_only),
        ("SameSite", changes.same_site),
    ];
    for (name, change) in all {
        if let Some(change) = change {
            grant(attributes, name, change);
        }
    }
    all.iter().any(|(_, change)| change.is_some())
}

fn grant(attributes: &mut Vec<Attribute>, name: &'static str, change: FlagChange) {
    let is_it = |attribute: &Attribute| attribute.name.eq_ignore_ascii_case(name.as_bytes());
    let place = attributes.iter().skip(1).position(is_it);
    match (change, place) {
        (FlagChange::Removed, _) => {
            let mut is_first = true;
            attributes.retain(|attribute| std::mem::take(&mut is_first) || !is_it(attribute));
        }
        (FlagChange::Set(""), Some(_)) => {}
        (FlagChange::Set(value), Some(at)) => {
            let known = &mut attributes[at + 1];
            let is_same = |text: &Bytes| text.eq_ignore_ascii_case(value.as_bytes());
            if !known.value.as_ref().is_some_and(is_same) {
                known.name = Bytes::from_static(name.as_bytes());
                known.value = Some(Bytes::from_static(value.as_bytes()));
            }
        }
        (FlagChange::Set(value), None) => attributes.push(Attribute {
            name: Bytes::from_static(name.as_bytes()),
            value: (!value.is_empty()).then(|| Bytes::from_static(value.as_bytes())),
        }),
    }
}

fn write(attributes: &[Attribute]) -> Bytes {
    let mut out = Vec::new();
    for (number, attribute) in attributes.iter().enumerate() {
        if number > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(&attribute.name);
        if let Some(value) = &attribute.value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    out.into()
}
