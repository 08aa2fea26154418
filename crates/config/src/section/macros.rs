//! The macros that make a group of directives of its table, and one of several groups.

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
                $($(#[doc = $about])* pub $field: $crate::DirectiveSlot<$Type>,)*
            }

            impl $crate::Section for $Section {
                type Raw = Raw;

                const IS_INHERITED_WHOLE: bool =
                    true $(&& $crate::directive_inherit!(@is_always $($inherit)?))*;

                fn tables() -> ::std::vec::Vec<&'static $crate::DirectiveTable> {
                    #[allow(unused_imports)]
                    use $crate::{ANY, FLAG};
                    static TABLE: ::std::sync::LazyLock<$crate::DirectiveTable> =
                        ::std::sync::LazyLock::new(|| $crate::DirectiveTable {
                            name: stringify!($Section),
                            doc: concat!($($doc, "\n"),*),
                            level: $crate::InheritanceLevel::$Level,
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

            $crate::own!($Section);

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

                fn tables() -> ::std::vec::Vec<&'static $crate::DirectiveTable> {
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

            impl $crate::Groups for $Sections {}

            impl $Sections {
                /// Makes this the list in which groups are found by their types.
                #[allow(dead_code)]
                pub fn register() {
                    $(<$Section as $crate::Own>::finder().get_or_init(|| |groups: &(dyn $crate::Groups + 'static)| {
                        let groups: &dyn ::core::any::Any = groups;
                        let all = groups.downcast_ref::<$Sections>();
                        &all.expect("a program has one list of groups").$field
                    });)+
                }
            }
        };
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
        $crate::DirectiveSlot::merge_normal
    };
    (@merge normal) => {
        $crate::DirectiveSlot::merge_normal
    };
    (@merge never) => {
        $crate::DirectiveSlot::merge_never
    };
    (@merge append) => {
        $crate::DirectiveSlot::merge_append
    };
    (@merge joined) => {
        $crate::DirectiveSlot::merge_append
    };
}
