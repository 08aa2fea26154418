//! All errors of a configuration at once: what is wrong is taken out of the tree, so that the rest can be judged.
//!
//! Not here: what is an error ([`Grammar`], the values). Invariant: nothing is served of a tree that something was taken
//! out of; it is for reports only.

use std::path::Path;
use std::sync::Arc;

use crate::advice;
use crate::grammar::{Fault, Grammar};
use crate::load::{self, TextSource};
use crate::syntax::error::Error;
use crate::syntax::text::TextPlace;
use crate::syntax::tree::{Directive, Tree};

/// Reads what can be read of the file `root` and everything that it includes, and takes out what the grammar refuses.
/// Returns the rest, the errors in the order of the text, and the warnings. An error of syntax ends the text.
#[must_use]
pub fn load_with_faults(
    root: &Path,
    source: &mut dyn TextSource,
    grammar: &Grammar,
) -> (Tree, Vec<Fault>, Vec<Error>) {
    let (mut tree, outcome) = load::read(root, None, source);
    let (mut faults, warnings) = grammar.take_faulty(&mut tree);
    if let Err(error) = outcome {
        faults.push(Fault {
            error: advice::add(error),
            directive: None,
        });
    }
    (tree, faults, warnings)
}

impl Tree {
    /// Takes out the innermost directive at this place, wherever the same file is included. `None`: there is none.
    pub fn take_at(&mut self, place: &TextPlace) -> Option<Directive> {
        take_at(&mut self.directives, place)
    }
}

/// The nesting is bounded by [`BLOCKS_DEEP_MAX`](crate::BLOCKS_DEEP_MAX).
fn take_at(directives: &mut Vec<Directive>, place: &TextPlace) -> Option<Directive> {
    let mut taken = None;
    for directive in directives.iter_mut() {
        let inner = directive.block.as_mut();
        taken = inner.and_then(|block| take_at(block, place)).or(taken);
    }
    if taken.is_some() {
        return taken;
    }
    directives.retain(|directive| {
        let is_it = holds(directive, place);
        if is_it {
            taken = Some(directive.clone());
        }
        !is_it
    });
    taken
}

fn holds(directive: &Directive, place: &TextPlace) -> bool {
    let own = directive.place();
    let is_inside =
        (own.span.start..own.span.end.max(own.span.start + 1)).contains(&place.span.start);
    Arc::ptr_eq(&own.text, &place.text) && is_inside
}
