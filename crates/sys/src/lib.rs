//! Crate `sys`: see ARCHITECTURE.md.

#![allow(unsafe_code, reason = "the one crate for it")]

pub mod process;
