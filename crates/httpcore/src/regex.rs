//! Regular expressions as nginx's configuration has them: PCRE2, compiled once for the process.
//!
//! Not here: where a pattern stands in the configuration (each module knows that), and when it is matched. Invariant:
//! every pattern carries a match limit, so that catastrophic backtracking cannot hold a loop.

mod pattern;
mod prefix;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Weak};

use config::{Problem, Scope, VariableIndex, Word};
use hashbrown::HashMap;
use parking_lot::Mutex;
use pcre2::bytes::{CaptureLocations, RegexBuilder};
use smallvec::SmallVec;

/// Steps after which PCRE2 gives up a match (`(*LIMIT_MATCH=…)`): about 10 ms of one core.
pub const MATCH_LIMIT: u32 = 100_000;
/// Bytes of each thread's stack for matches: it grows to this size with the matches that need it.
const STACK_MAX: usize = 1 << 20;
/// Maximum number of groups that are accessible by number, the whole match included: `$0` to `$9`.
const NUMBERED: usize = 10;

/// A compiled pattern together with the variables that its named groups set.
#[derive(Debug)]
pub struct Regex {
    program: Arc<pcre2::bytes::Regex>,
    /// The pattern as it was written, for messages.
    pub pattern: String,
    /// Number of groups kept of a match: those accessible by number, and up to the last one with a name.
    kept: usize,
    /// What every subject that matches begins with ([`prefix::of`]).
    prefix: Box<[u8]>,
    is_caseless: bool,
    /// Named groups: their number and the variable that they set.
    pub groups: Vec<(usize, VariableIndex)>,
}

/// A match that PCRE2 has given up: whether the pattern matches is not known.
#[derive(Debug)]
pub struct MatchFailed {
    /// nginx's sentence for the log.
    pub sentence: String,
}

impl MatchFailed {
    fn new(error: &pcre2::Error, subject: &[u8], pattern: &str) -> Self {
        let (code, subject) = (error.code(), String::from_utf8_lossy(subject));
        Self {
            sentence: format!("pcre2_match() failed: {code} on \"{subject}\" using \"{pattern}\""),
        }
    }
}

/// The positions of the groups of the last successful match in its subject.
pub type Spans = SmallVec<[Option<Range<u32>>; 4]>;

/// Number of groups, the whole match included, of the positions that a thread keeps from one match to the next.
const KEPT_BY_THREAD: usize = 32;

/// A pattern with [`KEPT_BY_THREAD`] groups: what it has room for is enough for patterns with as many.
static ROOM: LazyLock<Option<pcre2::bytes::Regex>> =
    LazyLock::new(|| builder().build(&"()".repeat(KEPT_BY_THREAD - 1)).ok());

/// Compiles to machine code, for matches with a stack of their own: without one they have 32 KiB of the thread's.
fn builder() -> RegexBuilder {
    let mut builder = RegexBuilder::new();
    builder
        .jit_if_available(true)
        .max_jit_stack_size(Some(STACK_MAX));
    builder
}

thread_local! {
    /// Where PCRE2 writes what it finds, and its stack: making it anew costs two to three times the usual match.
    static LOCATIONS: RefCell<Option<CaptureLocations>> = const { RefCell::new(None) };
}

/// Whether `subject` begins with `prefix`; letters of ASCII are the same in both cases if `is_caseless`.
fn begins_with(subject: &[u8], prefix: &[u8], is_caseless: bool) -> bool {
    match subject.get(..prefix.len()) {
        Some(start) if is_caseless => start.eq_ignore_ascii_case(prefix),
        Some(start) => start == prefix,
        None => false,
    }
}

/// nginx's sentence for a pattern that PCRE2 refuses; `before` is the prefix that was added to the pattern.
fn not_compiled(error: &pcre2::Error, pattern: &str, before: usize) -> String {
    let said = error.to_string();
    // "PCRE2: error compiling pattern at offset 22: missing closing parenthesis"
    let reason = said.splitn(3, ": ").last().unwrap_or(&said);
    let at = error.offset().and_then(|offset| offset.checked_sub(before));
    match at.and_then(|at| pattern.get(at..)) {
        Some(rest) if !rest.is_empty() => {
            format!("pcre2_compile() failed: {reason} in \"{pattern}\" at \"{rest}\"")
        }
        _ => format!("pcre2_compile() failed: {reason} in \"{pattern}\""),
    }
}

/// The programs in use, by pattern: a pattern that occurs in ten thousand servers, or again in the next
/// configuration, is compiled once and is in memory once.
static PROGRAMS: Mutex<Option<Programs>> = Mutex::new(None);

#[derive(Default)]
struct Programs {
    /// Case-sensitive and caseless.
    known: [HashMap<Box<str>, Weak<pcre2::bytes::Regex>>; 2],
    /// Number of programs at which unused ones are swept.
    sweep_at: usize,
}

/// Minimum number of programs for a sweep of the unused ones.
const SWEEP_MIN: usize = 1024;

