//! State shared by the values of a configuration while they are parsed: names of variables and of zones of shared memory,
//! and warnings.
//!
//! Not here: the variables themselves. The server knows what they mean, and says which names are built in before
//! anything is parsed. It checks every name once everything is parsed, so that a name may be used before the line that
//! defines it.

use std::collections::HashMap;

use crate::syntax::error::{Error, Problem};
use crate::syntax::text::TextPlace;

/// Maximum number of variable names that a configuration may use.
pub const VARIABLES_MAX: usize = 65_536;

/// A variable's number: the index of its name in [`Scope::variables`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VariableIndex(pub u32);

/// A variable name used in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// The name without `$`, lower-cased: nginx's variables have no case.
    pub name: String,
    /// The position of its first use; `None` for a name that the server itself asked for.
    pub first_use: Option<TextPlace>,
}

/// How the configuration itself defines a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DefinedVariable {
    /// Only by lines that assign a value when they are executed.
    Assigned,
    /// In another way, too.
    Made,
}

/// What lines of the configuration may do with a variable that is built in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignable {
    /// Nothing.
    Never,
    /// Define it or set it: the value is remembered for the request.
    Value,
    /// The same, but setting it changes the request itself.
    Request,
}

/// Maximum number of errors that are told of one configuration.
pub const FAULTS_MAX: usize = 64;

/// Names of variables and zones, warnings and faults, collected while values are parsed.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    variables: Vec<Variable>,
    by_name: HashMap<String, VariableIndex>,
    warnings: Vec<Error>,
    faults: Vec<Error>,
    defined: HashMap<VariableIndex, DefinedVariable>,
    built_in: HashMap<&'static str, Assignable>,
    zones: HashMap<Vec<u8>, SharedZone>,
}

/// A zone of shared memory, as the lines that name it have it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SharedZone {
    /// The directive that such zones are declared by.
    owner: String,
    /// 0: no line has said it yet.
    bytes: u64,
}

impl Scope {
    /// A scope without names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of the variable with this name (without `$`, in any case), which is added if it is new.
    ///
    /// # Errors
    /// More than [`VARIABLES_MAX`] names.
    pub fn intern(
        &mut self,
        name: &str,
        used_at: Option<&TextPlace>,
    ) -> Result<VariableIndex, Problem> {
        let name = name.to_ascii_lowercase();
        if let Some(known) = self.by_name.get(&name) {
            return Ok(*known);
        }
        let number = self.variables.len();
        if number == VARIABLES_MAX {
            return Err(Problem::new(format!(
                "too many variables, there may be {VARIABLES_MAX}"
            )));
        }
        let index =
            VariableIndex(u32::try_from(number).expect("the number is below VARIABLES_MAX"));
        self.variables.push(Variable {
            name: name.clone(),
            first_use: used_at.cloned(),
        });
        self.by_name.insert(name, index);
        Ok(index)
    }

    /// As [`Scope::intern`], for a name that the configuration itself defines (a named group of a regular expression,
    /// the target of a `map`): from here on the name counts as known.
    ///
    /// # Errors
    /// As [`Scope::intern`]; a built-in variable that the configuration may not define.
    pub fn define(&mut self, name: &str, used_at: &TextPlace) -> Result<VariableIndex, Problem> {
        if self.built_in(name) == Some(Assignable::Never) {
            return Err(Problem::new(format!("the duplicate \"{name}\" variable")));
        }
        let index = self.intern(name, Some(used_at))?;
        self.defined.insert(index, DefinedVariable::Made);
        Ok(index)
    }

    /// As [`Scope::define`], for a name that gets its values from lines executed while a request is answered (`set`);
    /// it has no value before the first of them.
    ///
    /// # Errors
    /// As [`Scope::intern`].
    pub fn assign(&mut self, name: &str, used_at: &TextPlace) -> Result<VariableIndex, Problem> {
        let index = self.intern(name, Some(used_at))?;
        self.defined
            .entry(index)
            .or_insert(DefinedVariable::Assigned);
        Ok(index)
    }

    /// Declares a built-in variable, by its name in lower case.
    pub fn reserve(&mut self, name: &'static str, assignable: Assignable) {
        self.built_in.insert(name, assignable);
    }

    /// What may be done with a variable, by its name in any case; `None`: it is not built in.
    #[must_use]
    pub fn built_in(&self, name: &str) -> Option<Assignable> {
        self.built_in
            .get(name.to_ascii_lowercase().as_str())
            .copied()
    }

