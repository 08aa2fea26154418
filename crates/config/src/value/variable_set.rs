//! Some of a configuration's variables.

use crate::value::scope::VariableIndex;
use crate::value::template::Template;

/// A set of variables; at most as long as the configuration has some.
#[derive(Debug, Default)]
pub struct VariableSet(Vec<bool>);

impl VariableSet {
    /// Adds one.
    pub fn insert(&mut self, index: VariableIndex) {
        let at = index.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, false);
        }
        self.0[at] = true;
    }

    /// Whether there is none in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this one is in it.
    #[must_use]
    pub fn has(&self, index: VariableIndex) -> bool {
        self.0.get(index.0 as usize).is_some_and(|is_in| *is_in)
    }

    /// Whether a text has one of them.
    #[must_use]
    pub fn is_in(&self, text: &Template) -> bool {
        text.variables().any(|index| self.has(index))
    }
}
