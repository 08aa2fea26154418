//! The limits of a store, which a reload may change.
//!
//! Not here: how segments and files share `max_size` (`segments::balance`), and what gives way (`sweep`).

use super::Store;
use message::date::Seconds;
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Sets other limits, as a reload may: `max_size` and `min_free` in bytes, `inactive` in seconds. Sweeps enforce
    /// them.
    pub fn set_limits(&self, max_bytes: Option<u64>, min_free_bytes: u64, inactive: Seconds) {
        self.limit(max_bytes, min_free_bytes, inactive);
        self.pay_for_segments();
    }

    /// The same at a start, which counts what is there afterwards.
    pub(super) fn limit(&self, max_bytes: Option<u64>, min_free_bytes: u64, inactive: Seconds) {
        let space = &self.0.space;
        space.set_min_free(min_free_bytes);
        match &self.0.segments {
            Some(_) if self.has_limit(max_bytes) => {}
            Some(segments) => self.limit_segments(segments, max_bytes),
            None => space.set_max(max_bytes),
        }
        self.0.inactive.store(inactive, Relaxed);
    }

    /// Is this the present `max_size`, as segments and files have divided it?
    fn has_limit(&self, max_bytes: Option<u64>) -> bool {
        let is_divided = self.0.settings.device.is_none();
        let block_bytes = self.0.space.block_bytes();
        let whole = max_bytes.map(|bytes| bytes - bytes % block_bytes);
        is_divided && whole.is_some() && self.max_bytes() == whole
    }

    /// Sets the size of `keys_zone`, in bytes, as a reload may. Sweeps enforce it.
    pub fn set_zone_bytes(&self, bytes: u64) {
        self.0.index.set_zone(bytes);
    }

    /// Sets the maximum of bytes of the directory beside a device, to be obeyed with the next limits
    /// ([`Store::set_limits`]).
    pub fn set_files_bytes(&self, bytes: u64) {
        if let Some(segments) = &self.0.segments {
            segments.files_bytes.store(bytes, Relaxed);
        }
    }
}
