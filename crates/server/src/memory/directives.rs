//! `memory_budget`.
//!
//! Not here: what it bounds ([`super::watch`]). Invariant: a size is at least one byte.

use config::{Offset, Problem, Scope, Value, Word};

/// How much memory the worker may take beside the kernel's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryBudget {
    /// Three quarters of the least limit.
    #[default]
    Auto,
    /// So many bytes.
    Bytes(u64),
}

impl Value for MemoryBudget {
    const SYNTAX: &'static str = "size | auto";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        if args[0] == "auto" {
            return Ok(Self::Auto);
        }
        match Offset::parse(args, scope) {
            Ok(Offset(bytes)) if bytes > 0 => Ok(Self::Bytes(bytes)),
            Ok(_) => Err(Problem::directive("invalid value").at(0).hint_that(
                "without any memory nobody can be served; \"auto\" follows the machine",
            )),
            Err(problem) => Err(problem),
        }
    }
}
