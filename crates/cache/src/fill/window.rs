//! The size of windows: large, unless memory is scarce or all windows together take much of it.

use disk::memory::level::level;
use disk::memory::{self, BoundedCharge, Holder, MemoryLevel, Total};

/// Default size of a window in bytes.
pub const WINDOW_BYTES: usize = 1 << 20;
/// Maximum of a window in bytes while memory is scarce, and where it is tight.
const SCARCE_WINDOW_BYTES: usize = 64 << 10;
const TIGHT_WINDOW_BYTES: usize = 16 << 10;
/// Windows are large as long as all of them take at most one part in this many of the budget.
const SHARE: u64 = 8;

/// Bytes in all windows.
static HELD: Total = Total::new();

/// The bytes of a window.
pub(super) type WindowCharge = BoundedCharge<&'static Total>;

/// A window without any.
pub(super) fn empty() -> WindowCharge {
    BoundedCharge::new(Holder::Windows, &HELD, 0)
}

/// The present size of a window that may have so many bytes, and so of what is read for one at once.
#[must_use]
pub fn window_now(bytes: usize) -> usize {
    let budget = memory::budget();
    window_of(bytes, budget, HELD.bytes() as u64, level())
}

fn window_of(bytes: usize, budget: u64, held: u64, scarcity: MemoryLevel) -> usize {
    if scarcity < MemoryLevel::Windows && held < budget / SHARE {
        return bytes;
    }
    bytes.min(match memory::is_tight(budget) {
        true => TIGHT_WINDOW_BYTES,
        false => SCARCE_WINDOW_BYTES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_small_where_memory_is_scarce_or_all_of_them_take_much() {
        const MIB: u64 = 1 << 20;
        for (budget, held, scarcity, size) in [
            (u64::MAX, 99 * MIB, MemoryLevel::None, WINDOW_BYTES),
            (48 * MIB, 5 * MIB, MemoryLevel::Buffers, WINDOW_BYTES),
            (48 * MIB, 6 * MIB, MemoryLevel::None, TIGHT_WINDOW_BYTES),
            (800 * MIB, 100 * MIB, MemoryLevel::None, SCARCE_WINDOW_BYTES),
            (800 * MIB, 0, MemoryLevel::Windows, SCARCE_WINDOW_BYTES),
        ] {
            assert_eq!(window_of(WINDOW_BYTES, budget, held, scarcity), size);
        }
        assert_eq!(window_of(4000, 0, 0, MemoryLevel::Accept), 4000);
    }
}
