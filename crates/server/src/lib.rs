//! Crate `server`: see ARCHITECTURE.md.
pub mod listen;
pub mod loops;
pub mod process;
