//! Crate `server`: see ARCHITECTURE.md.
