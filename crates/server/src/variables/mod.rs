//! Variables: the definition of each name, and its value for a request.
//!
//! Not here: which variables are built in: each module has a [`table`] of those that it knows. Those of the core are in
//! [`connection`], [`environment`], [`request`], [`response`] and [`tls`]. Invariant: after [`Definitions::finish`] every
//! index that the configuration uses has a definition, so that asking for a value cannot fail.

pub mod append;
pub mod browser;
pub mod connection;
pub mod environment;
pub mod memo;
pub mod messages;
pub mod referer;
pub mod request;
pub mod response;
pub mod secure_link;
pub mod table;
pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use config::{Assignable, Directive, Error, Problem, Scope, Template, VariableIndex, Word};
use logs::Level;
use message::HeaderId;
use smallvec::SmallVec;

use crate::geo::{self, Geo};
use crate::map::{self, Key, Map};
use crate::regex::Regex;
use crate::request::Request;
use crate::split_clients::SplitClients;
use crate::trusted_proxies;
use memo::VALUE_BYTES_MAX;
use table::{Append, AppendMember, Assign, Change, Make, Value, VariableTables};

/// Maximum depth to which variables may be made of variables.
pub const DEPTH_MAX: u32 = 100;

/// The definition of a variable.
#[derive(Debug, Clone)]
pub enum Definition {
    /// Built in: found anew at each use.
    BuiltIn(Append),
    /// The same, and `set` changes the request itself.
    Part(Append, Assign),
    /// Built in: made on first use; the request remembers the value.
    Memo(Make),
    /// Built in: a member of a family; the rest of its name selects it.
    Member(AppendMember, Box<[u8]>),
    /// Made by a `map`.
    Map(Arc<MapSource>),
    /// Made by `split_clients`.
    Split(Arc<SplitSource>),
    /// Made by `geo`.
    Geo(Arc<Geo>),
    /// A named group of a regular expression: set by the last match.
    Group,
    /// A variable with this name that only `set` gives a value.
    Assigned(Box<str>),
    /// A variable that is built in, unless `set` gave it another value.
    Settable(Box<Definition>),
}

/// A `map` block.
#[derive(Debug)]
pub struct MapSource {
    source: Template,
    map: Map<Template, Regex>,
    is_volatile: bool,
}

/// A `split_clients` block.
#[derive(Debug)]
pub struct SplitSource {
    source: Template,
    parts: SplitClients,
}

impl Definition {
    fn built_in(tables: &VariableTables, name: &str) -> Option<Self> {
        let (entry, rest) = tables.find(name)?;
        Some(match (entry.value, entry.change) {
            (Value::Fresh(append), Change::Request(assign)) => Self::Part(append, assign),
            (Value::Fresh(append), _) => Self::BuiltIn(append),
            (Value::Memo(make), _) => Self::Memo(make),
            (Value::Family(append), _) => Self::Member(append, rest.as_bytes().into()),
        })
    }
}

/// The definitions of a configuration that is being read.
#[derive(Debug, Default)]
pub struct Definitions {
    made: Vec<(VariableIndex, Definition)>,
}

impl Definitions {
    /// Reads a `map` block.
    ///
    /// # Errors
    /// An error in the block, with its place.
    pub fn read_map(&mut self, block: &Directive, scope: &mut Scope) -> Result<(), Error> {
        let (source, target) = source_and_target(block, scope)?;
        let mut map = Map::new(false);
        let mut is_volatile = false;
        for line in block.children() {
            let fail = |problem: Problem| line.error(&problem);
            match (&line.name.bytes()[..], &line.args[..]) {
                (b"hostnames", []) => map.set_hostnames(),
                (b"volatile", []) => is_volatile = true,
                (key, [value]) => {
                    let value = Template::of_word(value, scope).map_err(|p| fail(p.at(0)))?;
                    add_to_map(&mut map, key, &line.name, value, scope).map_err(fail)?;
                }
                _ => return Err(fail(Problem::new("invalid number of the map parameters"))),
            }
        }
        self.made.push((
            target,
            Definition::Map(Arc::new(MapSource {
                source,
                map,
                is_volatile,
            })),
        ));
        Ok(())
    }

