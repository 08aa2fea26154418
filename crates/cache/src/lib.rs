//! Crate `cache`: see ARCHITECTURE.md.
