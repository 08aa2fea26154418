//! Crate `message`: see ARCHITECTURE.md.