    /// Reads a `split_clients` block.
    ///
    /// # Errors
    /// An error in the block, with its place.
    pub fn read_split_clients(
        &mut self,
        block: &Directive,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let (source, target) = source_and_target(block, scope)?;
        let mut lines = Vec::with_capacity(block.children().len());
        for line in block.children() {
            let [value] = &line.args[..] else {
                return Err(line.error(&Problem::new(
                    "invalid number of the split_clients parameters",
                )));
            };
            lines.push((&line.name.bytes()[..], value.bytes().clone()));
        }
        let parts = SplitClients::new(lines)
            .map_err(|found| block.error(&Problem::new(found.to_string())))?;
        self.made.push((
            target,
            Definition::Split(Arc::new(SplitSource { source, parts })),
        ));
        Ok(())
    }

    /// Reads a `geo` block.
    ///
    /// # Errors
    /// An error in the block, with its place.
    pub fn read_geo(&mut self, block: &Directive, scope: &mut Scope) -> Result<(), Error> {
        let mut name = |at: usize| {
            let index = made_by(&block.args[at], scope);
            index.map_err(|problem| block.error(&problem.at(at)))
        };
        let (address, target) = match &block.args[..] {
            [address, _] => {
                let target = name(1)?;
                let name = name_of(address).map_err(|problem| block.error(&problem.at(0)))?;
                let index = scope.intern(name, Some(&address.place()));
                (
                    Some(index.map_err(|problem| block.error(&problem))?),
                    target,
                )
            }
            _ => (None, name(0)?),
        };
        let geo = Geo::read(block, address, scope)?;
        self.made.push((target, Definition::Geo(Arc::new(geo))));
        Ok(())
    }

    /// The definition of every variable that the configuration uses, by index; `tables` has those that are built in.
    ///
    /// # Errors
    /// `unknown "x" variable`.
    pub fn finish(self, tables: &VariableTables, scope: &Scope) -> Result<Vec<Definition>, Error> {
        let is_made = |name: &str| {
            scope
                .find(name)
                .is_some_and(|index| scope.is_defined(index))
        };
        let made = scope.variables().iter().map(|variable| &*variable.name);
        scope.check(
            |name| is_made(name) || tables.find(name).is_some(),
            |name| {
                let known = tables.names().chain(made.filter(|name| is_made(name)));
                config::suggest::nearest(name.as_bytes(), known)
            },
        )?;
        let all = scope.variables().iter().enumerate();
        let mut all: Vec<Definition> = all
            .map(|(number, variable)| {
                let index = VariableIndex(number as u32);
                match Definition::built_in(tables, &variable.name) {
                    Some(own) if scope.is_defined(index) => Definition::Settable(Box::new(own)),
                    Some(own) => own,
                    None if scope.is_only_assigned(index) => {
                        Definition::Assigned(variable.name.as_str().into())
                    }
                    None => Definition::Group,
                }
            })
            .collect();
        for (index, definition) in self.made {
            all[index.0 as usize] = definition;
        }
        Ok(all)
    }
}

/// The variable that a line of the configuration sets: a new one, or a settable one.
///
/// # Errors
/// Not a name of a variable, or one whose value comes from elsewhere.
pub fn to_set(word: &Word, scope: &mut Scope) -> Result<VariableIndex, Problem> {
    let (name, is_part) = settable(word, scope)?;
    match is_part {
        true => scope.intern(name, Some(&word.place())),
        false => scope.define(name, &word.place()),
    }
    .map_err(|problem| problem.at(0))
}

/// Like [`to_set`], for `set`: reading the variable before its `set` has run logs a warning
/// (`uninitialized_variable_warn`).
///
/// # Errors
/// As [`to_set`].
pub fn to_assign(word: &Word, scope: &mut Scope) -> Result<VariableIndex, Problem> {
    let (name, is_part) = settable(word, scope)?;
    match is_part {
        true => scope.intern(name, Some(&word.place())),
        false => scope.assign(name, &word.place()),
    }
    .map_err(|problem| problem.at(0))
}

