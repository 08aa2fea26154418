//! Variables: the definition of each name, and its value for a request.
//!
//! Not here: which variables are built in: each module has a [`table`] of those that it knows. Those of the core are in
//! [`connection`], [`environment`], [`request`], [`response`] and [`tls`]. Invariant: after [`Definitions::finish`] every
//! index that the configuration uses has a definition, so that asking for a value cannot fail.

pub mod append;
pub mod block;
pub mod connection;
pub mod environment;
pub mod request;
pub mod response;
pub mod table;
pub mod tls;

use std::sync::Arc;

use bytes::Bytes;
use config::made::WHOLE;
use config::{
    Assignable, Directive, Error, Problem, Scope, Template, VariableIndex, VariableSet, Word,
};
use hashbrown::HashMap;
use logs::Level;
use logs::template::{self, Variables};
use slots::slotted;

use crate::request::Request;
use crate::request::memo::VALUE_BYTES_MAX;
use crate::settings::Settings;
use block::{Defined, VariableBlock, name_of};
use table::{Append, AppendMember, Assign, Change, Make, Value, VariableTables};

/// Maximum depth to which variables may be made of variables.
pub const DEPTH_MAX: u32 = 100;

/// Maximum depth to which variables are made of variables where a cycle has been found: enough for one made of another, and
/// so little that what is left of the cycle ends soon, however many variables each text of it has.
const DEPTH_OF_CYCLE_MAX: u32 = 2;

/// The definition of a variable.
#[derive(Debug, Clone)]
pub enum Definition {
    /// Built in: found anew at each use.
    BuiltIn(Append),
    /// The same, and `set` changes the request itself.
    Part(Append, Assign),
    /// Such a part whose name the configuration defines, too: found as defined there, and `set` still changes the request.
    DefinedPart(Box<Definition>, Assign),
    /// Built in: made on first use; the request remembers the value.
    Memo(Make),
    /// Built in: a member of a family; the rest of its name selects it.
    Member(AppendMember, Box<[u8]>),
    /// Defined by a block (`map`).
    Block(Arc<dyn Defined>),
    /// The same; found anew at each use, unless `set` gave it another value.
    VolatileBlock(Arc<dyn Defined>),
    /// Without a value until it is given one: a named group of a regular expression by the last match, a variable of
    /// `auth_request_set`.
    Group,
    /// A variable with this name that only `set` gives a value.
    Assigned(Box<str>),
    /// A variable that is built in, unless `set` gave it another value.
    Settable(Box<Definition>),
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

    /// The block that defines it.
    fn block(&self) -> Option<&Arc<dyn Defined>> {
        match self {
            Self::Block(block) | Self::VolatileBlock(block) => Some(block),
            Self::DefinedPart(defined, _) => defined.block(),
            _ => None,
        }
    }

    /// That of a built-in variable whose name the configuration defines in another way than by `set`: what the request
    /// has by that name does not count.
    fn instead_of(own: &Self, defined: Self) -> Self {
        match own {
            Self::Part(_, assign) | Self::DefinedPart(_, assign) => {
                Self::DefinedPart(Box::new(defined), *assign)
            }
            _ => defined,
        }
    }
}

/// The definitions of a configuration that is being read.
#[derive(Debug, Default)]
pub struct Definitions {
    made: Vec<(VariableIndex, Definition)>,
}

impl Definitions {
    /// Reads a block that defines a variable.
    ///
    /// # Errors
    /// An error in the block, with its place.
    pub fn read(
        &mut self,
        kind: &VariableBlock,
        block: &Directive,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let (target, defined) = (kind.read)(block, scope)?;
        let definition = match defined.is_volatile() {
            true => Definition::VolatileBlock(defined),
            false => Definition::Block(defined),
        };
        self.made.push((target, definition));
        Ok(())
    }

    /// The variables that the configuration uses; `tables` has those that are built in.
    ///
    /// # Errors
    /// `unknown "x" variable`.
    pub fn finish(self, tables: VariableTables, scope: &Scope) -> Result<DefinedVariables, Error> {
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
                match Definition::built_in(&tables, &variable.name) {
                    Some(own) if scope.is_only_assigned(index) => {
                        Definition::Settable(Box::new(own))
                    }
                    Some(own) if scope.is_defined(index) => {
                        Definition::instead_of(&own, Definition::Group)
                    }
                    Some(own) => own,
                    None if scope.is_only_assigned(index) => {
                        Definition::Assigned(variable.name.as_str().into())
                    }
                    None => Definition::Group,
                }
            })
            .collect();
        for (index, definition) in self.made {
            let place = &mut all[index.0 as usize];
            *place = Definition::instead_of(place, definition);
        }
        let names = scope.variables().iter().zip(0..);
        let names = names
            .map(|(variable, index)| (variable.name.as_str().into(), VariableIndex(index)))
            .collect();
        Ok(DefinedVariables {
            definitions: all,
            names,
            tables,
        })
    }
}

