//! Groups of directives: their tables, and how their values are set, inherited and finished.
//!
//! A level of the configuration (`http`, a server, a location) has one `Raw` of each group: the lines written at that
//! level alone. After the whole tree is read, each level is merged with the one around it and then finished: whatever
//! is still unset gets its default. The order of lines therefore never matters, as in nginx.

pub(crate) mod group;
mod macros;
pub(crate) mod own;

use crate::syntax::error::Error;
use crate::syntax::tree::Directive;
use crate::table::DirectiveTable;
use crate::value::scope::Scope;

/// A group of directives, or several groups together.
pub trait Section: Sized {
    /// The lines of one level.
    type Raw: Clone + Default + std::fmt::Debug;

    /// Whether a level without lines of its own has exactly its parent's values, so that both can share them.
    const IS_INHERITED_WHOLE: bool = false;

    /// The tables of its directives.
    fn tables() -> Vec<&'static DirectiveTable>;

    /// Sets the value of a directive. `Ok(false)`: the directive is not one of this group.
    ///
    /// # Errors
    /// A wrong value, or a second line of a directive that may occur only once; with its place.
    fn set(raw: &mut Self::Raw, directive: &Directive, scope: &mut Scope) -> Result<bool, Error>;

    /// The values in force at the inner level.
    #[must_use]
    fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw;

    /// Fills in the defaults. Done once at the outermost level, it spares every inner level the work; each slot's place
    /// still tells which values were written.
    ///
    /// # Errors
    /// A default that its own type refuses: a mistake in the table, which its tests find.
    fn fill(raw: &mut Self::Raw, scope: &mut Scope) -> Result<(), Error>;

    /// Returns the final values.
    ///
    /// # Errors
    /// As [`Section::fill`].
    fn finish(raw: Self::Raw, scope: &mut Scope) -> Result<Self, Error>;
}

/// A group whose directives exist under other names too: several modules of nginx have the same directives, each with a
/// prefix of its own.
pub trait Renamed: Section {
    /// As [`Section::set`], for a directive that stands in for the one of this name.
    ///
    /// # Errors
    /// As [`Section::set`]; the messages name the directive as it is written.
    fn set_as(
        raw: &mut Self::Raw,
        name: &[u8],
        directive: &Directive,
        scope: &mut Scope,
    ) -> Result<bool, Error>;
}
