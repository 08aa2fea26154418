//! The dashboard: a page with the figures of the last minutes, to which new ones are pushed.
//!
//! * [`document`]: the page itself, whose sources lie in `page/`. [`alerts`]: the rules of what is wrong.
//! * [`series`]: the series that are made of the figures, and their samples.
//! * `event`: the form in which they are sent.
//! * [`history`]: the samples that are kept, and the clients that get new ones; [`sampler`]: the thread that takes
//!   them.
//! * [`stream`]: the samples as the body of a response.
//!
//! Not here: gathering ([`crate::monitoring`]), the directive ([`crate::monitoring::status`]). Invariant: each sample is made
//! once, by one thread, however many clients watch; text of requests is string data, never a part of the page.

pub mod alerts;
pub(crate) mod document;
mod event;
pub(crate) mod history;
pub(crate) mod lines;
pub(crate) mod sampler;
pub(crate) mod series;
pub(crate) mod stream;

use std::time::Duration;

/// From one sample to the next.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// Samples that are kept: those of 15 minutes.
pub(crate) const SAMPLES_MAX: usize = 450;
/// Bytes that they may take; the oldest go first.
pub(crate) const HISTORY_BYTES_MAX: usize = 8 << 20;
/// Series that are shown; of others it is said how many there are.
pub(crate) const SERIES_MAX: usize = 4096;
/// Maximum number of series of one family that are shown one by one, where zones, peers and the like have more: the
/// rest is shown together, without a name.
pub(crate) const FAMILY_MAX: usize = 128;
/// Streams at a time.
pub(crate) const STREAMS_MAX: usize = 256;
/// Samples that a client may be behind; one that is further behind is left.
pub(crate) const BEHIND_MAX: usize = 16;
