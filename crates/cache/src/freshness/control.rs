//! `Cache-Control` of responses and of requests.

use crate::lifetime::AGE_MAX;

/// The value at which delta-seconds saturate (RFC 9111, 1.2.2).
pub const DELTA_MAX: u32 = AGE_MAX;

/// A number of seconds, as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delta {
    Seconds(u32),
    Invalid,
}

impl Delta {
    fn parse(text: &[u8]) -> Self {
        match seconds(text) {
            Some(seconds) => Self::Seconds(seconds),
            None => Self::Invalid,
        }
    }

    /// A malformed number makes the response stale (RFC 9111, 4.2.1).
    pub(crate) fn or_zero(self) -> u32 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::Invalid => 0,
        }
    }

    /// The smaller of two values of one directive.
    fn least(was: Option<Self>, new: Self) -> Option<Self> {
        match (was, new) {
            (None, new) => Some(new),
            (Some(Self::Seconds(was)), Self::Seconds(new)) => Some(Self::Seconds(was.min(new))),
            _ => Some(Self::Invalid),
        }
    }
}

/// Digits as a number that saturates at [`DELTA_MAX`]; None for anything else.
pub(super) fn seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u64, |sum, digit| {
        (sum * 10 + u64::from(digit - b'0')).min(u64::from(DELTA_MAX))
    });
    u32::try_from(number).ok()
}

/// The directives of all `Cache-Control` lines of a response together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheControl {
    pub no_store: bool,
    pub no_cache: bool,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub max_age: Option<Delta>,
    pub s_maxage: Option<Delta>,
    pub stale_while_revalidate: Option<Delta>,
    pub stale_if_error: Option<Delta>,
    /// Fields named by `no-cache="…"` and `private="…"`, in lower case.
    pub fields: Vec<Vec<u8>>,
}

impl CacheControl {
    pub(super) fn read(&mut self, line: &[u8]) {
        for directive in directives(line) {
            self.take(directive);
        }
    }

    fn take(&mut self, (name, value): Directive<'_>) {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        let number = || Delta::parse(value.unwrap_or_default());
        if !((is("no-cache") || is("private")) && self.name_fields(value)) {
            self.restrict(name);
            self.restrict(value.unwrap_or_default());
        }
        if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("max-age") {
            self.max_age = Delta::least(self.max_age, number());
        } else if is("s-maxage") {
            self.s_maxage = Delta::least(self.s_maxage, number());
        } else if is("stale-while-revalidate") {
            self.stale_while_revalidate = Delta::least(self.stale_while_revalidate, number());
        } else if is("stale-if-error") {
            self.stale_if_error = Delta::least(self.stale_if_error, number());
        }
    }

    /// Obeys the words that forbid storing wherever they stand in a text, as nginx does: in quotes, too, and as a part
    /// of a longer word. A response that may be private is not shared, however its field is misspelt.
    fn restrict(&mut self, text: &[u8]) {
        self.no_store |= contains(text, b"no-store");
        self.no_cache |= contains(text, b"no-cache");
        self.private |= contains(text, b"private");
    }

