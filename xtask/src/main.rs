//! Project tasks: `cargo xtask …`.
fn main() {}