/// The variables of a configuration.
#[derive(Debug, Default)]
pub struct DefinedVariables {
    /// Their definitions, by index.
    definitions: Vec<Definition>,
    /// Their indices by name, in lower case.
    names: HashMap<Box<str>, VariableIndex>,
    /// Those that are built in, whether or not the configuration uses them.
    tables: VariableTables,
}

slotted!(WHOLE: DefinedVariables);

impl DefinedVariables {
    /// Those of a configuration.
    #[must_use]
    pub fn of(settings: &Settings) -> &Self {
        settings.made()
    }

    /// Those that are built in.
    #[must_use]
    pub fn built_in(&self) -> &VariableTables {
        &self.tables
    }

    /// The variable of this name and those that are made of it by blocks (`map`), by way of others, too; none if the configuration does
    /// not use it.
    #[must_use]
    pub fn made_of(&self, name: &str) -> VariableSet {
        let Some(first) = self.names.get(name) else {
            return VariableSet::default();
        };
        let mut set = VariableSet::default();
        set.insert(*first);
        let mut is_grown = true;
        while is_grown {
            is_grown = false;
            for (at, definition) in self.definitions.iter().enumerate() {
                let Some(block) = definition.block() else {
                    continue;
                };
                let index = VariableIndex(at as u32);
                if !set.has(index) && block.sources().iter().any(|source| set.has(*source)) {
                    set.insert(index);
                    is_grown = true;
                }
            }
        }
        set
    }

    /// A variable's name, in lower case; for messages, since it is searched for.
    fn name(&self, index: VariableIndex) -> &str {
        let mut names = self.names.iter();
        let found = names.find(|(_, known)| **known == index);
        found.map_or("", |(name, _)| name)
    }

    fn definition(&self, index: VariableIndex) -> &Definition {
        &self.definitions[index.0 as usize]
    }
}

/// The variable that a line of the configuration sets: a new one, or a settable one.
///
/// # Errors
/// Not a name of a variable, or one whose value comes from elsewhere.
pub fn to_set(word: &Word, scope: &mut Scope) -> Result<VariableIndex, Problem> {
    let (name, known) = settable(word, scope)?;
    match known {
        Some(Assignable::Request) => scope.intern(name, Some(&word.place())),
        // It keeps the value that it has until it is set.
        Some(_) => scope.assign(name, &word.place()),
        None => scope.define(name, &word.place()),
    }
    .map_err(|problem| problem.at(0))
}

/// Like [`to_set`], for `set`: reading the variable before its `set` has run logs a warning
/// (`uninitialized_variable_warn`).
///
/// # Errors
/// As [`to_set`].
pub fn to_assign(word: &Word, scope: &mut Scope) -> Result<VariableIndex, Problem> {
    let (name, known) = settable(word, scope)?;
    match known {
        Some(Assignable::Request) => scope.intern(name, Some(&word.place())),
        _ => scope.assign(name, &word.place()),
    }
    .map_err(|problem| problem.at(0))
}

/// The name of a settable variable, and what may be done with it if it is built in.
fn settable<'a>(word: &'a Word, scope: &Scope) -> Result<(&'a str, Option<Assignable>), Problem> {
    let name = name_of(word).map_err(|problem| problem.at(0))?;
    match scope.built_in(name) {
        Some(Assignable::Never) => {
            Err(Problem::new(format!("the duplicate \"{name}\" variable")).at(0))
        }
        known => Ok((name, known)),
    }
}

impl Request {
    /// Expands a template for this request.
    #[must_use]
    pub fn evaluate(&self, template: &Template) -> Bytes {
        match template.literal() {
            Some(literal) => literal.clone(),
            None => template::expand(template, &Values::of(self)),
        }
    }

    /// Appends the expansion of a template for this request.
    pub fn evaluate_into(&self, template: &Template, out: &mut Vec<u8>) {
        match template.literal() {
            Some(literal) => out.extend_from_slice(literal),
            None => template::evaluate(template, &Values::of(self), out),
        }
    }

