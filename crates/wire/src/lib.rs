//! Crate `wire`: see ARCHITECTURE.md.
