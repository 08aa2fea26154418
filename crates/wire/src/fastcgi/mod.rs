//! FastCGI 1.0 as a web server speaks it: requests into records (`write`), records into an answer (`read`).
//!
//! Knows no socket. Invariants: one request goes through a connection at a time, with the number 1; whatever comes is bounded, and an
//! answer is at its end only where a record says so.

pub mod read;
#[cfg(test)]
mod read_tests;
pub mod write;

pub use read::{RecordReader, Tell, Told};

/// Bytes of a record's head.
pub const RECORD_HEAD: usize = 8;
/// Bytes of names and values of one request: they go in one record, since some servers do not read a pair that lies in two.
pub const PARAMS_MAX: usize = u16::MAX as usize;
/// Bytes of a body in one record that is written here.
pub const CONTENT_MAX: usize = 32 * 1024;
/// Bytes of what a server writes to its error stream that are told at once; more is told in pieces.
pub const STDERR_PIECE_MAX: usize = 2048;

const VERSION: u8 = 1;
/// The number of every request.
const REQUEST: [u8; 2] = [0, 1];

/// Types of records.
mod kind {
    pub const BEGIN_REQUEST: u8 = 1;
    pub const END_REQUEST: u8 = 3;
    pub const PARAMS: u8 = 4;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
    pub const STDERR: u8 = 7;
}