impl Programs {
    fn sweep(&mut self) {
        for known in &mut self.known {
            known.retain(|_, program| program.strong_count() > 0);
        }
        let left: usize = self.known.iter().map(HashMap::len).sum();
        self.sweep_at = (2 * left).max(SWEEP_MIN);
    }
}

/// The program of a pattern, shared by all uses of the pattern. Not on a loop: another thread may hold the lock.
fn shared(pattern: &str, caseless: bool) -> Result<Arc<pcre2::bytes::Regex>, String> {
    let case = usize::from(caseless);
    let find = |programs: &Programs| programs.known[case].get(pattern)?.upgrade();
    if let Some(program) = PROGRAMS.lock().as_ref().and_then(find) {
        return Ok(program);
    }
    let program = compile(pattern, caseless)?;
    let mut programs = PROGRAMS.lock();
    let programs = programs.get_or_insert_default();
    if programs.known.iter().map(HashMap::len).sum::<usize>() >= programs.sweep_at {
        programs.sweep();
    }
    programs.known[case].insert(pattern.into(), Arc::downgrade(&program));
    Ok(program)
}

fn compile(pattern: &str, caseless: bool) -> Result<Arc<pcre2::bytes::Regex>, String> {
    let limited = format!("(*LIMIT_MATCH={MATCH_LIMIT}){pattern}");
    let program = builder()
        .caseless(caseless)
        .build(&limited)
        .map_err(|error| not_compiled(&error, pattern, limited.len() - pattern.len()))?;
    Ok(Arc::new(program))
}

impl Regex {
    /// Compiles `pattern`; `name` gives the variable for a named group.
    ///
    /// # Errors
    /// nginx's sentence (`pcre2_compile() failed: … in "PATTERN"`).
    pub fn compile(
        pattern: &[u8],
        caseless: bool,
        name: impl FnMut(&str) -> VariableIndex,
    ) -> Result<Self, String> {
        let pattern = &pattern::text(pattern);
        Self::new(pattern, caseless, compile(pattern, caseless)?, name)
    }

    /// Like [`Regex::compile`], for a pattern from the configuration, which may occur there many times. Not on a
    /// loop.
    ///
    /// # Errors
    /// As [`Regex::compile`].
    pub fn shared(
        pattern: &[u8],
        caseless: bool,
        name: impl FnMut(&str) -> VariableIndex,
    ) -> Result<Self, String> {
        let pattern = &pattern::text(pattern);
        Self::new(pattern, caseless, shared(pattern, caseless)?, name)
    }

    fn new(
        pattern: &str,
        is_caseless: bool,
        program: Arc<pcre2::bytes::Regex>,
        mut name: impl FnMut(&str) -> VariableIndex,
    ) -> Result<Self, String> {
        let groups: Vec<_> = program
            .capture_names()
            .iter()
            .enumerate()
            .filter_map(|(i, n)| n.as_deref().map(|n| (i, name(n))))
            .collect();
        let named = groups.last().map_or(0, |(group, _)| group + 1);
        Ok(Self {
            kept: program.captures_len().min(named.max(NUMBERED)),
            program,
            prefix: prefix::of(pattern),
            is_caseless,
            pattern: pattern.to_owned(),
            groups,
        })
    }

    /// Compiles a pattern from the configuration; its named groups become variables.
    ///
    /// # Errors
    /// As [`Regex::compile`].
    pub fn of_configuration(
        pattern: &[u8],
        caseless: bool,
        word: &Word,
        scope: &mut Scope,
    ) -> Result<Self, Problem> {
        let mut problem = None;
        let compiled = Self::shared(pattern, caseless, |name| {
            scope.define(name, &word.place()).unwrap_or_else(|found| {
                problem = Some(found);
                VariableIndex(0)
            })
        });
        match problem {
            Some(problem) => Err(problem),
            None => compiled.map_err(Problem::new),
        }
    }

