//! Crate `config`: see ARCHITECTURE.md.
