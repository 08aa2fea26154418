//! Sending ranges of files to sockets: by the loop what is in memory, by a pool thread what is not.

mod copying;
pub(crate) mod pool_send;
pub(crate) mod send;
pub(crate) mod sink;
pub(crate) mod writers;
