//! Variables: the definition of each name, and its value for a request.
//!
//! Not here: which variables are built in: each module has a [`table`] of those that it knows. Those of the core are in
//! [`connection`], [`environment`], [`request`], [`response`] and [`tls`]. Invariant: after [`Definitions::finish`] every
//! index that the configuration uses has a definition, so that asking for a value cannot fail.

pub mod append;
pub mod block;
pub mod connection;
pub mod environment;
pub mod memo;
pub mod request;
pub mod response;
pub mod table;
pub mod tls;

use std::sync::Arc;

use bytes::Bytes;
use config::{Assignable, Directive, Error, Problem, Scope, VariableIndex, Word};
use logs::Level;

use crate::request::Request;
use block::{Defined, VariableBlock, name_of};
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
    /// Defined by a block (`map`).
    Block(Arc<dyn Defined>),
    /// The same; found anew at each use, unless `set` gave it another value.
    VolatileBlock(Arc<dyn Defined>),
    /// A named group of a regular expression: set by the last match.
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
            Definition::VolatileBlock(block) => match self.remembered(index) {
                // Set by a `set`.
                Some(known) => append(known, out),
                None => append(block.value(self), out),
            },
            Definition::Block(block) => append(self.once(index, || block.value(self)), out),
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
