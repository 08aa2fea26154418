//! Directive tables as data: what the grammar checks by, and what the manual is made of.

use crate::args::Args;
use crate::context::Context;

/// On which levels a group of directives is set: the chain along which it is inherited, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Outside of every block.
    Main,
    /// `events`.
    Events,
    /// `http` alone.
    Http,
    /// `http`, then `server`.
    Server,
    /// `http`, `server`, `location` (and `if`, `limit_except`), as deep as they are nested.
    Location,
    /// `upstream`.
    Upstream,
    /// `stream`, then its `server`.
    Stream,
}

/// What a level gets from the one around it when both set a directive, or only the outer one does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// The inner one's value, else the outer one's.
    Normal,
    /// Only the inner one's.
    Never,
    /// The outer one's lines and then the inner one's.
    Append,
    /// What the value makes of both; its text says what that is.
    Joined,
}

/// One directive.
#[derive(Clone, Debug)]
pub struct DirectiveEntry {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub contexts: Context,
    /// How many arguments it takes, and whether a block follows.
    pub args: Args,
    /// The context inside its block.
    pub inner: Option<Context>,
    /// Its default in the user's syntax; `None` when it has none.
    pub default: Option<&'static str>,
    /// What a level gets from the one around it.
    pub inherit: Inherit,
    /// Its arguments as the manual shows them.
    pub syntax: &'static str,
    /// What it does, in Markdown.
    pub doc: &'static str,
}

/// A group of directives.
#[derive(Clone, Debug)]
pub struct Table {
    /// The group's name, such as `StaticFiles`.
    pub name: &'static str,
    /// What the group is about, in Markdown; its first sentence is the heading in the manual.
    pub doc: &'static str,
    /// Where it is set and how it is inherited.
    pub level: Level,
    /// Its directives, in the order declared.
    pub entries: Vec<DirectiveEntry>,
}

impl Table {
    /// Its entries of this name: a name may mean different things in different contexts.
    pub fn named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a DirectiveEntry> {
        self.entries
            .iter()
            .filter(move |entry| entry.name.as_bytes() == name)
    }
}
