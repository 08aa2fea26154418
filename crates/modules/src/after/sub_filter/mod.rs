//! `sub_filter`: replaces texts in bodies.

pub mod search;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use config::{Flag, Problem, Scope, Template, Value, Word, directives};
use message::BodyError;

use httpcore::Response;
use httpcore::request::Request;
use httpcore::settings::Location;

use super::media_types::MediaTypes;
use httpcore::body_filter::{self, FEED_LEN, Filter, Out, Steps};
use search::{PATTERNS_MAX, Part, Patterns, Search};

/// Maximum output bytes per feed of the filter, as far as a single match allows.
const OUT_MAX: usize = 1 << 20;

/// The lines of one level: the patterns and their replacements.
#[derive(Debug, Clone, Default)]
pub struct Pairs(Arc<Lines>);

#[derive(Debug, Default)]
struct Lines {
    list: Vec<Pair>,
    /// Prepared on first use, if no pattern has variables.
    patterns: OnceLock<Option<Arc<Patterns>>>,
}

#[derive(Debug, Clone)]
struct Pair {
    pattern: Template,
    value: Template,
}

impl Pairs {
    /// Whether there is one.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.0.list.is_empty()
    }

    fn has_variables(&self) -> bool {
        self.0
            .list
            .iter()
            .any(|pair| pair.pattern.literal().is_none() || pair.value.literal().is_none())
    }

    /// The patterns for an answer to this request, and the replacement of each; `None`: there are none.
    fn evaluate(&self, request: &Request) -> Option<(Arc<Patterns>, Vec<Bytes>)> {
        let list = &self.0.list;
        let values = |pair: &Pair| request.evaluate(&pair.value);
        if list.iter().all(|pair| pair.pattern.literal().is_some()) {
            let make = || {
                ready(
                    list.iter()
                        .filter_map(|pair| pair.pattern.literal().cloned()),
                )
            };
            let patterns = self.0.patterns.get_or_init(make).clone()?;
            return Some((patterns, list.iter().map(values).collect()));
        }
        let (mut patterns, mut chosen) = (Vec::with_capacity(list.len()), Vec::new());
        for pair in list {
            let pattern = request.evaluate(&pair.pattern);
            if !pattern.is_empty() {
                patterns.push(pattern);
                chosen.push(values(pair));
            }
        }
        Some((ready(patterns)?, chosen))
    }
}

fn ready(patterns: impl IntoIterator<Item = Bytes>) -> Option<Arc<Patterns>> {
    Patterns::new(patterns).map(Arc::new)
}

impl Value for Pairs {
    const SYNTAX: &'static str = "string replacement";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        if args[0].bytes().is_empty() {
            return Err(Problem::new("empty search pattern").at(0));
        }
        let pair = Pair {
            pattern: Template::of_word(&args[0], scope).map_err(|problem| problem.at(0))?,
            value: Template::of_word(&args[1], scope).map_err(|problem| problem.at(1))?,
        };
        Ok(Self(Arc::new(Lines {
            list: vec![pair],
            patterns: OnceLock::new(),
        })))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        let mut list = slot
            .take()
            .map_or_else(Vec::new, |known| known.0.list.clone());
        if list.len() == PATTERNS_MAX {
            let sentence = format!("number of search patterns exceeds {PATTERNS_MAX}");
            return Err(Problem::new(sentence));
        }
        list.extend(line.0.list.iter().cloned());
        *slot = Some(Self(Arc::new(Lines {
            list,
            patterns: OnceLock::new(),
        })));
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

directives! {
    /// Text replacement in bodies (sub_filter).
    pub struct SubFilter in Location {
        /// Replaces a text in bodies by another, without regard to case. May be repeated; a level with lines of its own
        /// inherits none.
        sub_filter: Pairs = none, [HTTP | SERVER | LOCATION] 2;
        /// Replaces only the first occurrence of each text.
        sub_filter_once: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Keeps `Last-Modified` of searched responses, and their entity tag as a weak one; by default both are
        /// removed.
        sub_filter_last_modified: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the media types of the responses that are searched, besides `text/html`; `*` means all.
        sub_filter_types: MediaTypes = "text/html", [HTTP | SERVER | LOCATION] 1..;
    }
}

/// Whether bodies are searched at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<SubFilter>().sub_filter.is_any()
}

/// Has the body of an answer searched, if it is to be.
pub fn begin(
    request: &mut Request,
    settings: &SubFilter,
    response: &mut Response,
    steps: &mut Steps,
) {
    if !settings.sub_filter.is_any()
        || response.content_length == Some(0)
        || !settings.sub_filter_types.has(response)
    {
        return;
    }
    let pairs = &settings.sub_filter;
    let evaluated = match pairs.has_variables() {
        true => body_filter::with_head(request, response, |request| pairs.evaluate(request)),
        false => pairs.evaluate(request),
    };
    let Some((patterns, values)) = evaluated else {
        return;
    };
    if !request.is_subrequest() {
        response.content_length = None;
        body_filter::forget_version(response, settings.sub_filter_last_modified);
    }
    let longest = values.iter().map(Bytes::len).max().unwrap_or(0);
    steps.filter(Replacing {
        // Each match consumes a pattern's bytes and gives a value's.
        feed_len: (OUT_MAX / longest.max(1) * patterns.shortest()).clamp(1, FEED_LEN),
        search: Search::new(patterns, settings.sub_filter_once),
        values,
        parts: Vec::new(),
    });
}

/// A body in which texts are being replaced.
struct Replacing {
    search: Search,
    values: Vec<Bytes>,
    feed_len: usize,
    /// Its memory is reused from piece to piece.
    parts: Vec<Part>,
}

impl Replacing {
    fn give(&mut self, out: &mut Out) {
        for part in self.parts.drain(..) {
            out.push(match part {
                Part::Text(text) => text,
                Part::Match(number) => self.values[number].clone(),
            });
        }
    }
}

impl Filter for Replacing {
    fn feed(&mut self, bytes: Bytes, out: &mut Out) -> Result<(), BodyError> {
        self.search.feed(bytes, &mut self.parts);
        self.give(out);
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), BodyError> {
        self.search.end(&mut self.parts);
        self.give(out);
        Ok(())
    }

    fn feed_len(&self) -> usize {
        self.feed_len
    }
}
