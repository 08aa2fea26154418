//! Values: what the arguments of a directive mean.
//!
//! A directive's type says how its arguments are read, what is wrong with them in nginx's words, and what a second line
//! of the same name does (an error, unless the type is a [`List`]).

mod choice;
mod number;
mod plain;
mod time;

pub use number::{Bufs, Number, NumberWithin, Offset, Size, parse_offset, parse_size};
pub use plain::{Flag, PathText, Words};
pub use time::{Msec, Sec, parse_msec, parse_sec};

use crate::error::{Error, Problem};
use crate::lexer::{Lexer, Statement};
use crate::scope::Scope;
use crate::text::{Place, Text};
use crate::tree::{Directive, Word};

/// The lines that a repeatable directive may have at one level.
pub const LIST_MAX: usize = 65_536;

/// What a directive's arguments are parsed into.
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

    /// Reads the arguments of one line. How many there may be was checked before, by the directive's table.
    ///
    /// # Errors
    /// What is wrong, in nginx's words.
    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem>;

    /// Takes in one line. `slot` holds what an earlier line of the same level set.
    ///
    /// # Errors
    /// As [`Value::parse`]; also a second line, unless the type takes several.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        if slot.is_some() {
            return Err(Problem::duplicate());
        }
        *slot = Some(Self::parse(args, scope)?);
        Ok(())
    }

    /// The value where the directive is not written and its table has no default.
    #[must_use]
    fn absent() -> Option<Self> {
        None
    }
}

/// A value that can add its parent's: for `inherit append` and `inherit joined`.
pub trait Append: Value {
    /// The parent's lines, then the child's own, or what else the value makes of both.
    #[must_use]
    fn append(parent: &Self, child: Self) -> Self;
}

/// A directive that may be left out and then has no value.
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

/// One value for each line of a directive that may be repeated.
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

/// A value that knows where it was written, for errors that show only later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its first argument; `None` when it has no argument.
    pub place: Option<Place>,
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
    /// An error at this value's place.
    #[must_use]
    pub fn error(&self, sentence: impl Into<String>) -> Error {
        match &self.place {
            Some(place) => Error::at(sentence, place),
            None => Error::without_place(sentence),
        }
    }
}

/// What one level says about one directive: a value, or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot<T> {
    /// The value, when it was set here or inherited.
    pub value: Option<T>,
    /// The first line that set it; `None` for a default.
    pub place: Option<Place>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            value: None,
            place: None,
        }
    }
}

impl<T: Value> Slot<T> {
    /// Takes in one line.
    ///
    /// # Errors
    /// What is wrong with it, at its place.
    pub fn set(&mut self, directive: &Directive, scope: &mut Scope) -> Result<(), Error> {
        T::set(&mut self.value, &directive.args, scope)
            .map_err(|problem| directive.error(&problem))?;
        self.place.get_or_insert_with(|| directive.place());
        Ok(())
    }

    /// The child's value, else the parent's: `inherit normal`.
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

    /// The parent's lines and then the child's: `inherit append`, `inherit joined`.
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

    /// Puts the default in where nothing was set.
    ///
    /// # Errors
    /// A default that its own type refuses: a mistake of the table, which its tests find.
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
    /// As [`Slot::fill`].
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

/// Reads a default as if it stood in a file.
fn parse_default<T: Value>(name: &str, default: &str, scope: &mut Scope) -> Result<T, Error> {
    let text = std::sync::Arc::new(Text::default_of(name, &format!("{name} {default};")));
    let Statement::Line(words, _) = Lexer::new(&text).statement()? else {
        return Err(Error::without_place(format!(
            "\"{name}\" directive has a default that is not one line"
        )));
    };
    T::parse(&words[1..], scope).map_err(|problem| words[0].error(&problem))
}
