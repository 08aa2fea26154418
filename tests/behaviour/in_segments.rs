//! Caching with `store=segments`: the tests of caching once more. They see by their module's name which store is meant
//! ([`cache::store`]).
#![expect(clippy::duplicate_mod, reason = "the same tests, for the other store")]

#[path = "cache.rs"]
mod cache;
#[path = "cache_command.rs"]
mod cache_command;
#[path = "cached_upgrades.rs"]
mod cached_upgrades;
#[path = "fills.rs"]
mod fills;
#[path = "purge.rs"]
mod purge;
#[path = "sick_disks.rs"]
mod sick_disks;
#[path = "updates.rs"]
mod updates;
