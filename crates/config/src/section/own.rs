//! Groups of directives that are found by their type among all groups of a level.
//!
//! A program has one list of all groups; a module below that list finds its own without naming it. Invariant: the list
//! makes its groups known before it has values ([`sections!`](crate::sections), `register`).

use std::any::Any;
use std::fmt::Debug;
use std::sync::OnceLock;

/// The values of all groups of a level.
pub trait Groups: Any + Debug + Send + Sync {}

/// Finds one group in the program's list of groups.
pub type Finder<S> = OnceLock<for<'a> fn(&'a (dyn Groups + 'static)) -> &'a S>;

/// A group that is found by its type; implemented by [`directives!`](crate::directives) and [`own!`](crate::own).
pub trait Own: Any + Send + Sync {
    /// Finds it, once the list of groups is known.
    fn finder() -> &'static Finder<Self>
    where
        Self: Sized;
}

/// The reason why a group is found.
const LISTED: &str = "every group that a module asks for stands in the program's list of groups";

impl dyn Groups {
    /// The values of one group: an indirect call and a comparison of types.
    ///
    /// # Panics
    /// The group is not in the list: a mistake in the program.
    #[inline]
    #[must_use]
    pub fn own<S: Own>(&self) -> &S {
        S::finder().get().expect(LISTED)(self)
    }
}

/// Lets groups that are not made by [`directives!`](crate::directives) be found by their types.
#[macro_export]
macro_rules! own {
    ($($Section:ty),+ $(,)?) => {
        $(impl $crate::Own for $Section {
            #[inline]
            fn finder() -> &'static $crate::Finder<Self> {
                static FINDER: $crate::Finder<$Section> = $crate::Finder::new();
                &FINDER
            }
        })+
    };
}
