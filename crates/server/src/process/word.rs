//! The kinds of messages between master and worker (`frame`), in both directions.

/// Master: serve this bundle.
pub(crate) const CONFIGURE: u8 = 1;
/// Master: finish the requests in flight and leave; the byte 1: another process waits for the caches.
pub(crate) const QUIT: u8 = 2;
/// Master: these are the logs now; log your figures.
pub(crate) const REOPEN: u8 = 3;
/// Master: certificates and challenges of ACME, with a number.
pub(crate) const ACME: u8 = 4;
/// Worker: the bundle of this generation is served.
pub(crate) const SERVED: u8 = 17;
/// Worker: the bundle of this generation cannot be served, and the reason.
pub(crate) const REFUSED: u8 = 18;
/// Worker: what came with this number is taken.
pub(crate) const TAKEN: u8 = 19;
/// Worker: a signal has told it to finish.
pub(crate) const LEAVING: u8 = 20;
/// Worker: a signal has told it that log files were renamed.
pub(crate) const ROTATED: u8 = 21;
