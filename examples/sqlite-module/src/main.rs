//! A web server with one module more: freewheel, and answers from SQLite.
//!
//! All that such a program needs to do is to hand its modules to [`server::main`]. See `docs/adding-a-module.md`.

mod database;
mod module;

use std::process::ExitCode;

fn main() -> ExitCode {
    server::main(&[&module::Sqlite])
}
