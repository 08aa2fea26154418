//! Crate `server`: see ARCHITECTURE.md.
pub mod clock;
pub mod command_line;
pub mod hash;
pub mod listen;
pub mod log;
pub mod loops;
pub mod map;
pub mod process;
pub mod split_clients;
pub mod template;
