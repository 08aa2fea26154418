//! The syntax: texts, words, the tree of directives, and messages that point into a text.
//!
//! Not here: which directives exist (`table`, `known`), and what their values mean (`value`).

pub(crate) mod error;
mod excerpt;
pub(crate) mod lexer;
pub(crate) mod lookalikes;
pub(crate) mod severity;
pub mod suggest;
pub(crate) mod text;
pub(crate) mod tree;
