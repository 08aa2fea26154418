//! The tables of variables: each module declares the variables whose values it knows, beside the code that finds them.
//!
//! Not here: the list of all tables (`settings::tables`), and the variables that the configuration defines (`map`,
//! `geo`, `split_clients`, `set`, named groups of regular expressions). Invariant: a name stands in one table only.

use bytes::Bytes;
use config::{Assignable, Scope};

use crate::request::Request;

/// Appends a variable's value; `false`: it has none, which is not the same as an empty one.
pub type Append = fn(&Request, &mut Vec<u8>) -> bool;
/// Makes a variable's value; `None`: it has none.
pub type Make = fn(&Request) -> Option<Bytes>;
/// Like [`Append`], for a member of a family: the bytes are the rest of its name, in lower case.
pub type AppendMember = fn(&Request, &[u8], &mut Vec<u8>) -> bool;
/// Sets a variable that is a part of the request.
pub type Assign = fn(&mut Request, Bytes);

/// How the value of a built-in variable is found.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Anew at each use.
    Fresh(Append),
    /// On first use; the request remembers it.
    Memo(Make),
    /// Anew at each use, by the rest of the name behind a prefix.
    Family(AppendMember),
}

/// What lines of the configuration may do with a built-in variable.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// Nothing.
    Never,
    /// Define it (`map`) or set it (`set`): the request remembers the value.
    Value,
    /// The same, but `set` changes the request.
    Request(Assign),
}

/// A built-in variable, or a family of them.
#[derive(Debug, Clone, Copy)]
pub struct VariableEntry {
    /// Its name in lower case; of a family, the prefix.
    pub name: &'static str,
    /// Its description in Markdown.
    pub doc: &'static str,
    /// How its value is found.
    pub value: Value,
    /// What the configuration may do with it.
    pub change: Change,
    /// The directives that decide its value, for `--explain-url`.
    pub made_by: &'static [&'static str],
}

impl VariableEntry {
    /// A variable whose value is found anew at each use.
    #[must_use]
    pub const fn fresh(name: &'static str, doc: &'static str, append: Append) -> Self {
        Self::new(name, doc, Value::Fresh(append))
    }

    /// A variable whose value is made on first use; the request remembers it.
    #[must_use]
    pub const fn memo(name: &'static str, doc: &'static str, make: Make) -> Self {
        Self::new(name, doc, Value::Memo(make))
    }

    /// A family of variables with this prefix.
    #[must_use]
    pub const fn family(prefix: &'static str, doc: &'static str, append: AppendMember) -> Self {
        Self::new(prefix, doc, Value::Family(append))
    }

    const fn new(name: &'static str, doc: &'static str, value: Value) -> Self {
        Self {
            name,
            doc,
            value,
            change: Change::Never,
            made_by: &[],
        }
    }

    /// The same; the configuration may define it (`map`) or set it (`set`).
    #[must_use]
    pub const fn changeable(mut self) -> Self {
        self.change = Change::Value;
        self
    }

    /// The same; the configuration may define it, and `set` changes the request by this function.
    #[must_use]
    pub const fn set_by(mut self, assign: Assign) -> Self {
        self.change = Change::Request(assign);
        self
    }

    /// The same; these directives decide its value.
    #[must_use]
    pub const fn made_by(mut self, directives: &'static [&'static str]) -> Self {
        self.made_by = directives;
        self
    }

    /// Whether it is a family.
    #[must_use]
    pub fn is_family(&self) -> bool {
        matches!(self.value, Value::Family(_))
    }

    fn assignable(&self) -> Assignable {
        match self.change {
            Change::Never => Assignable::Never,
            Change::Value => Assignable::Value,
            Change::Request(_) => Assignable::Request,
        }
    }
}

