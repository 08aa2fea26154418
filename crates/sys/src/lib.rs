//! Crate `sys`: see ARCHITECTURE.md.