/// The name of a settable variable, and whether it is a part of the request.
fn settable<'a>(word: &'a Word, scope: &Scope) -> Result<(&'a str, bool), Problem> {
    let name = name_of(word).map_err(|problem| problem.at(0))?;
    match scope.built_in(&name.to_ascii_lowercase()) {
        Some(Assignable::Never) => {
            Err(Problem::new(format!("the duplicate \"{name}\" variable")).at(0))
        }
        Some(Assignable::Request) => Ok((name, true)),
        Some(Assignable::Value) | None => Ok((name, false)),
    }
}

fn source_and_target(
    block: &Directive,
    scope: &mut Scope,
) -> Result<(Template, VariableIndex), Error> {
    let [source, target] = &block.args[..] else {
        return Err(block.error(&Problem::argument_count("map")));
    };
    let source = Template::of_word(source, scope).map_err(|problem| block.error(&problem.at(0)))?;
    let index = made_by(target, scope).map_err(|problem| block.error(&problem.at(1)))?;
    Ok((source, index))
}

/// The variable that a block defines.
fn made_by(word: &Word, scope: &mut Scope) -> Result<VariableIndex, Problem> {
    let name = name_of(word)?;
    if scope.built_in(name) == Some(Assignable::Never) {
        return Err(Problem::new(format!("the duplicate \"{name}\" variable")));
    }
    scope.define(name, &word.place())
}

/// The name in `$name`.
fn name_of(word: &Word) -> Result<&str, Problem> {
    let name = word
        .bytes()
        .strip_prefix(b"$")
        .filter(|name| !name.is_empty());
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    name.ok_or_else(|| Problem::new(format!("invalid variable name \"{}\"", word.display())))
}

fn add_to_map(
    map: &mut Map<Template, Regex>,
    key: &[u8],
    word: &Word,
    value: Template,
    scope: &mut Scope,
) -> Result<(), Problem> {
    let problem = |found: map::Problem| Problem::new(found.to_string());
    match Key::new(key) {
        Key::Default => map.set_default(value).map_err(problem),
        Key::Name(name) => map.add_name(name, value).map_err(problem),
        Key::Regex { pattern, caseless } => {
            let pattern = String::from_utf8_lossy(pattern);
            let regex = Regex::of_configuration(&pattern, caseless, word, scope)?;
            map.add_regex(regex, value).map_err(problem)
        }
    }
}

impl Request {
    /// Sets a variable, for a line of the configuration ([`to_set`]).
    pub fn assign(&mut self, index: VariableIndex, value: Bytes) {
        match self.settings().variable(index) {
            Definition::Part(_, assign) => (*assign)(self, value),
            _ => self.remember(index, Some(value)),
        }
    }

    /// Whether a variable's value is computed on first use and stays the same from then on.
    #[must_use]
    pub fn is_asked_for_once(&self, index: VariableIndex) -> bool {
        match self.settings().variable(index) {
            Definition::BuiltIn(_)
            | Definition::Part(..)
            | Definition::Member(..)
            | Definition::Settable(_) => false,
            Definition::Map(source) => !source.is_volatile,
            Definition::Geo(geo) => !geo.is_volatile,
            Definition::Memo(_)
            | Definition::Split(_)
            | Definition::Group
            | Definition::Assigned(_) => true,
        }
    }

    /// Whether a value has more than [`VALUE_BYTES_MAX`] bytes; if so, that is logged.
    pub fn is_too_long(&self, value: &[u8]) -> bool {
        let is_too_long = value.len() > VALUE_BYTES_MAX;
        if is_too_long {
            self.log(Level::Error, &|out| {
                let sentence = format!("a value is longer than {VALUE_BYTES_MAX} bytes");
                out.extend_from_slice(sentence.as_bytes());
            });
        }
        is_too_long
    }

    /// Appends the value of a variable by its lower-case name, whether or not the configuration uses it; `false` if
    /// it has none.
    pub fn append_named(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok(name) = std::str::from_utf8(name) else {
            return false;
        };
        if let Some(index) = self.settings().variable_names.get(name) {
            return self.append_variable(*index, out);
        }
        let Some((entry, rest)) = self.settings().variable_tables.find(name) else {
            return false;
        };
        match entry.value {
            Value::Fresh(append) => append(self, out),
            Value::Memo(make) => append(make(self), out),
            Value::Family(append) => append(self, rest.as_bytes(), out),
        }
    }

