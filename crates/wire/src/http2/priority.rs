//! Extensible priorities (RFC 9218): the field value, and the choice of the stream that sends next.
//!
//! The trees of RFC 7540 are ignored. Invariant: no more than [`SLOTS_MAX`] streams, each by its slot; nothing is
//! allocated.

/// Maximum number of streams of a connection that live at once.
pub const SLOTS_MAX: usize = 128;

/// Number of urgencies (RFC 9218, 4.1).
const URGENCIES: usize = 8;

/// A priority (RFC 9218, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 to 7; 0 is served first.
    pub urgency: u8,
    /// Whether pieces of the response are of use, so that it may take turns with others.
    pub is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority {
            urgency: 3,
            is_incremental: false,
        }
    }
}

impl Priority {
    /// Parses a field value, a dictionary of RFC 8941 with the keys `u` and `i`; other keys and values that do not fit
    /// are ignored. (Strings, which may hold commas, do not occur in what is defined.)
    pub fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in value.split(|c| *c == b',') {
            // Parameters of a member have no meaning.
            let member = member.split(|c| *c == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

/// A set of slots.
type Slots = u128;

/// The streams that wait to send, by their slots.
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    /// The streams that have something to send.
    ready: Slots,
    /// The streams of each urgency.
    urgencies: [Slots; URGENCIES],
    incremental: Slots,
    /// The slot after the incremental stream that sent last, for each urgency.
    turns: [u8; URGENCIES],
}

fn bit(slot: usize) -> Slots {
    1 << slot
}

impl Scheduler {
    /// Takes a new stream, which has nothing to send yet.
    pub fn open(&mut self, slot: usize, priority: Priority) {
        self.close(slot);
        self.urgencies[usize::from(priority.urgency) % URGENCIES] |= bit(slot);
        if priority.is_incremental {
            self.incremental |= bit(slot);
        }
    }

    /// Forgets a stream.
    pub fn close(&mut self, slot: usize) {
        let others = !bit(slot);
        self.ready &= others;
        self.incremental &= others;
        self.urgencies.iter_mut().for_each(|set| *set &= others);
    }

    /// Changes a stream's priority.
    pub fn change(&mut self, slot: usize, priority: Priority) {
        let is_ready = self.ready & bit(slot) != 0;
        self.open(slot, priority);
        self.set_ready(slot, is_ready);
    }

    /// Notes whether a stream has something to send.
    pub fn set_ready(&mut self, slot: usize, is_ready: bool) {
        match is_ready {
            true => self.ready |= bit(slot),
            false => self.ready &= !bit(slot),
        }
    }

    /// Whether a stream besides this one has something to send.
    pub fn is_another_ready(&self, slot: usize) -> bool {
        self.ready & !bit(slot) != 0
    }

    /// The stream that sends next, of those that `may_send`: the most urgent; of these, the oldest that is not
    /// incremental (`age` is its stream identifier); else the incremental ones in turn (RFC 9218, 10). With `all_share` all
    /// count as incremental.
    pub fn next(
        &mut self,
        all_share: bool,
        may_send: impl Fn(usize) -> bool,
        age: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let incremental = if all_share { !0 } else { self.incremental };
        for urgency in 0..URGENCIES {
            let ready = self.ready & self.urgencies[urgency];
            let in_order = each(ready & !incremental).filter(|slot| may_send(*slot));
            if let Some(oldest) = in_order.min_by_key(|slot| age(*slot)) {
                return Some(oldest);
            }
            let shared = ready & incremental;
            let before = bit(usize::from(self.turns[urgency])) - 1;
            let in_turn = each(shared & !before).chain(each(shared & before));
            if let Some(slot) = { in_turn }.find(|slot| may_send(*slot)) {
                self.turns[urgency] = ((slot + 1) % SLOTS_MAX) as u8;
                return Some(slot);
            }
        }
        None
    }
}

/// The slots of a set, in order.
fn each(set: Slots) -> impl Iterator<Item = usize> + use<> {
    let mut left = set;
    std::iter::from_fn(move || {
        let slot = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (slot < SLOTS_MAX).then_some(slot)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(urgency: u8, is_incremental: bool) -> Priority {
        Priority {
            urgency,
            is_incremental,
        }
    }

    #[test]
    fn field_values() {
        for (value, priority) in [
            ("", of(3, false)),
            ("u=0", of(0, false)),
            ("u=7, i", of(7, true)),
            ("i,u=1", of(1, true)),
            (" i=?1 ;x , u=2;a=b", of(2, true)),
            ("i, i=?0", of(3, false)),
            ("u=8", of(3, false)),
            ("u=-1, U=1, u", of(3, false)),
            ("x=\"y\", u=4", of(4, false)),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), priority, "{value}");
        }
    }

    #[test]
    fn urgency_then_order_then_turns() {
        let mut scheduler = Scheduler::default();
        let age = |slot: usize| 100 - slot as u32;
        let priorities = [
            of(3, true),
            of(3, true),
            of(3, false),
            of(3, false),
            of(1, true),
        ];
        for (slot, priority) in priorities.into_iter().enumerate() {
            scheduler.open(slot, priority);
            scheduler.set_ready(slot, true);
        }
        let sent = |scheduler: &mut Scheduler, blocked: &[usize]| {
            scheduler.next(false, |slot| !blocked.contains(&slot), age)
        };
        assert_eq!(sent(&mut scheduler, &[]), Some(4), "the most urgent");
        assert_eq!(sent(&mut scheduler, &[4]), Some(3), "the oldest");
        scheduler.set_ready(4, false);
        scheduler.set_ready(3, false);
        assert_eq!(sent(&mut scheduler, &[]), Some(2));
        let turns: Vec<_> = (0..4).map(|_| sent(&mut scheduler, &[2])).collect();
        assert_eq!(turns, [Some(0), Some(1), Some(0), Some(1)]);
        scheduler.change(1, of(0, false));
        assert_eq!(sent(&mut scheduler, &[]), Some(1));
        scheduler.close(1);
        scheduler.close(2);
        assert_eq!(sent(&mut scheduler, &[]), Some(0));
        assert_eq!(sent(&mut scheduler, &[0]), None);
        assert!(scheduler.is_another_ready(2) && !scheduler.is_another_ready(0));
    }

    #[test]
    fn the_last_slot_has_its_turn() {
        let mut scheduler = Scheduler::default();
        for slot in [0, SLOTS_MAX - 1] {
            scheduler.open(slot, of(3, true));
            scheduler.set_ready(slot, true);
        }
        let turns: Vec<_> = (0..3)
            .map(|_| scheduler.next(false, |_| true, |_| 0))
            .collect();
        assert_eq!(turns, [Some(0), Some(127), Some(0)]);
    }
}
