//! `map`: a variable whose value depends on another value.
//!
//! Not here: how the value for a string is found ([`httpcore::name_map`]).

use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Template, VariableIndex, Word, blocks};

use httpcore::Failure;
use httpcore::name_map::{self, Key, Map};
use httpcore::regex::Regex;
use httpcore::request::Request;
use httpcore::variables::block::{Defined, Definition, VariableBlock, source_and_target};

blocks! {
    /// Variables by other values (map).
    pub fn lines in Http {
        /// Creates a variable whose value depends on another value: by exact match, by wildcard (with `hostnames`), by
        /// regular expression.
        "map": [HTTP] 2 => LINES, syntax "string $variable";
    }
}

/// `map`.
pub const BLOCK: VariableBlock = VariableBlock { name: "map", read };

/// A block as it was read.
#[derive(Debug)]
struct Lines {
    source: Template,
    map: Map<Template, Regex>,
    is_volatile: bool,
    sources: Box<[VariableIndex]>,
}

fn read(block: &Directive, scope: &mut Scope) -> Result<Definition, Error> {
    let (source, target) = source_and_target(block, scope)?;
    let mut map = Map::new(false);
    let mut is_volatile = false;
    let mut sources: Vec<VariableIndex> = source.variables().collect();
    for line in block.children() {
        let fail = |problem: Problem| line.error(&problem);
        match (&line.name.bytes()[..], &line.args[..]) {
            (b"hostnames", []) => map.set_hostnames(),
            (b"volatile", []) => is_volatile = true,
            (key, [value]) => {
                let value = Template::of_word(value, scope).map_err(|p| fail(p.at(0)))?;
                sources.extend(value.variables());
                add(&mut map, key, &line.name, value, scope).map_err(fail)?;
            }
            _ => return Err(fail(Problem::new("invalid number of the map parameters"))),
        }
    }
    sources.sort_unstable();
    sources.dedup();
    let lines = Lines {
        source,
        map,
        is_volatile,
        sources: sources.into(),
    };
    Ok((target, Arc::new(lines)))
}

fn add(
    map: &mut Map<Template, Regex>,
    key: &[u8],
    word: &Word,
    value: Template,
    scope: &mut Scope,
) -> Result<(), Problem> {
    let problem = |found: name_map::Problem| Problem::new(found.to_string());
    match Key::new(key) {
        Key::Default => map.set_default(value).map_err(problem),
        Key::Name(name) => map.add_name(name, value).map_err(problem),
        Key::Regex { pattern, caseless } => {
            let regex = Regex::of_configuration(pattern, caseless, word, scope)?;
            map.add_regex(regex, value).map_err(problem)
        }
    }
}

impl Defined for Lines {
    fn value(&self, request: &Request) -> Option<Bytes> {
        let text = request.evaluate(&self.source);
        let matches = |regex: &Regex, subject: &[u8]| -> Result<bool, Failure> {
            let matched = regex.captures(subject);
            let spans = matched.map_err(|failed| request.match_failed(&failed))?;
            let is_match = spans.is_some();
            if let Some(spans) = spans {
                request.capture(regex, &text.slice_ref(subject), spans);
            }
            Ok(is_match)
        };
        let found = self.map.find(&text, matches);
        let value = found.unwrap_or_else(|_| self.map.default());
        let value = value.map_or_else(Bytes::new, |template| request.evaluate(template));
        (!request.is_too_long(&value)).then_some(value)
    }

    fn sources(&self) -> &[VariableIndex] {
        &self.sources
    }

    fn is_volatile(&self) -> bool {
        self.is_volatile
    }
}
