//! A directive without a value: it is given or not.

use config::{Problem, Scope, Value, Word};

/// A directive that is given.
#[derive(Debug, Clone, Copy)]
pub struct Given;

impl Value for Given {
    const SYNTAX: &'static str = "";

    fn parse(_: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        Ok(Self)
    }

    /// A second line is the same as one.
    fn set(slot: &mut Option<Self>, _: &[Word], _: &mut Scope) -> Result<(), Problem> {
        *slot = Some(Self);
        Ok(())
    }
}