    /// Whether the configuration itself defines the variable.
    #[must_use]
    pub fn is_defined(&self, index: VariableIndex) -> bool {
        self.defined.contains_key(&index)
    }

    /// Whether only lines that assign to it (`set`) define the variable.
    #[must_use]
    pub fn is_only_assigned(&self, index: VariableIndex) -> bool {
        self.defined.get(&index) == Some(&DefinedVariable::Assigned)
    }

    /// The number of a name that was already used.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<VariableIndex> {
        self.by_name.get(&name.to_ascii_lowercase()).copied()
    }

    /// All names, in the order of their numbers.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The name of a variable of this scope.
    #[must_use]
    pub fn name_of(&self, index: VariableIndex) -> &str {
        self.variables
            .get(index.0 as usize)
            .map_or("", |variable| &variable.name)
    }

    /// Notes that a line names a zone of shared memory, and its size in bytes; 0: the line does not say it. `owner` is
    /// the directive that declares such zones: a name has one owner.
    ///
    /// # Errors
    /// nginx's sentence: the name has another use, or another size.
    pub fn name_zone(&mut self, name: &[u8], bytes: u64, owner: &str) -> Result<(), Problem> {
        let Some(known) = self.zones.get_mut(name) else {
            let owner = owner.to_owned();
            let zone = SharedZone { owner, bytes };
            self.zones.insert(name.to_vec(), zone);
            return Ok(());
        };
        let name = String::from_utf8_lossy(name);
        if known.owner != owner {
            return Err(Problem::new(format!(
                "the shared memory zone \"{name}\" is already declared for a different use"
            )));
        }
        if known.bytes == 0 {
            known.bytes = bytes;
        }
        if bytes != 0 && bytes != known.bytes {
            return Err(Problem::new(format!(
                "the size {bytes} of shared memory zone \"{name}\" conflicts with already declared size {}",
                known.bytes
            )));
        }
        Ok(())
    }

    /// Checks that every name is one that `is_known`; `near` suggests a name for one that is not.
    ///
    /// # Errors
    /// `unknown "x" variable`, at its first use; if there are several, the one that was used first, as in nginx.
    pub fn check<'a>(
        &self,
        mut is_known: impl FnMut(&str) -> bool,
        near: impl FnOnce(&str) -> Option<&'a str>,
    ) -> Result<(), Error> {
        let Some(unknown) = self
            .variables
            .iter()
            .find(|variable| !is_known(&variable.name))
        else {
            return Ok(());
        };
        let sentence = format!("unknown \"{}\" variable", unknown.name);
        let error = match &unknown.first_use {
            Some(place) => Error::at(sentence, place),
            None => Error::without_place(sentence),
        };
        let hint = near(&unknown.name).map(|near| format!("did you mean \"${near}\"?"));
        Err(error.with_hint(hint.as_deref()))
    }

    /// Records a warning.
    pub fn warn(&mut self, warning: Error) {
        self.warnings.push(warning.into_warning());
    }

    /// Takes the warnings recorded so far.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.warnings)
    }

    /// Records an error that refuses the configuration and does not hinder the search for others, each sentence at one
    /// place once; at most [`FAULTS_MAX`].
    pub fn fault(&mut self, error: Error) {
        let is_new = || {
            let told = error.to_string();
            self.faults.iter().all(|known| known.to_string() != told)
        };
        if self.faults.len() < FAULTS_MAX && is_new() {
            self.faults.push(error);
        }
    }

    /// Whether an error is recorded.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Takes the errors recorded so far.
    pub fn take_faults(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_one_use_and_one_size() {
        let mut scope = Scope::new();
        let mut name = |bytes, owner: &str| {
            let named = scope.name_zone(b"z", bytes, owner);
            named.map_err(|problem| problem.sentence_for(owner))
        };
        assert_eq!(name(0, "a"), Ok(()));
        assert_eq!(name(1024, "a"), Ok(()));
        assert_eq!(name(1024, "a"), Ok(()));
        assert_eq!(name(0, "a"), Ok(()));
        assert_eq!(
            name(2048, "a").unwrap_err(),
            "the size 2048 of shared memory zone \"z\" conflicts with already declared size 1024"
        );
        assert_eq!(
            name(1024, "b").unwrap_err(),
            "the shared memory zone \"z\" is already declared for a different use"
        );
    }
}
