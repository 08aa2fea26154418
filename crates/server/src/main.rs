//! The program `freewheel`.
fn main() {}
