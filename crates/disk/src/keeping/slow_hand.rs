//! When a body gets a copy, and when others make room for it: the same for files and for entries of a cache.

/// Uses of a body from which it gets a copy. That costs as much as a few uses of it save, and a thread's wake-up.
pub const COPY_USES: u8 = 4;

/// Bodies that find no room, until the hand moves on.
const LOOK_EVERY: u8 = 4;

/// Holds back the hand of a clock that makes room for bodies. Where more is in use than there is room for, the bodies that
/// are there stay, as the hand comes round more slowly than each is used: to take turns would cost all of them.
///
/// A hand that moves is to pass what is not in use, up to the first that is.
#[derive(Debug, Default)]
pub struct SlowHand {
    /// Bodies that found no room since it moved.
    without_room: u8,
}

impl SlowHand {
    /// Notes a body that finds no room. Returns whether the hand moves on for it.
    pub fn moves(&mut self) -> bool {
        self.without_room = (self.without_room + 1) % LOOK_EVERY;
        self.without_room == 0
    }
}