    /// Appends a variable's value; `false` when it has none.
    pub fn append_variable(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool {
        if self.depth.get() == DEPTH_MAX {
            self.log(Level::Error, &|out| {
                out.extend_from_slice(b"cycle while evaluating a variable")
            });
            return false;
        }
        self.depth.set(self.depth.get() + 1);
        let is_found = self.look_up(index, out);
        self.depth.set(self.depth.get() - 1);
        is_found
    }

    fn look_up(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool {
        self.look_up_as(index, self.settings().variable(index), out)
    }

    fn look_up_as(&self, index: VariableIndex, definition: &Definition, out: &mut Vec<u8>) -> bool {
        match definition {
            Definition::BuiltIn(append) | Definition::Part(append, _) => append(self, out),
            Definition::Memo(make) => append(self.once(index, || make(self)), out),
            Definition::Member(append, rest) => append(self, rest, out),
            Definition::Group => append(self.remembered(index).flatten(), out),
            Definition::Assigned(name) => append(self.once(index, || self.unassigned(name)), out),
            Definition::Settable(own) => match self.remembered(index) {
                Some(known) => append(known, out),
                None => self.look_up_as(index, own, out),
            },
            Definition::Map(source) if source.is_volatile => match self.remembered(index) {
                // Set by a `set`.
                Some(known) => append(known, out),
                None => append(self.map(source), out),
            },
            Definition::Map(source) => append(self.once(index, || self.map(source)), out),
            Definition::Geo(geo) if geo.is_volatile && self.remembered(index).is_none() => {
                append(Some(self.geo(geo)), out)
            }
            Definition::Geo(geo) => append(self.once(index, || Some(self.geo(geo))), out),
            Definition::Split(source) => append(self.once(index, || self.split(source)), out),
        }
    }

    /// A variable that no `set` has reached is empty.
    fn unassigned(&self, name: &str) -> Option<Bytes> {
        let messages = &self.location().settings.rewrite_messages;
        if messages.uninitialized_variable_warn {
            self.log(Level::Warn, &|out| {
                out.extend_from_slice(b"using uninitialized \"");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\" variable");
            });
        }
        Some(Bytes::new())
    }

    fn once(&self, index: VariableIndex, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if let Some(known) = self.remembered(index) {
            return known;
        }
        let value = make();
        self.remember(index, value.clone());
        value
    }

    fn map(&self, source: &MapSource) -> Option<Bytes> {
        let text = self.evaluate(&source.source);
        let matches = |regex: &Regex, subject: &[u8]| match regex.captures(subject) {
            Some(spans) => {
                self.capture(regex, &text.slice_ref(subject), spans);
                true
            }
            None => false,
        };
        let value = source.map.find(&text, matches);
        let value = value.map_or_else(Bytes::new, |template| self.evaluate(template));
        (!self.is_too_long(&value)).then_some(value)
    }

    fn geo(&self, geo: &Geo) -> Bytes {
        let own = match geo.address {
            None => self.client.peer,
            Some(variable) => {
                let mut text = Vec::new();
                self.append_variable(variable, &mut text);
                match geo::parse_address(&text) {
                    Some(address) => Some(SocketAddr::new(address, 0)),
                    None => return geo.find(None),
                }
            }
        };
        let named = || {
            let lines: SmallVec<[&[u8]; 4]> = self.head.get_each(HeaderId::XForwardedFor).collect();
            trusted_proxies::find(own, &lines, &geo.proxies, geo.is_recursive)
        };
        geo.find(named().or(own).map(|address| address.ip()))
    }

    fn split(&self, source: &SplitSource) -> Option<Bytes> {
        source.parts.choose(&self.evaluate(&source.source)).cloned()
    }
}

fn append(value: Option<Bytes>, out: &mut Vec<u8>) -> bool {
    match value {
        Some(value) => {
            out.extend_from_slice(&value);
            true
        }
        None => false,
    }
}
