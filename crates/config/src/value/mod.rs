//! Values: the parsed arguments of a directive.
//!
//! A directive's type defines how its arguments are parsed, the errors in nginx's words, and what a second line of the
//! same name does (an error, unless the type is a [`List`]).

mod address;
pub(crate) mod choice;
mod number;
mod plain;
pub(crate) mod scope;
pub(crate) mod template;
mod time;
pub(crate) mod variable_set;

pub use address::{parse_ip, parse_ip_and_port, parse_ipv4, parse_network};
pub use number::{
    Bufs, Number, NumberWithin, Offset, Size, parse_number, parse_offset, parse_size,
};
pub use plain::{Flag, PathText, Words};
pub use time::{Msec, Sec, parse_msec, parse_sec};

use crate::syntax::error::{Error, Problem};
use crate::syntax::lexer::{Lexer, Statement};
use crate::syntax::text::{Text, TextPlace};
use crate::syntax::tree::{Directive, Word};
use scope::Scope;

/// Maximum number of lines of a repeatable directive at one level.
pub const LIST_MAX: usize = 65_536;

/// A type that a directive's arguments are parsed into.
///
/// A module writes its own where none of the types here fits:
///
/// ```
/// use config::{Problem, Scope, Value, Word, parse_sec};
///
/// /// `auto`, or a time in seconds.
/// #[derive(Clone, Debug)]
/// enum Expiry {
///     Auto,
///     After(u64),
/// }
///
/// impl Value for Expiry {
///     const SYNTAX: &'static str = "auto | time";
///
///     fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
///         let [word] = args else { return Err(Problem::directive("takes one argument")) };
///         if *word == "auto" {
///             return Ok(Self::Auto);
///         }
///         let time = parse_sec(word.bytes()).map(Self::After);
///         time.ok_or_else(|| Problem::directive("invalid value").at(0).hint_that("such as 5m"))
///     }
/// }
/// ```
pub trait Value: Sized + Clone {
    /// The arguments as the manual shows them, such as `on | off`.
    const SYNTAX: &'static str;

    /// Parses the arguments of one line. Their number was checked before, against the directive's table.
    ///
    /// # Errors
    /// The error, in nginx's words.
    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem>;

    /// Adds one line. `slot` holds the value of earlier lines at the same level.
    ///
    /// # Errors
    /// As [`Value::parse`]; also for a second line, unless the type accepts several.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        if slot.is_some() {
            return Err(Problem::duplicate());
        }
        *slot = Some(Self::parse(args, scope)?);
        Ok(())
    }

    /// The value where the directive is not used and its table has no default.
    #[must_use]
    fn absent() -> Option<Self> {
        None
    }
}

/// A value that can be combined with its parent's, for `inherit append` and `inherit joined`.
pub trait Append: Value {
    /// The parent's lines followed by the child's, or whatever else the type makes of both.
    #[must_use]
    fn append(parent: &Self, child: Self) -> Self;
}

/// A directive without a default: no value if it is not used.
impl<T: Value> Value for Option<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        T::parse(args, scope).map(Some)
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let mut inner = slot.take().flatten();
        T::set(&mut inner, args, scope)?;
        *slot = Some(inner);
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Append> Append for Option<T> {
    fn append(parent: &Self, child: Self) -> Self {
        match (parent, child) {
            (Some(parent), Some(child)) => Some(T::append(parent, child)),
            (parent, child) => child.or_else(|| parent.clone()),
        }
    }
}

/// A value for each line of a repeatable directive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List<T>(pub Vec<T>);

impl<T> std::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Value> Value for List<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        Ok(Self(vec![T::parse(args, scope)?]))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let lines = slot.get_or_insert_default();
        if lines.len() == LIST_MAX {
            return Err(Problem::directive(format!(
                "is repeated too often, there may be {LIST_MAX}"
            )));
        }
        lines.0.push(T::parse(args, scope)?);
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

impl<T: Value> Append for List<T> {
    fn append(parent: &Self, child: Self) -> Self {
        let mut lines = parent.0.clone();
        lines.extend(child.0);
        Self(lines)
    }
}

