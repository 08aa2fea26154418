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

    /// The patterns for an answer to this request, and the place of each in the list; `None`: there are none.
    fn patterns(
        &self,
        request: &mut Request,
        response: &Response,
    ) -> Option<(Arc<Patterns>, Vec<usize>)> {
        let list = &self.0.list;
        if list.iter().all(|pair| pair.pattern.literal().is_some()) {
            let make = || {
                ready(
                    list.iter()
                        .filter_map(|pair| pair.pattern.literal().cloned()),
                )
            };
            let patterns = self.0.patterns.get_or_init(make).clone()?;
            return Some((patterns, (0..list.len()).collect()));
        }
        let evaluate = |request: &mut Request| {
            let patterns = list.iter().map(|pair| request.evaluate(&pair.pattern));
            let patterns = patterns.enumerate();
            patterns.filter(|(_, text)| !text.is_empty()).unzip()
        };
        let (chosen, patterns): (Vec<_>, Vec<_>) =
            body_filter::with_head(request, response, evaluate);
        Some((ready(patterns)?, chosen))
    }

    /// The replacements of these patterns for an answer with this head.
    fn values(&self, chosen: &[usize], request: &mut Request, head: &Response) -> Vec<Bytes> {
        let list = &self.0.list;
        let evaluate = |request: &mut Request| {
            let values = chosen.iter().map(|at| request.evaluate(&list[*at].value));
            values.collect()
        };
        match list.iter().all(|pair| pair.value.literal().is_some()) {
            true => evaluate(request),
            false => body_filter::with_head(request, head, evaluate),
        }
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
    let Some((patterns, chosen)) = pairs.patterns(request, response) else {
        return;
    };
    if !request.is_subrequest() {
        response.content_length = None;
        body_filter::forget_version(response, settings.sub_filter_last_modified);
    }
    let (pairs, is_once) = (pairs.clone(), settings.sub_filter_once);
    steps.filter_of_head(move |request, head| {
        let values = pairs.values(&chosen, request, head);
        let longest = values.iter().map(Bytes::len).max().unwrap_or(0);
        Replacing {
            // Each match consumes a pattern's bytes and gives a value's.
            feed_len: (OUT_MAX / longest.max(1) * patterns.shortest()).clamp(1, FEED_LEN),
            search: Search::new(patterns, is_once),
            values,
            parts: Vec::new(),
        }
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
