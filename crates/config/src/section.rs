//! Groups of directives: their tables, and how their values are set, inherited and finished.
//!
//! A level of the configuration (`http`, a server, a location) has one `Raw` of each group: the lines written at that
//! level alone. After the whole tree is read, each level is merged with the one around it and then finished: whatever
//! is still unset gets its default. The order of lines therefore never matters, as in nginx.

use crate::error::Error;
use crate::scope::Scope;
use crate::table::Table;
use crate::tree::Directive;

/// A group of directives, or several groups together.
pub trait Section: Sized {
    /// The lines of one level.
    type Raw: Clone + Default + std::fmt::Debug;

    /// Whether a level without lines of its own has exactly its parent's values, so that both can share them.
    const IS_INHERITED_WHOLE: bool = false;

    /// The tables of its directives.
    fn tables() -> Vec<&'static Table>;

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

/// Declares a group of directives: one table, one struct of finished values.
///
/// `NAME: TYPE = DEFAULT, [CONTEXTS] ARGS;` where
/// * `NAME as "word"` declares a directive whose name is a keyword of Rust,
/// * `TYPE` is a [`Value`](crate::Value),
/// * `DEFAULT` is a text in the configuration's syntax, a constant of one in parentheses, or `none`: then the type must
///   have a value of its own for "not set" (an `Option`, a [`List`](crate::List)),
/// * `CONTEXTS` are constants of [`Context`](crate::Context), separated by `|`,
/// * `ARGS` is `1`, `1..=2`, `2..`, `[1, 3]`, `FLAG` or `ANY`,
/// * `, inherit never`, `, inherit append` or `, inherit joined` may follow, and then `, syntax "…"` for the manual.
///
/// The crate's page has an example.
#[macro_export]
macro_rules! directives {
    (
        $(#[doc = $doc:literal])*
        $vis:vis struct $Section:ident in $Level:ident {
            $(
                $(#[doc = $about:literal])*
                $field:ident $(as $word:literal)?: $Type:ty = $default:tt,
                [$($CONTEXT:ident)|+] $args:expr $(, inherit $inherit:ident)? $(, syntax $syntax:literal)?;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        $vis struct $Section {
            $($(#[doc = $about])* pub $field: $Type,)*
        }

        const _: () = {
            /// The lines of one level that belong to this group.
            #[derive(Clone, Debug, Default)]
            pub struct Raw {
                $($(#[doc = $about])* pub $field: $crate::Slot<$Type>,)*
            }

            impl $crate::Section for $Section {
                type Raw = Raw;

                const IS_INHERITED_WHOLE: bool =
                    true $(&& $crate::directive_inherit!(@is_always $($inherit)?))*;

                fn tables() -> ::std::vec::Vec<&'static $crate::Table> {
                    #[allow(unused_imports)]
                    use $crate::{ANY, FLAG};
                    static TABLE: ::std::sync::LazyLock<$crate::Table> =
                        ::std::sync::LazyLock::new(|| $crate::Table {
                            name: stringify!($Section),
                            doc: concat!($($doc, "\n"),*),
                            level: $crate::Level::$Level,
                            entries: ::std::vec![$($crate::DirectiveEntry {
                                name: $crate::directive_name!($field $($word)?),
                                contexts: $crate::Context::NONE$(.or($crate::Context::$CONTEXT))+,
                                args: $crate::Args::from($args),
                                inner: ::core::option::Option::None,
                                default: $crate::directive_default!($default),
                                inherit: $crate::directive_inherit!(@word $($inherit)?),
                                syntax: $crate::directive_syntax!($Type, $($syntax)?),
                                doc: concat!($($about, "\n"),*),
                            },)*],
                        });
                    ::std::vec![&*TABLE]
                }

                fn set(
                    raw: &mut Raw,
                    directive: &$crate::Directive,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<bool, $crate::Error> {
                    <Self as $crate::Renamed>::set_as(raw, directive.name.bytes(), directive, scope)
                }

                #[allow(unused_variables)]
                fn merge(parent: &Raw, child: Raw) -> Raw {
                    Raw { $($field: $crate::directive_inherit!(@merge $($inherit)?)(&parent.$field, child.$field),)* }
                }

                #[allow(unused_variables)]
                fn fill(
                    raw: &mut Raw,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<(), $crate::Error> {
                    $(raw.$field.fill(
                        $crate::directive_name!($field $($word)?),
                        $crate::directive_default!($default),
                        scope,
                    )?;)*
                    Ok(())
                }

                #[allow(unused_variables)]
                fn finish(
                    raw: Raw,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<Self, $crate::Error> {
                    Ok(Self { $($field: raw.$field.finish(
                        $crate::directive_name!($field $($word)?),
                        $crate::directive_default!($default),
                        scope,
                    )?,)* })
                }
            }

            impl $crate::Renamed for $Section {
                #[allow(unused_variables)]
                fn set_as(
                    raw: &mut Raw,
                    name: &[u8],
                    directive: &$crate::Directive,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<bool, $crate::Error> {
                    $(if name == $crate::directive_name!($field $($word)?).as_bytes() {
                        return raw.$field.set(directive, scope).map(|()| true);
                    })*
                    Ok(false)
                }
            }
        };
    };
}

/// Declares several groups as one: a directive goes to the group that has it.
///
/// The struct's `Raw` has a field of the same name for each group, a [`Group`](crate::Group): levels share what they
/// have in common.
#[macro_export]
macro_rules! sections {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Sections:ident {
            $($(#[$one_meta:meta])* $one_vis:vis $field:ident: $Section:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $Sections {
            $($(#[$one_meta])* pub $field: ::std::sync::Arc<$Section>,)+
        }

        const _: () = {
            /// The lines of one level that belong to any of the groups.
            #[derive(Clone, Debug, Default)]
            pub struct Raw {
                $($(#[$one_meta])* pub $field: $crate::Group<$Section>,)+
            }

            impl $crate::Section for $Sections {
                type Raw = Raw;

                fn tables() -> ::std::vec::Vec<&'static $crate::Table> {
                    let mut tables = ::std::vec::Vec::new();
                    $(tables.extend(<$Section as $crate::Section>::tables());)+
                    tables
                }

                fn set(
                    raw: &mut Raw,
                    directive: &$crate::Directive,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<bool, $crate::Error> {
                    $(if raw.$field.take_in(|raw| <$Section as $crate::Section>::set(raw, directive, scope))? {
                        return Ok(true);
                    })+
                    Ok(false)
                }

                fn merge(parent: &Raw, child: Raw) -> Raw {
                    Raw { $($field: parent.$field.merge(child.$field),)+ }
                }

                fn fill(
                    raw: &mut Raw,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<(), $crate::Error> {
                    $(raw.$field.fill(scope)?;)+
                    Ok(())
                }

                fn finish(
                    raw: Raw,
                    scope: &mut $crate::Scope,
                ) -> ::core::result::Result<Self, $crate::Error> {
                    Ok(Self { $($field: raw.$field.finish(scope)?,)+ })
                }
            }
        };
    };
}

/// Declares directives that the server reads from the tree itself: blocks, and lines that are more than plain values.
///
/// `"NAME": [CONTEXTS] ARGS;` is a line, `"NAME": [CONTEXTS] ARGS => INNER;` a block of directives in the context
/// `INNER` (`LINES`: data lines, which are not checked). A `= "default"` may follow the name, and `, syntax "…"` the
/// rest. A name may occur several times, for different contexts.
///
/// ```
/// config::blocks! {
///     /// Blocks.
///     pub fn blocks in Main {
///         /// Everything that is served over HTTP.
///         "http": [MAIN] 0 => HTTP;
///         /// A virtual server.
///         "server": [HTTP] 0 => SERVER;
///         /// Names for values.
///         "map": [HTTP] 2 => LINES, syntax "source $variable";
///         /// Addresses to listen on.
///         "listen" = "*:80": [SERVER] 1.., syntax "address[:port] [default_server] …";
///     }
/// }
/// # fn main() { assert_eq!(blocks().entries.len(), 4); }
/// ```
#[macro_export]
macro_rules! blocks {
    (
        $(#[doc = $doc:literal])*
        $vis:vis fn $table:ident in $Level:ident {
            $(
                $(#[doc = $about:literal])*
                $name:literal $(= $default:literal)?:
                [$($CONTEXT:ident)|+] $args:expr $(=> $INNER:ident)? $(, syntax $syntax:literal)?;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[must_use]
        $vis fn $table() -> &'static $crate::Table {
            #[allow(unused_imports)]
            use $crate::{ANY, FLAG};
            static TABLE: ::std::sync::LazyLock<$crate::Table> = ::std::sync::LazyLock::new(|| $crate::Table {
                name: stringify!($table),
                doc: concat!($($doc, "\n"),*),
                level: $crate::Level::$Level,
                entries: ::std::vec![$($crate::DirectiveEntry {
                    name: $name,
                    contexts: $crate::Context::NONE$(.or($crate::Context::$CONTEXT))+,
                    args: $crate::block_args!($args $(, $INNER)?),
                    inner: $crate::block_inner!($($INNER)?),
                    default: $crate::block_default!($($default)?),
                    inherit: $crate::Inherit::Normal,
                    syntax: concat!("", $($syntax)?),
                    doc: concat!($($about, "\n"),*),
                },)*],
            });
            &TABLE
        }
    };
}

/// The directive's name: the field's, unless another one is given.
#[doc(hidden)]
#[macro_export]
macro_rules! directive_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $word:literal) => {
        $word
    };
}

/// The default's text, unless it is `none`.
#[doc(hidden)]
#[macro_export]
macro_rules! directive_default {
    (none) => {
        ::core::option::Option::None
    };
    (($text:expr)) => {
        ::core::option::Option::Some($text)
    };
    ($text:literal) => {
        ::core::option::Option::Some($text)
    };
}

/// The manual's text for the arguments: the type's, unless another one is given.
#[doc(hidden)]
#[macro_export]
macro_rules! directive_syntax {
    ($Type:ty,) => {
        <$Type as $crate::Value>::SYNTAX
    };
    ($Type:ty, $syntax:literal) => {
        $syntax
    };
}

/// The merge rule, as data and as a function.
#[doc(hidden)]
#[macro_export]
macro_rules! directive_inherit {
    (@word) => {
        $crate::Inherit::Normal
    };
    (@word normal) => {
        $crate::Inherit::Normal
    };
    (@word never) => {
        $crate::Inherit::Never
    };
    (@word append) => {
        $crate::Inherit::Append
    };
    (@word joined) => {
        $crate::Inherit::Joined
    };
    (@is_always never) => {
        false
    };
    (@is_always $($inherit:ident)?) => {
        true
    };
    (@merge) => {
        $crate::Slot::merge_normal
    };
    (@merge normal) => {
        $crate::Slot::merge_normal
    };
    (@merge never) => {
        $crate::Slot::merge_never
    };
    (@merge append) => {
        $crate::Slot::merge_append
    };
    (@merge joined) => {
        $crate::Slot::merge_append
    };
}

/// The arguments of a block or a line.
#[doc(hidden)]
#[macro_export]
macro_rules! block_args {
    ($args:expr) => {
        $crate::Args::from($args)
    };
    ($args:expr, $INNER:ident) => {
        $crate::Args::from($args).block()
    };
}

/// The context inside a block.
#[doc(hidden)]
#[macro_export]
macro_rules! block_inner {
    () => {
        ::core::option::Option::None
    };
    ($INNER:ident) => {
        ::core::option::Option::Some($crate::Context::$INNER)
    };
}

/// A default, or none.
#[doc(hidden)]
#[macro_export]
macro_rules! block_default {
    () => {
        ::core::option::Option::None
    };
    ($text:literal) => {
        ::core::option::Option::Some($text)
    };
}
