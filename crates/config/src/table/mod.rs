//! Directive tables as data: the grammar checks against them, and the manual is generated from them.

pub(crate) mod args;
mod blocks;
pub(crate) mod context;

use args::Args;
use context::Context;

/// The levels at which a group of directives can be set: the chain along which it is inherited, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InheritanceLevel {
    /// Outside of all blocks.
    Main,
    /// `events`.
    Events,
    /// Only `http`.
    Http,
    /// `http`, then `server`.
    Server,
    /// `http`, `server`, `location` (and `if`, `limit_except`), as deeply as they are nested.
    Location,
    /// `upstream`.
    Upstream,
    /// `stream`, then its `server`.
    Stream,
}

/// How an inner level inherits a directive from the one around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// The inner level's value, or else the outer level's.
    Normal,
    /// Only the inner level's value.
    Never,
    /// The outer level's lines followed by the inner level's.
    Append,
    /// A combination that the value's type makes of both; its text describes it.
    Joined,
}

/// One directive.
#[derive(Clone, Debug)]
pub struct DirectiveEntry {
    /// Its name.
    pub name: &'static str,
    /// The contexts in which it may be used.
    pub contexts: Context,
    /// The number of arguments, and whether it has a block.
    pub args: Args,
    /// The context inside its block.
    pub inner: Option<Context>,
    /// Its default in the configuration's syntax; `None` if it has none.
    pub default: Option<&'static str>,
    /// How it is inherited.
    pub inherit: Inherit,
    /// Its arguments as the manual shows them.
    pub syntax: &'static str,
    /// Its description in Markdown.
    pub doc: &'static str,
}

/// A group of directives.
#[derive(Clone, Debug)]
pub struct DirectiveTable {
    /// The group's name, such as `StaticFiles`.
    pub name: &'static str,
    /// The description of the group in Markdown; its first sentence becomes the heading in the manual.
    pub doc: &'static str,
    /// The levels at which it can be set and along which it is inherited.
    pub level: InheritanceLevel,
    /// Its directives, in the order of declaration.
    pub entries: Vec<DirectiveEntry>,
}

impl DirectiveTable {
    /// The entries with this name: a name may have different meanings in different contexts.
    pub fn named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a DirectiveEntry> {
        self.entries
            .iter()
            .filter(move |entry| entry.name.as_bytes() == name)
    }
}
