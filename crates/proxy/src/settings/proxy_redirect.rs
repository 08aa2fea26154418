//! Rewriting of what a response says under the upstream's name into our own: `proxy_redirect`, `proxy_cookie_domain`,
//! `proxy_cookie_path`.
//!
//! Not here: cookies taken apart (`response::set_cookie`). Invariant: a value that no rule changes stays as it came.

use std::sync::Arc;

use bytes::Bytes;
use config::{Problem, Scope, Template, Value, Word};

use httpcore::regex::Regex;
use httpcore::request::Request;

/// Maximum of rules of one directive at one level.
pub(crate) const RULES_MAX: usize = 4096;

/// A rule: a pattern and its replacement.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Pattern,
    replacement: Template,
}

#[derive(Debug, Clone)]
enum Pattern {
    /// With variables.
    Text(Template),
    Regex(Arc<Regex>),
}

/// The lines of one directive: none of them, or all of them.
#[derive(Debug, Clone)]
pub enum Lines<T> {
    /// `off`.
    Off,
    /// In their order.
    Rules(Vec<T>),
}

impl<T> Lines<T> {
    /// The rules; none when it is `off`.
    pub fn rules(&self) -> &[T] {
        match self {
            Self::Off => &[],
            Self::Rules(rules) => rules,
        }
    }
}

/// The arguments of a line other than `off`.
pub trait Rewriting: Clone {
    /// As [`Value::SYNTAX`].
    const SYNTAX: &'static str;

    /// Reads the arguments of one line.
    ///
    /// # Errors
    /// The error, in nginx's words.
    fn read(args: &[Word], scope: &mut Scope) -> Result<Self, Problem>;
}

impl<T: Rewriting> Value for Lines<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        Ok(match args {
            [word] if *word == "off" => Self::Off,
            _ => Self::Rules(vec![T::read(args, scope)?]),
        })
    }

    /// `off` must be the only line.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        match (&mut *slot, Self::parse(args, scope)?) {
            (None, line) => *slot = Some(line),
            (Some(Self::Rules(rules)), Self::Rules(line)) if rules.len() < RULES_MAX => {
                rules.extend(line);
            }
            _ => return Err(Problem::duplicate()),
        }
        Ok(())
    }
}

/// A `proxy_redirect` line.
#[derive(Debug, Clone)]
pub enum Redirect {
    /// `default`: from the URL of `proxy_pass` to the location.
    Default,
    /// From a text or a pattern to a text.
    Rule(Rule),
}

impl Rewriting for Redirect {
    const SYNTAX: &'static str = "default | off | redirect replacement";

    fn read(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] if *word == "default" => Ok(Self::Default),
            [word] => Err(invalid(word)),
            _ => Rule::of_text(args, scope).map(Self::Rule),
        }
    }
}

/// A `proxy_cookie_domain` line.
#[derive(Debug, Clone)]
pub struct CookieDomain(Rule);

impl Rewriting for CookieDomain {
    const SYNTAX: &'static str = "off | domain replacement";

    fn read(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] => Err(invalid(word)),
            _ => Rule::of_domain(args, scope).map(Self),
        }
    }
}

/// A `proxy_cookie_path` line.
#[derive(Debug, Clone)]
pub struct CookiePath(Rule);

impl Rewriting for CookiePath {
    const SYNTAX: &'static str = "off | path replacement";

    fn read(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] => Err(invalid(word)),
            _ => Rule::of_text(args, scope).map(Self),
        }
    }
}

pub(crate) fn invalid(word: &Word) -> Problem {
    Problem::new(format!("invalid parameter \"{}\"", word.display())).at(0)
}

/// Compiles `PATTERN` or, after `~*`, `*PATTERN`: case-insensitive then, and always where `caseless` says so.
pub(crate) fn regex(
    pattern: &[u8],
    word: &Word,
    caseless: bool,
    scope: &mut Scope,
) -> Result<Arc<Regex>, Problem> {
    let (pattern, caseless) = match pattern.strip_prefix(b"*") {
        Some(rest) if !caseless => (rest, true),
        _ => (pattern, caseless),
    };
    Regex::of_configuration(pattern, caseless, word, scope).map(Arc::new)
}

impl Rule {
    /// From one text to another.
    #[must_use]
    pub fn literal(pattern: Bytes, replacement: Bytes) -> Rule {
        Rule {
            pattern: Pattern::Text(Template::from_literal(pattern)),
            replacement: Template::from_literal(replacement),
        }
    }