    /// Adds the named fields. False if the value is no list of names in quotes: then the directive is about the whole
    /// response.
    fn name_fields(&mut self, value: Option<&[u8]>) -> bool {
        let Some([b'"', names @ .., b'"']) = value else {
            return false;
        };
        let separates = |byte: &u8| matches!(byte, b',' | b' ' | b'\t');
        let names = names.split(separates).filter(|name| !name.is_empty());
        let is_name = |name: &[u8]| {
            name.iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if names.clone().next().is_none() || !names.clone().all(is_name) {
            return false;
        }
        self.fields.extend(names.map(<[u8]>::to_ascii_lowercase));
        true
    }

    /// May a response to a request with `Authorization` be shared (RFC 9111, 3.5)?
    pub(crate) fn allows_authorized(&self) -> bool {
        self.public || self.must_revalidate || self.s_maxage.is_some()
    }

    /// Is a shared cache forbidden to use it stale (RFC 9111, 4.2.4)?
    pub(crate) fn is_never_stale(&self) -> bool {
        self.must_revalidate || self.proxy_revalidate || self.s_maxage.is_some()
    }

    /// Is one of the numbers malformed?
    pub(crate) fn has_invalid(&self) -> bool {
        let windows = [self.stale_while_revalidate, self.stale_if_error];
        let ages = [self.max_age, self.s_maxage];
        ages.iter()
            .chain(&windows)
            .any(|delta| *delta == Some(Delta::Invalid))
    }

    /// Can it be parsed as a structured field (RFC 9213, 2.1), as far as its numbers go?
    pub(crate) fn is_structured(&self) -> bool {
        !self.has_invalid()
    }
}

/// The directives of a request for responses from a cache (RFC 9111, 5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestControl {
    /// `no-cache`, or `Pragma: no-cache` without any `Cache-Control` (5.4).
    pub no_cache: bool,
    /// `no-store`: the response is not to be stored.
    pub no_store: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `max-age`, in seconds.
    pub max_age: Option<u32>,
    /// `min-fresh`, in seconds.
    pub min_fresh: Option<u32>,
    /// `max-stale`, in seconds; [`DELTA_MAX`] without a number.
    pub max_stale: Option<u32>,
}

impl RequestControl {
    /// Reads the request's lines of `Cache-Control` and of `Pragma`.
    #[must_use]
    pub fn of<'a>(
        cache_control: impl Iterator<Item = &'a [u8]>,
        pragma: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let mut wishes = Self::default();
        let mut is_controlled = false;
        for line in cache_control {
            is_controlled = true;
            directives(line).for_each(|directive| wishes.take(directive));
        }
        let mut pragmas = pragma.flat_map(directives);
        if !is_controlled {
            wishes.no_cache = pragmas.any(|(name, _)| name.eq_ignore_ascii_case(b"no-cache"));
        }
        wishes
    }

    fn take(&mut self, (name, value): Directive<'_>) {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        let number = || Delta::parse(value.unwrap_or_default()).or_zero();
        if is("no-cache") {
            self.no_cache = true;
        } else if is("no-store") {
            self.no_store = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age") {
            self.max_age = Some(number());
        } else if is("min-fresh") {
            self.min_fresh = Some(number());
        } else if is("max-stale") {
            self.max_stale = Some(value.map_or(DELTA_MAX, |_| number()));
        }
    }
}

/// A name and its value.
type Directive<'a> = (&'a [u8], Option<&'a [u8]>);

/// Whether a text contains a word, in any case of letters.
fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

/// The directives of a line. Outside of quotes commas separate them, and as in nginx `;` and blanks do, too. A blank
/// before `=` becomes part of the name, which is unknown then.
fn directives(line: &[u8]) -> impl Iterator<Item = Directive<'_>> {
    let (mut rest, mut has_quotes) = (line, true);
    let mut parts = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match end_of_directive(rest, has_quotes) {
            Some(end) => end,
            None => {
                has_quotes = false;
                end_of_directive(rest, has_quotes).unwrap_or(rest.len())
            }
        };
        let part = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(part.trim_ascii())
    });
    std::iter::from_fn(move || {
        let part = parts.find(|part| !part.is_empty())?;
        let equals = part.iter().position(|byte| *byte == b'=');
        Some(match equals {
            Some(at) => (&part[..at], Some(&part[at + 1..])),
            None => (part, None),
        })
    })
}

/// The length of the directive that a text begins with. None: a quote in it never ends, so it quotes nothing.
fn end_of_directive(text: &[u8], has_quotes: bool) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' if has_quotes => is_quoted = !is_quoted,
            b',' | b';' if !is_quoted => return Some(at),
            b' ' if !is_quoted && !text[..at].ends_with(b" ") => {
                let next = text[at..].iter().find(|byte| **byte != b' ');
                if next != Some(&b'=') {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    (!is_quoted).then_some(text.len())
}
