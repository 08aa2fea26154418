//! FastCGI 1.0, on the web server's side: `write` turns requests into records, `read` records into responses.
//!
//! Knows no socket. Invariants: a connection carries one request at a time, with the id 1; all input is bounded, and a
//! response ends only where a record says so.

pub mod read;
#[cfg(test)]
mod read_tests;
pub mod write;

pub use read::{NoticeSink, RecordReader, StderrNotice};

/// Size of the header of a record in bytes.
pub const RECORD_HEAD: usize = 8;
/// Maximum size in bytes of the names and values of a request. They go in one record, since some servers do not read a
/// pair that is split over two.
pub const PARAMS_MAX: usize = u16::MAX as usize;
/// Maximum size in bytes of the body data in one record that is written here.
pub const CONTENT_MAX: usize = 32 * 1024;
/// Maximum number of bytes of the error stream that are reported at once; longer output is reported in pieces.
pub const STDERR_PIECE_MAX: usize = 2048;

const VERSION: u8 = 1;
/// The id of every request.
const REQUEST: [u8; 2] = [0, 1];

/// Record types.
mod kind {
    pub(super) const BEGIN_REQUEST: u8 = 1;
    pub(super) const END_REQUEST: u8 = 3;
    pub(super) const PARAMS: u8 = 4;
    pub(super) const STDIN: u8 = 5;
    pub(super) const STDOUT: u8 = 6;
    pub(super) const STDERR: u8 = 7;
}