    /// Whether the pattern matches.
    ///
    /// # Errors
    /// The match needs more steps than [`MATCH_LIMIT`], or more stack, or the subject is not the UTF-8 that the pattern
    /// demands.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchFailed> {
        Ok(self.matched(subject, |_| ())?.is_some())
    }

    /// The groups of a match, or `None`.
    ///
    /// # Errors
    /// As [`Regex::is_match`].
    pub fn captures(&self, subject: &[u8]) -> Result<Option<Spans>, MatchFailed> {
        self.matched(subject, |locations| {
            let span = |(start, end)| start as u32..end as u32;
            (0..self.kept).map(|i| locations.get(i).map(span)).collect()
        })
    }

    /// What `found` makes of the positions of a match; `None` without one.
    fn matched<T>(
        &self,
        subject: &[u8],
        found: impl FnOnce(&CaptureLocations) -> T,
    ) -> Result<Option<T>, MatchFailed> {
        if !begins_with(subject, &self.prefix, self.is_caseless) {
            return Ok(None);
        }
        let in_room = |locations: &mut CaptureLocations| {
            let matched = self.program.captures_read(locations, subject);
            let matched =
                matched.map_err(|error| MatchFailed::new(&error, subject, &self.pattern))?;
            Ok(matched.map(|_| found(locations)))
        };
        match ROOM.as_ref() {
            Some(room) if self.program.captures_len() <= KEPT_BY_THREAD => LOCATIONS
                .with_borrow_mut(|locations| {
                    in_room(locations.get_or_insert_with(|| room.capture_locations()))
                }),
            _ => in_room(&mut self.program.capture_locations()),
        }
    }

    /// Number of groups, the whole match counted.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.program.captures_len()
    }

    /// Whether the pattern has groups: a match of one without sets nothing.
    #[must_use]
    pub fn has_captures(&self) -> bool {
        self.program.captures_len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(pattern: &str) -> Regex {
        Regex::compile(pattern.as_bytes(), false, |_| VariableIndex(7)).expect("compiles")
    }

    fn captures(regex: &Regex, subject: &[u8]) -> Option<Spans> {
        regex.captures(subject).expect("does not fail")
    }

    fn is_match(regex: &Regex, subject: &[u8]) -> bool {
        regex.is_match(subject).expect("does not fail")
    }

    #[test]
    fn named_groups_set_their_variables() {
        let regex = compile("^/(?<user>[a-z]+)/(.*)$");
        assert_eq!(regex.groups, vec![(1, VariableIndex(7))]);
        let spans = captures(&regex, b"/joe/x").expect("matches");
        assert_eq!(spans[1], Some(1..4));
        assert_eq!(spans[2], Some(5..6));
        assert!(captures(&regex, b"/JOE/x").is_none());
    }

    #[test]
    fn of_many_groups_what_can_be_asked_for_is_kept() {
        let regex = compile(&format!("^{}(?<last>z)$", "(.)".repeat(81)));
        let subject = ["a".repeat(81).as_bytes(), b"z"].concat();
        let spans = captures(&regex, &subject).expect("matches");
        assert_eq!(
            (spans[9].clone(), spans[82].clone()),
            (Some(8..9), Some(81..82))
        );
        let regex = compile(&"(.)".repeat(200));
        let spans = captures(&regex, &[b'a'; 200]).expect("matches");
        assert_eq!(spans.len(), 10);
    }

    #[test]
    fn groups_of_one_match_are_not_those_of_the_next() {
        let many = compile(&"(a)".repeat(9));
        assert!(captures(&many, &[b'a'; 9]).is_some());
        let spans = captures(&compile("(b)|(a)|(c)"), b"a").expect("matches");
        assert_eq!(spans[..], [Some(0..1), None, Some(0..1), None]);
        assert!(captures(&compile("(b)(c)?"), b"a").is_none());
        let more = compile(&"(a)".repeat(KEPT_BY_THREAD));
        assert!(is_match(&more, &[b'a'; KEPT_BY_THREAD]));
    }

    #[test]
    fn a_prefix_is_of_either_case_where_the_pattern_is() {
        let regex = Regex::compile(b"^/App[0-9]", true, |_| VariableIndex(0)).expect("compiles");
        assert!(is_match(&regex, b"/aPP1") && !is_match(&regex, b"/ap"));
        assert!(!is_match(&compile("^/App[0-9]"), b"/app1"));
    }

    #[test]
    fn a_bad_pattern_says_what_nginx_says() {
        let error =
            Regex::compile(b"(", false, |_| VariableIndex(0)).expect_err("does not compile");
        assert!(error.starts_with("pcre2_compile() failed: "), "{error}");
        assert!(error.ends_with("in \"(\""), "{error}");
    }

    #[test]
    fn a_runaway_pattern_is_cut_short() {
        let regex = compile("^(a+)+$");
        let mut subject = vec![b'a'; 64];
        subject.push(b'!');
        let failed = regex.is_match(&subject).expect_err("is not known");
        assert!(
            failed.sentence.starts_with("pcre2_match() failed: -")
                && failed.sentence.ends_with("!\" using \"^(a+)+$\""),
            "{}",
            failed.sentence
        );
    }

    #[test]
    fn a_long_subject_has_room_on_the_stack() {
        let long = [&b"/"[..], &[b'a'; 8000]].concat();
        assert!(is_match(&compile("^/([0-9a-f]|-)+$"), &long));
        let many = compile(&format!("^/([0-9a-f]|-)+{}$", "()".repeat(KEPT_BY_THREAD)));
        assert!(is_match(&many, &long));
    }

    #[test]
    fn a_pattern_in_another_encoding_matches_its_bytes() {
        let regex =
            Regex::compile(b"^[\xe0-\xff]+$", false, |_| VariableIndex(0)).expect("compiles");
        assert!(is_match(&regex, b"\xf2\xe5\xf1\xf2"));
        assert!(!is_match(&regex, "\u{442}".as_bytes()));
    }
}