    fn of_text(args: &[Word], scope: &mut Scope) -> Result<Rule, Problem> {
        let pattern = match args[0].bytes().strip_prefix(b"~") {
            Some(pattern) => Pattern::Regex(regex(pattern, &args[0], false, scope)?),
            None => Pattern::Text(Template::of_word(&args[0], scope)?),
        };
        let replacement = Template::of_word(&args[1], scope).map_err(|problem| problem.at(1))?;
        Ok(Rule {
            pattern,
            replacement,
        })
    }

    /// A domain is case-insensitive, and a leading dot is ignored.
    fn of_domain(args: &[Word], scope: &mut Scope) -> Result<Rule, Problem> {
        let bare = |word: &Word| match word.bytes().strip_prefix(b".") {
            Some(rest) => word.bytes().slice_ref(rest),
            None => word.bytes().clone(),
        };
        let mut template = |text: &Bytes, word: &Word| Template::parse(text, &word.place(), scope);
        if let Some(pattern) = args[0].bytes().strip_prefix(b"~") {
            let replacement = template(args[1].bytes(), &args[1])?;
            return Ok(Rule {
                pattern: Pattern::Regex(regex(pattern, &args[0], true, scope)?),
                replacement,
            });
        }
        Ok(Rule {
            pattern: Pattern::Text(template(&bare(&args[0]), &args[0])?),
            replacement: template(&bare(&args[1]), &args[1])?,
        })
    }

    /// The value with the part after `prefix` bytes changed; `None`: the rule does not match.
    fn apply(&self, request: &Request, value: &Bytes, prefix: usize) -> Option<Bytes> {
        let subject = value.slice(prefix..);
        let len = match &self.pattern {
            Pattern::Text(text) => {
                let text = request.evaluate(text);
                subject.starts_with(&text).then_some(text.len())?
            }
            Pattern::Regex(regex) => self.capture(request, regex, &subject)?,
        };
        Some(self.replace(request, value, prefix, len))
    }

    fn apply_to_domain(&self, request: &Request, value: &Bytes) -> Option<Bytes> {
        let prefix = match &self.pattern {
            Pattern::Text(_) => usize::from(value.starts_with(b".")),
            Pattern::Regex(_) => 0,
        };
        let subject = value.slice(prefix..);
        let len = match &self.pattern {
            Pattern::Text(text) => {
                let is_same = subject.eq_ignore_ascii_case(&request.evaluate(text));
                is_same.then_some(subject.len())?
            }
            Pattern::Regex(regex) => self.capture(request, regex, &subject)?,
        };
        Some(self.replace(request, value, prefix, len))
    }

    /// As in nginx a match that fails changes nothing.
    fn capture(&self, request: &Request, regex: &Regex, subject: &Bytes) -> Option<usize> {
        let is_match = request.matches(regex, subject).unwrap_or(false);
        is_match.then_some(subject.len())
    }

    fn replace(&self, request: &Request, value: &Bytes, prefix: usize, len: usize) -> Bytes {
        let mut out = value[..prefix].to_vec();
        request.evaluate_into(&self.replacement, &mut out);
        out.extend_from_slice(&value[prefix + len..]);
        out.into()
    }
}

/// Applies the first matching rule to a `Location`.
#[must_use]
pub(crate) fn location(request: &Request, rules: &[Rule], value: &Bytes) -> Option<Bytes> {
    rules.iter().find_map(|rule| rule.apply(request, value, 0))
}

/// Applies the first matching rule to the URL of a `Refresh`.
#[must_use]
pub(crate) fn refresh(request: &Request, rules: &[Rule], value: &Bytes) -> Option<Bytes> {
    let at = value
        .windows(4)
        .position(|text| text.eq_ignore_ascii_case(b"url="))?;
    rules
        .iter()
        .find_map(|rule| rule.apply(request, value, at + 4))
}

/// The changed value of a cookie's `Path`.
pub(crate) fn cookie_path(request: &Request, rules: &[CookiePath], value: &Bytes) -> Option<Bytes> {
    rules
        .iter()
        .find_map(|CookiePath(rule)| rule.apply(request, value, 0))
}

/// The changed value of a cookie's `Domain`.
pub(crate) fn cookie_domain(
    request: &Request,
    rules: &[CookieDomain],
    value: &Bytes,
) -> Option<Bytes> {
    rules
        .iter()
        .find_map(|CookieDomain(rule)| rule.apply_to_domain(request, value))
}
