//! nginx's configuration language.
//!
//! Pure: it opens, resolves and binds nothing.

mod args;
mod context;
pub mod known;

pub use args::{ANY, Args, FLAG};
pub use context::Context;
