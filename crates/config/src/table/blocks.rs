//! The macro that makes a table of directives that the server reads itself.

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
        $vis fn $table() -> &'static $crate::DirectiveTable {
            #[allow(unused_imports)]
            use $crate::{ANY, FLAG};
            static TABLE: ::std::sync::LazyLock<$crate::DirectiveTable> = ::std::sync::LazyLock::new(|| $crate::DirectiveTable {
                name: stringify!($table),
                doc: concat!($($doc, "\n"),*),
                level: $crate::InheritanceLevel::$Level,
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
