//! Places for what modules make of their directives, kept with the configuration by type.
//!
//! A module that needs more than its group of settings puts a value here when the configuration is built, and finds it
//! while requests are served. Not here: the groups themselves ([`crate::Own`]).

use slots::{Family, SharedTable};

/// Maximum number of types that are made of a whole configuration.
pub const MADE_OF_ALL_MAX: usize = 8;
/// Maximum number of types that are made of one location; each costs every location 24 bytes.
pub const MADE_OF_LOCATION_MAX: usize = 8;

/// The types that are made of a whole configuration.
pub static WHOLE: Family = Family::new();
/// The types that are made of one location.
pub static LOCATION: Family = Family::new();

/// What modules have made of a whole configuration.
pub type MadeOfAll = SharedTable<MADE_OF_ALL_MAX>;
/// What modules have made of one location.
pub type MadeOfLocation = SharedTable<MADE_OF_LOCATION_MAX>;
