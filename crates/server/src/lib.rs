//! The server: nginx's configuration and behaviour on event loops that never wait for a disk.
//!
//! A library with a thin `main`, so that other programs can add modules ([`handler`]). The path of a request is
//! `steps::respond`; the processes are in [`process`], the loops in the crate [`runtime`].

#![warn(unreachable_pub)]

mod cache_orders;
mod command_line;
mod dashboard;
mod explain;
mod http_server;
#[cfg(test)]
mod http_server_tests;
pub mod manual;
mod memory;
mod migrate;
pub mod monitoring;
pub mod process;
pub mod settings;
mod steps;

pub use command_line::main;
pub use dashboard::alerts;
pub use httpcore::{
    Failure, Level, Request, Response, handler, outcome, request, request_body, variables,
};