/// `off`, or a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrOff<T> {
    /// The word `off` alone.
    Off,
    /// Anything else.
    On(T),
}

impl<T> OrOff<T> {
    /// The value, unless it is `off`.
    pub fn on(&self) -> Option<&T> {
        match self {
            Self::Off => None,
            Self::On(value) => Some(value),
        }
    }
}

impl<T: Value> Value for OrOff<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] if *word == "off" => Ok(Self::Off),
            _ => T::parse(args, scope).map(Self::On),
        }
    }
}

/// A value with its position, for errors that are found only later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// The position of its first argument; `None` if it has no argument.
    pub place: Option<TextPlace>,
}

impl<T: Value> Value for Placed<T> {
    const SYNTAX: &'static str = T::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        Ok(Self {
            value: T::parse(args, scope)?,
            place: args.first().map(Word::place),
        })
    }
}

impl<T> Placed<T> {
    /// An error at the position of this value.
    #[must_use]
    pub fn error(&self, sentence: impl Into<String>) -> Error {
        match &self.place {
            Some(place) => Error::at(sentence, place),
            None => Error::without_place(sentence),
        }
    }
}

/// The value of one directive at one level, if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectiveSlot<T> {
    /// The value, if it was set here or inherited.
    pub value: Option<T>,
    /// The position of the first line that set it; `None` for a default.
    pub place: Option<TextPlace>,
}

impl<T> Default for DirectiveSlot<T> {
    fn default() -> Self {
        Self {
            value: None,
            place: None,
        }
    }
}

impl<T: Value> DirectiveSlot<T> {
    /// Adds one line.
    ///
    /// # Errors
    /// The error of the line, with its position.
    pub fn set(&mut self, directive: &Directive, scope: &mut Scope) -> Result<(), Error> {
        T::set(&mut self.value, &directive.args, scope)
            .map_err(|problem| directive.error(&problem))?;
        self.place.get_or_insert_with(|| directive.place());
        Ok(())
    }

    /// The child's value, or else the parent's: `inherit normal`.
    #[must_use]
    pub fn merge_normal(parent: &Self, child: Self) -> Self {
        if child.value.is_some() {
            child
        } else {
            parent.clone()
        }
    }

    /// The child's value: `inherit never`.
    #[must_use]
    pub fn merge_never(_parent: &Self, child: Self) -> Self {
        child
    }

    /// The parent's lines followed by the child's: `inherit append`, `inherit joined`.
    #[must_use]
    pub fn merge_append(parent: &Self, child: Self) -> Self
    where
        T: Append,
    {
        match (&parent.value, child.value) {
            (Some(above), Some(own)) => Self {
                value: Some(T::append(above, own)),
                place: child.place,
            },
            (_, None) => parent.clone(),
            (None, own) => Self {
                value: own,
                place: child.place,
            },
        }
    }

    /// Fills in the default if no value was set.
    ///
    /// # Errors
    /// A default that its own type refuses: a mistake in the table, which its tests find.
    pub fn fill(
        &mut self,
        name: &str,
        default: Option<&str>,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        if self.value.is_none() {
            self.value = match default {
                None => T::absent(),
                Some(text) => Some(parse_default(name, text, scope)?),
            };
        }
        Ok(())
    }

    /// The value, or else the default.
    ///
    /// # Errors
    /// As [`DirectiveSlot::fill`].
    pub fn finish(
        mut self,
        name: &str,
        default: Option<&str>,
        scope: &mut Scope,
    ) -> Result<T, Error> {
        self.fill(name, default, scope)?;
        self.value.ok_or_else(|| {
            Error::without_place(format!("\"{name}\" directive has no value and no default"))
        })
    }
}

/// Parses a default as if it were written in a file.
fn parse_default<T: Value>(name: &str, default: &str, scope: &mut Scope) -> Result<T, Error> {
    let text = std::sync::Arc::new(Text::default_of(name, &format!("{name} {default};")));
    let Statement::Line(words, _) = Lexer::new(&text).statement()? else {
        return Err(Error::without_place(format!(
            "\"{name}\" directive has a default that is not one line"
        )));
    };
    T::parse(&words[1..], scope).map_err(|problem| words[0].error(&problem))
}
