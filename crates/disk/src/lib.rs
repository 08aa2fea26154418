//! Crate `disk`: see ARCHITECTURE.md.
