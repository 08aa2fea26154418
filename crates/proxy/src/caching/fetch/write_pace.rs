//! The pace at which answers are written to a cache's disk: as fast as the disk takes them; where it does not, they go
//! past it.
//!
//! Not here: the writing (`write_entry`). Invariant: the bytes that wait for a disk are bounded, and no request waits
//! for it longer than the times below.

use std::pin::pin;
use std::time::Duration;

use cache::fill::Filler;
use disk::memory::level::level;
use disk::memory::{self, MemoryLevel};
use message::BodyError;
use runtime::Loop;

use crate::caching::caches::open_cache::Cache;
use crate::response::upstream_response::UpstreamBody;

/// Maximum total time for which a fill lets the disk hold back its clients; then the response is passed on and not
/// stored.
pub const DISK_PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which it is checked whether the disk is the cause.
const DISK_LOOK: Duration = Duration::from_millis(100);
/// Maximum of writes that wait for a disk; above it responses are passed on and not stored.
const WRITES_WAITING_MAX: usize = 16_384;
/// Maximum size of complete responses that wait for a disk, in bytes (fewer where memory is short); above it the next
/// ones are passed on and not stored.
const UNSAVED_BYTES_MAX: u64 = 128 << 20;
/// From this fraction of these limits on, the next fill waits a little: perhaps only the CPU is behind.
const HURRIED: u64 = 8;
/// Maximum time of that wait.
const TURN_PATIENCE: Duration = Duration::from_millis(250);
/// Interval at which it checks whether it is its turn.
const TURN_LOOK: Duration = Duration::from_millis(2);

/// Whether the waiting writes exceed one in `part` of the limit.
fn is_behind(cache: &Cache, part: u64) -> bool {
    let writes = cache.store().map_or(0, cache::Store::writes_waiting);
    let unsaved_max = UNSAVED_BYTES_MAX.min(memory::budget() / memory::UNSAVED_SHARE);
    cache.tally.unsaved() > unsaved_max / part || writes as u64 > WRITES_WAITING_MAX as u64 / part
}

/// Whether the disk has room for one more response. One of several that were asked for at once (`proxy_cache_lock off`)
/// is not worth storing where they get in each other's way.
pub async fn has_turn(cache: &Cache, loop_: &Loop, is_alone: bool) -> bool {
    if level() >= MemoryLevel::Fills {
        return false;
    }
    let is_wanted = !is_alone
        || cache
            .tally
            .is_disk_trusted(wire::loop_clock::monotonic_ms());
    is_wanted && wait_for_turn(cache, loop_).await
}

/// Waits until earlier responses are written, where that is soon. False: the disk is so far behind that it is given
/// nothing more. (A loop can fetch faster than the pool beside it can write, even on an otherwise idle disk.)
async fn wait_for_turn(cache: &Cache, loop_: &Loop) -> bool {
    if !is_behind(cache, HURRIED) {
        return true;
    }
    let now = wire::loop_clock::monotonic_ms;
    let begun = now();
    // After one fill has just waited in vain, no other one waits.
    while cache.tally.is_disk_trusted(now()) {
        loop_.wire.wheel.sleep(TURN_LOOK).await;
        if !is_behind(cache, HURRIED) {
            return true;
        }
        if now() - begun > TURN_PATIENCE.as_millis() as u64 {
            cache.tally.distrust_disk(now());
        }
    }
    !is_behind(cache, 1)
}

/// Hands on the origin's body. True: all of it. A slow disk does not hold it back for long.
pub async fn pump(loop_: &Loop, cache: &Cache, filler: &Filler, mut body: UpstreamBody) -> bool {
    let mut patience = DISK_PATIENCE;
    while let Some(piece) = body.piece().await {
        let piece = match piece {
            Ok(piece) => piece,
            // The reason is in the log already.
            Err(error) => {
                if matches!(error, BodyError::Invalid) {
                    filler.spoil();
                }
                return false;
            }
        };
        let pushed = async {
            let mut push = pin!(filler.push(piece));
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut push => return outcome,
                    () = loop_.wire.wheel.sleep(DISK_LOOK) => {}
                }
                if filler.is_held_by_disk() {
                    patience = patience.saturating_sub(DISK_LOOK);
                    if patience.is_zero() {
                        filler.stop_storing();
                        cache.shed("the disk is slower than the origin");
                        cache.tally.distrust_disk(wire::loop_clock::monotonic_ms());
                    }
                }
            }
        };
        // A body that is not in the cache's file need not wait for its followers either.
        if body
            .ahead_of(pushed, || !filler.is_storing())
            .await
            .is_err()
        {
            return false;
        }
    }
    true
}
