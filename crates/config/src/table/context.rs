//! Where a directive may be used: a set of contexts.
//!
//! A directive's table entry names a set; the context in which it is read is a set of one. This is not an inheritance
//! chain: [`InheritanceLevel`](crate::Level) says which level inherits from which.

use std::fmt;
use std::ops::BitOr;

/// A set of contexts in which a directive may be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Context(u32);

impl Context {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Outside of all blocks.
    pub const MAIN: Self = Self(1);
    /// Inside `events { }`.
    pub const EVENTS: Self = Self(1 << 1);
    /// Inside `http { }`.
    pub const HTTP: Self = Self(1 << 2);
    /// Inside `server { }` of `http`.
    pub const SERVER: Self = Self(1 << 3);
    /// Inside `if { }` of an `http` server.
    pub const SERVER_IF: Self = Self(1 << 4);
    /// Inside `location { }`.
    pub const LOCATION: Self = Self(1 << 5);
    /// Inside `if { }` of a location.
    pub const LOCATION_IF: Self = Self(1 << 6);
    /// Inside `limit_except { }`.
    pub const LIMIT_EXCEPT: Self = Self(1 << 7);
    /// Inside `upstream { }` of `http`.
    pub const UPSTREAM: Self = Self(1 << 8);
    /// Inside `stream { }`.
    pub const STREAM: Self = Self(1 << 9);
    /// Inside `server { }` of `stream`.
    pub const STREAM_SERVER: Self = Self(1 << 10);
    /// Inside `upstream { }` of `stream`.
    pub const STREAM_UPSTREAM: Self = Self(1 << 11);
    /// Inside `mail { }`.
    pub const MAIL: Self = Self(1 << 12);
    /// Inside `server { }` of `mail`.
    pub const MAIL_SERVER: Self = Self(1 << 13);
    /// Inside a block whose lines are data rather than directives (`types`, `map`, `geo`, `split_clients`, …).
    pub const LINES: Self = Self(1 << 14);
    /// Inside `mgmt { }`.
    pub const MGMT: Self = Self(1 << 15);
    /// Inside `acme_issuer { }`.
    pub const ACME_ISSUER: Self = Self(1 << 16);

    /// Every single context with its name in messages and the manual, outermost first.
    pub const NAMES: &'static [(Self, &'static str)] = &[
        (Self::MAIN, "main"),
        (Self::EVENTS, "events"),
        (Self::HTTP, "http"),
        (Self::SERVER, "server"),
        (Self::SERVER_IF, "if in server"),
        (Self::LOCATION, "location"),
        (Self::LOCATION_IF, "if in location"),
        (Self::LIMIT_EXCEPT, "limit_except"),
        (Self::UPSTREAM, "upstream"),
        (Self::STREAM, "stream"),
        (Self::STREAM_SERVER, "server of stream"),
        (Self::STREAM_UPSTREAM, "upstream of stream"),
        (Self::MAIL, "mail"),
        (Self::MAIL_SERVER, "server of mail"),
        (Self::LINES, "a block of data lines"),
        (Self::MGMT, "mgmt"),
        (Self::ACME_ISSUER, "acme_issuer"),
    ];

    /// Whether every context of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the two sets have a context in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The contexts of both sets; like `|`, but usable in constants.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The names of the contexts in this set, outermost first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .iter()
            .filter(move |(one, _)| self.contains(*one))
            .map(|(_, name)| *name)
    }
}

impl BitOr for Context {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

/// The names, separated by commas: `http, server, location`.
impl fmt::Display for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, name) in self.names().enumerate() {
            if number > 0 {
                out.write_str(", ")?;
            }
            out.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Context({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_members_from_the_outside_in() {
        let set = Context::LOCATION | Context::HTTP | Context::SERVER;
        assert_eq!(set.to_string(), "http, server, location");
        assert!(set.contains(Context::SERVER));
        assert!(!set.contains(Context::SERVER | Context::MAIN));
        assert!(set.meets(Context::SERVER | Context::MAIN));
    }

    #[test]
    fn every_context_is_a_single_bit_of_its_own() {
        for (number, (one, _)) in Context::NAMES.iter().enumerate() {
            assert_eq!(one.0, 1 << number);
        }
    }
}
