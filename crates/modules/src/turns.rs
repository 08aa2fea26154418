//! Turns for work that takes much memory: no more of a kind is done at once than has room in a share of the budget; other
//! requests wait.
//!
//! Invariants: one is always done, whatever it takes; at most [`WAITING_MAX`] requests wait for turns of a kind.

use bytes::Bytes;
use disk::memory;
use logs::Level;
use tokio::sync::{Semaphore, SemaphorePermit};

use httpcore::Failure;
use httpcore::failure::CLIENT_CLOSED;
use httpcore::request::Request;

/// Maximum number of requests that wait; more are refused (503).
const WAITING_MAX: usize = 1024;

/// The turns of a kind of work, of all loops.
pub(crate) struct Turns {
    /// As many as may be taken at once. Work takes several where its memory is large.
    places: Semaphore,
    all: usize,
    /// All together take at most one part in this many of the budget.
    share: u64,
    /// Places of those that wait.
    waiting: Semaphore,
    /// The log's line for a request that is refused.
    refusal: &'static str,
}

/// A turn, until this is dropped.
pub(crate) type Turn = SemaphorePermit<'static>;

impl Turns {
    pub(crate) fn new(all: usize, share: u64, refusal: &'static str) -> Turns {
        Turns {
            places: Semaphore::new(all),
            all,
            share,
            waiting: Semaphore::new(WAITING_MAX),
            refusal,
        }
    }

    /// Whether as much work of so many bytes has room as may be done at once.
    pub(crate) fn all_have_room(&self, bytes: usize) -> bool {
        self.at_once(bytes, memory::budget()) == self.all
    }

    /// Waits for a turn for work of so many bytes. A client that leaves makes room for those behind it.
    ///
    /// # Errors
    /// 503 where too many wait; the status of a client that has left.
    pub(crate) async fn take(
        &'static self,
        request: &Request,
        bytes: usize,
    ) -> Result<Turn, Failure> {
        let places = self.places_of(bytes, memory::budget());
        match self.places.try_acquire_many(places) {
            Ok(turn) => Ok(turn),
            Err(_) => Box::pin(self.wait(request, places)).await,
        }
    }

    async fn wait(&'static self, request: &Request, places: u32) -> Result<Turn, Failure> {
        let Ok(_place) = self.waiting.try_acquire() else {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(self.refusal.as_bytes());
            });
            return Err(Failure::new(503).with_header("Retry-After", Bytes::from_static(b"1")));
        };
        tokio::select! {
            biased;
            () = request.transport.peer_closed() => Err(Failure::new(CLIENT_CLOSED)),
            turn = self.places.acquire_many(places) => Ok(turn.expect("it is never closed")),
        }
    }

    fn at_once(&self, bytes: usize, budget: u64) -> usize {
        let fitting = budget / self.share / (bytes as u64).max(1);
        usize::try_from(fitting)
            .unwrap_or(self.all)
            .clamp(1, self.all)
    }

    /// The places that work of so many bytes takes: no more of its kind is done at once than has room in the budget.
    fn places_of(&self, bytes: usize, budget: u64) -> u32 {
        let places = self.all.div_ceil(self.at_once(bytes, budget));
        u32::try_from(places).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_done_at_once_as_has_room() {
        const MIB: usize = 1 << 20;
        for (bytes, budget_mib, all, at_once) in [
            (0, 1, 16, 16),
            (16 * MIB, 64 << 10, 16, 16),
            (16 * MIB, 1024, 16, 8),
            (16 * MIB, 700, 16, 4),
            (16 * MIB, 64, 16, 1),
            (128 * MIB, 192, 16, 1),
            (128 * MIB, 192, 1, 1),
        ] {
            let places = Turns::new(all, 8, "").places_of(bytes, budget_mib << 20) as usize;
            assert_eq!(all / places, at_once, "{bytes} of {budget_mib} MiB");
        }
        let turns = Turns::new(16, 8, "");
        assert_eq!(turns.places_of(128 * MIB, u64::MAX), 1);
        assert_eq!(turns.at_once(128 * MIB, 16 << 30), 16);
        assert_eq!(turns.at_once(128 * MIB, (16 << 30) - 1), 15);
    }
}
