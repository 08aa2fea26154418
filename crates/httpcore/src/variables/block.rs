//! Blocks of `http` that define a variable (`map`, `geo`, `split_clients`).
//!
//! Not here: the blocks themselves, which stand in their modules, and their list (`settings::tables`).

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Template, VariableIndex, Word};

use crate::request::Request;

/// The variable that a block defines.
pub trait Defined: Debug + Send + Sync {
    /// Its value for a request; `None`: it has none.
    fn value(&self, request: &Request) -> Option<Bytes>;

    /// The variables that the value is made of.
    fn sources(&self) -> &[VariableIndex];

    /// Whether the value is found anew at each use; otherwise the request remembers it.
    fn is_volatile(&self) -> bool {
        false
    }
}

/// A block's variable and its definition.
pub type Definition = (VariableIndex, Arc<dyn Defined>);

/// A kind of block that defines a variable.
#[derive(Debug, Clone, Copy)]
pub struct VariableBlock {
    /// The directive.
    pub name: &'static str,
    /// Reads a block; the error is the first one in it, with its place.
    pub read: fn(&Directive, &mut Scope) -> Result<Definition, Error>,
}

/// The two arguments of a block: the text whose value decides, and the variable that is defined.
///
/// # Errors
/// One of them is invalid, or the variable exists already.
pub fn source_and_target(
    block: &Directive,
    scope: &mut Scope,
) -> Result<(Template, VariableIndex), Error> {
    let [source, target] = &block.args[..] else {
        let name = block.name.display();
        return Err(block.error(&Problem::argument_count(&name)));
    };
    let source = Template::of_word(source, scope).map_err(|problem| block.error(&problem.at(0)))?;
    let index = target_of(target, scope).map_err(|problem| block.error(&problem.at(1)))?;
    Ok((source, index))
}

/// The variable that a block defines.
///
/// # Errors
/// Not a name of a variable, or one that the configuration may not define.
pub fn target_of(word: &Word, scope: &mut Scope) -> Result<VariableIndex, Problem> {
    scope.define(name_of(word)?, &word.place())
}

/// The name in `$name`.
///
/// # Errors
/// The word is no name of a variable.
pub fn name_of(word: &Word) -> Result<&str, Problem> {
    let name = word
        .bytes()
        .strip_prefix(b"$")
        .filter(|name| !name.is_empty());
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    name.ok_or_else(|| Problem::new(format!("invalid variable name \"{}\"", word.display())))
}
