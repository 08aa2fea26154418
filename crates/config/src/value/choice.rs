//! Values that are one or more words of a closed set.

use crate::syntax::error::Problem;
use crate::syntax::suggest;

/// The problem of a word outside of a closed set, for [`choices!`](crate::choices) and
/// [`choice_set!`](crate::choice_set).
#[must_use]
pub fn not_one_of(word: &[u8], known: &[&'static str]) -> Problem {
    let problem = Problem::new(format!(
        "invalid value \"{}\"",
        String::from_utf8_lossy(word)
    ))
    .at(0);
    match suggest::nearest(word, known.iter().copied()) {
        Some(near) => problem.hint_that(format!("did you mean \"{near}\"?")),
        None => problem.hint_that(format!("it must be one of: {}", known.join(", "))),
    }
}

/// Declares an enum for a directive that takes one of a set of words, in any case, as in nginx.
///
/// ```
/// config::choices! {
///     /// How dates are compared.
///     pub enum IfModifiedSince {
///         /// Never.
///         Off = "off",
///         /// To the second.
///         Exact = "exact",
///         /// Not newer.
///         Before = "before",
///     }
/// }
/// # fn main() { assert_eq!(IfModifiedSince::Exact.name(), "exact"); }
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* $vis:vis enum $Choice:ident {
        $($(#[$one_meta:meta])* $One:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $vis enum $Choice { $($(#[$one_meta])* $One,)+ }

        impl $Choice {
            /// The word that stands for it in a configuration.
            #[must_use]
            #[allow(dead_code)]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$One => $word,)+ }
            }
        }

        impl $crate::Value for $Choice {
            const SYNTAX: &'static str = $crate::joined!($($word),+);

            fn parse(
                args: &[$crate::Word],
                _scope: &mut $crate::Scope,
            ) -> ::core::result::Result<Self, $crate::Problem> {
                let word: &[u8] = args.first().map_or(&[], |word| &word.bytes()[..]);
                $(if word.eq_ignore_ascii_case($word.as_bytes()) { return Ok(Self::$One); })+
                Err($crate::not_one_of(word, &[$($word),+]))
            }
        }
    };
}

/// Declares a set of words, as bit flags, for a directive that takes one or more of them. A word given twice is a
/// warning. Several lines at one level make one set, as in nginx.
///
/// ```
/// config::choice_set! {
///     /// When the next server is tried.
///     pub struct NextUpstream: u32 {
///         /// The connection failed.
///         ERROR = "error",
///         /// It took too long.
///         TIMEOUT = "timeout",
///         /// Never.
///         OFF = "off",
///     }
/// }
/// # fn main() {
/// let set = NextUpstream::ERROR.or(NextUpstream::TIMEOUT);
/// assert!(set.contains(NextUpstream::ERROR) && !set.contains(NextUpstream::OFF));
/// # }
/// ```
#[macro_export]
macro_rules! choice_set {
    ($(#[$meta:meta])* $vis:vis struct $Set:ident: u32 {
        $($(#[$one_meta:meta])* $ONE:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        $vis struct $Set(u32);

        #[allow(dead_code)]
        impl $Set {
            /// Every word of the set with its flag, in the order of declaration.
            pub const WORDS: &'static [(Self, &'static str)] = &[$((Self::$ONE, $word)),+];
            $crate::choice_set!(@flags 0u32; $($(#[$one_meta])* $ONE)+);

            /// Whether every flag of `other` is set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The flags of both.
            #[must_use]
            pub const fn or(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl $crate::Value for $Set {
            const SYNTAX: &'static str = concat!($crate::joined!($($word),+), " …");

            fn parse(
                args: &[$crate::Word],
                scope: &mut $crate::Scope,
            ) -> ::core::result::Result<Self, $crate::Problem> {
                let mut set = None;
                <Self as $crate::Value>::set(&mut set, args, scope)?;
                Ok(set.unwrap_or_default())
            }

            fn set(
                slot: &mut ::core::option::Option<Self>,
                args: &[$crate::Word],
                scope: &mut $crate::Scope,
            ) -> ::core::result::Result<(), $crate::Problem> {
                let mut set = slot.unwrap_or_default();
                for (number, word) in args.iter().enumerate() {
                    let known = Self::WORDS.iter().find(|(_, name)| word.bytes().eq_ignore_ascii_case(name.as_bytes()));
                    let Some((flag, _)) = known else {
                        return Err($crate::not_one_of(word.bytes(), &[$($word),+]).at(number));
                    };
                    if set.contains(*flag) {
                        let sentence = format!("duplicate value \"{}\"", word.display());
                        scope.warn(word.error(&$crate::Problem::new(sentence)));
                    }
                    set = set.or(*flag);
                }
                *slot = Some(set);
                Ok(())
            }
        }
    };
    (@flags $bit:expr; $(#[$one_meta:meta])* $ONE:ident $($rest:tt)*) => {
        $(#[$one_meta])*
        pub const $ONE: Self = Self(1 << ($bit));
        $crate::choice_set!(@flags $bit + 1; $($rest)*);
    };
    (@flags $bit:expr;) => {};
}

/// The words separated by ` | `, as the manual shows a choice.
#[doc(hidden)]
#[macro_export]
macro_rules! joined {
    ($first:literal $(, $more:literal)*) => { concat!($first $(, " | ", $more)*) };
}