/// Declares the variables whose values a module knows, as `VARIABLES`: description, name, and the function that finds
/// the value, as one of [`VariableEntry`]'s constructors has it; behind it, its other methods.
///
/// ```
/// httpcore::variables! {
///     /// `1`, always.
///     "one" => fresh(|_, out| { out.push(b'1'); true });
///     /// The part of the name behind the prefix.
///     "echo_" => family(|_, rest, out| { out.extend_from_slice(rest); true });
///     /// Empty, unless the configuration sets it.
///     "mine" => memo(|_| Some("".into())).changeable();
/// }
/// assert_eq!(VARIABLES.len(), 3);
/// ```
#[macro_export]
macro_rules! variables {
    ($($(#[doc = $doc:literal])* $name:literal => $kind:ident($value:expr)$(.$attribute:ident($($argument:expr),*))*;)*) => {
        /// The variables whose values are found here.
        pub const VARIABLES: &[$crate::variables::table::VariableEntry] = &[
            $($crate::variables::table::VariableEntry::$kind($name, concat!($($doc),*), $value)$(.$attribute($($argument),*))*,)*
        ];
    };
}

/// Members of families that the configuration may not define or set, unlike others: nginx has variables of these names.
const FIXED_MEMBERS: [&str; 15] = [
    "http_host",
    "http_user_agent",
    "http_referer",
    "http_via",
    "http_x_forwarded_for",
    "http_cookie",
    "sent_http_content_type",
    "sent_http_content_length",
    "sent_http_location",
    "sent_http_last_modified",
    "sent_http_connection",
    "sent_http_keep_alive",
    "sent_http_transfer_encoding",
    "sent_http_cache_control",
    "sent_http_link",
];

/// All built-in variables: the tables of all modules.
#[derive(Debug, Clone, Default)]
pub struct VariableTables(Vec<&'static [VariableEntry]>);

impl VariableTables {
    /// These tables.
    #[must_use]
    pub fn new(tables: Vec<&'static [VariableEntry]>) -> Self {
        Self(tables)
    }

    /// The variables and families of all tables.
    pub fn all(&self) -> impl Iterator<Item = &'static VariableEntry> {
        self.0.iter().flat_map(|table| table.iter())
    }

    /// The names of the variables that are no families.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let single = self.all().filter(|entry| !entry.is_family());
        single.map(|entry| entry.name)
    }

    /// The variable of this (lower-case) name, with the rest of the name if it is a member of a family. As in nginx the
    /// rest may be empty; such a variable has no value.
    #[must_use]
    pub fn find<'n>(&self, name: &'n str) -> Option<(&'static VariableEntry, &'n str)> {
        let named = self.all().find(|entry| entry.name == name);
        if let Some(entry) = named.filter(|entry| !entry.is_family()) {
            return Some((entry, ""));
        }
        let mut families = self.all().filter(|entry| entry.is_family());
        families.find_map(|entry| Some((entry, name.strip_prefix(entry.name)?)))
    }

    /// Tells the scope which names are built in.
    pub fn reserve(&self, scope: &mut Scope) {
        for name in FIXED_MEMBERS {
            scope.reserve(name, Assignable::Never);
        }
        for entry in self.all().filter(|entry| !entry.is_family()) {
            scope.reserve(entry.name, entry.assignable());
        }
    }
}

#[cfg(test)]
#[expect(
    unreachable_pub,
    reason = "the macro declares for modules that are reached"
)]
mod tests {
    use super::*;

    variables! {
        /// One.
        "one" => fresh(|_, _| false);
        /// Two.
        "http_" => family(|_, _, _| false);
        /// Three.
        "mine" => memo(|_| None).changeable().made_by(&["make"]);
    }

    #[test]
    fn names_are_found() {
        let tables = VariableTables::new(vec![&[], VARIABLES]);
        let found = |name| {
            let found = tables.find(name);
            found.map(|(entry, rest)| (entry.name, rest))
        };
        assert_eq!(found("one"), Some(("one", "")));
        assert_eq!(found("ones"), None);
        assert_eq!(found("http_user_agent"), Some(("http_", "user_agent")));
        assert_eq!(found("http_"), Some(("http_", "")));
        assert_eq!(found("http"), None);
        assert_eq!(tables.names().collect::<Vec<_>>(), ["one", "mine"]);
    }

    #[test]
    fn scopes_know_what_may_be_set() {
        let mut scope = Scope::new();
        VariableTables::new(vec![VARIABLES]).reserve(&mut scope);
        assert_eq!(scope.built_in("one"), Some(Assignable::Never));
        assert_eq!(scope.built_in("mine"), Some(Assignable::Value));
        assert_eq!(scope.built_in("http_"), None);
        assert_eq!(scope.built_in("http_Cookie"), Some(Assignable::Never));
        assert_eq!(scope.built_in("http_accept"), None);
        assert_eq!(VARIABLES[2].made_by, ["make"]);
    }
}