    /// Sets a variable, for a line of the configuration ([`to_set`]).
    pub fn assign(&mut self, index: VariableIndex, value: Bytes) {
        match DefinedVariables::of(self.settings()).definition(index) {
            Definition::Part(_, assign) | Definition::DefinedPart(_, assign) => {
                (*assign)(self, value);
            }
            _ => self.remember(index, Some(value)),
        }
    }

    /// Whether a variable's value is computed on first use and stays the same from then on.
    #[must_use]
    pub fn is_asked_for_once(&self, index: VariableIndex) -> bool {
        match DefinedVariables::of(self.settings()).definition(index) {
            Definition::BuiltIn(_)
            | Definition::Part(..)
            | Definition::DefinedPart(..)
            | Definition::Member(..)
            | Definition::VolatileBlock(_)
            | Definition::Settable(_) => false,
            Definition::Memo(_)
            | Definition::Block(_)
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
        let defined = DefinedVariables::of(self.settings());
        if let Some(index) = defined.names.get(name) {
            return self.append_variable(*index, out);
        }
        let Some((entry, rest)) = defined.tables.find(name) else {
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
        Values::of(self).variable(index, out)
    }
}

impl Variables for Request {
    fn variable(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool {
        self.append_variable(index, out)
    }

    fn capture(&self, number: u8, out: &mut Vec<u8>) {
        self.append_captured(number, out);
    }
}

/// The values of a request's variables. Its configuration is asked for them once, however many a text has.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    request: &'a Request,
    defined: &'a DefinedVariables,
}

impl<'a> Values<'a> {
    /// Those of a request.
    #[must_use]
    pub fn of(request: &'a Request) -> Self {
        Self {
            request,
            defined: DefinedVariables::of(request.settings()),
        }
    }
}

impl Variables for Values<'_> {
    fn variable(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool {
        let request = self.request;
        let depth = request.depth.get();
        if depth == DEPTH_MAX {
            if request.is_cycle.replace(true) {
                return false;
            }
            request.log(Level::Error, &|out| {
                out.extend_from_slice(b"cycle while evaluating variable \"");
                out.extend_from_slice(self.defined.name(index).as_bytes());
                out.push(b'"');
            });
            return false;
        }
        let begun = match request.is_cycle.get() {
            true => depth.max(DEPTH_MAX - DEPTH_OF_CYCLE_MAX),
            false => depth,
        };
        request.depth.set(begun + 1);
        let is_found = append_as(request, index, self.defined.definition(index), out);
        request.depth.set(depth);
        if depth == 0 {
            request.is_cycle.set(false);
        }
        is_found
    }

    fn capture(&self, number: u8, out: &mut Vec<u8>) {
        self.request.append_captured(number, out);
    }
}

fn append_as(
    request: &Request,
    index: VariableIndex,
    definition: &Definition,
    out: &mut Vec<u8>,
) -> bool {
    match definition {
        Definition::BuiltIn(append) | Definition::Part(append, _) => append(request, out),
        Definition::DefinedPart(defined, _) => append_as(request, index, defined, out),
        Definition::Memo(make) => append(once(request, index, || make(request)), out),
        Definition::Member(append, rest) => append(request, rest, out),
        Definition::Group => append(request.remembered(index).flatten(), out),
        Definition::Assigned(name) => {
            append(once(request, index, || unassigned(request, name)), out)
        }
        Definition::Settable(own) => match request.remembered(index) {
            Some(known) => append(known, out),
            None => append_as(request, index, own, out),
        },
        Definition::VolatileBlock(block) => match request.remembered(index) {
            // Set by a `set`.
            Some(known) => append(known, out),
            None => append(block.value(request), out),
        },
        Definition::Block(block) => append(once(request, index, || block.value(request)), out),
    }
}

/// A variable that no `set` has reached is empty.
fn unassigned(request: &Request, name: &str) -> Option<Bytes> {
    let messages = &request.location().settings.rewrite_messages;
    if messages.uninitialized_variable_warn {
        request.log(Level::Warn, &|out| {
            out.extend_from_slice(b"using uninitialized \"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\" variable");
        });
    }
    Some(Bytes::new())
}

fn once(
    request: &Request,
    index: VariableIndex,
    make: impl FnOnce() -> Option<Bytes>,
) -> Option<Bytes> {
    if let Some(known) = request.remembered(index) {
        return known;
    }
    let value = make();
    request.remember(index, value.clone());
    value
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
