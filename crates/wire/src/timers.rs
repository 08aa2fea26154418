//! A hierarchical timing wheel per loop, in place of one tokio timer per connection.
//!
//! Four levels of 64 slots (1 ms, 64 ms, 4 s, 4 min wide). Re-arming for later only writes the new deadline: the entry
//! stays in its slot and is inserted again when that slot expires, so a keep-alive connection costs one store per
//! request and one move per slot. Deadlines of 4 s and more are rounded up to 64 ms. Invariant: every armed entry is in
//! a slot that expires at or before its deadline. One task per loop drives the wheel, by a timer of the kernel.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::kernel_timer::KernelTimer;
use crate::loop_clock;

const LEVELS: usize = 4;
const SLOTS: u64 = 64;
const SLOT_BITS: u32 = 6;
/// From this timeout on, in milliseconds, deadlines are rounded up to `COARSE_MS`.
const COARSE_FROM_MS: u64 = 4096;
const COARSE_MS: u64 = 64;
/// Maximum timeout in milliseconds: a year.
const TIMEOUT_MAX_MS: u64 = 365 * 86_400_000;
const NONE: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// The error of a timeout that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for Elapsed {}

/// The timeouts of a loop.
pub struct Wheel(RefCell<Slots>);

struct Slots {
    entries: Vec<TimerEntry>,
    free: u32,
    heads: [[u32; SLOTS as usize]; LEVELS],
    occupied: [u64; LEVELS],
    /// The time up to which all slots have expired.
    current: u64,
    /// The time at which the driver will wake by itself.
    driver_wakes_at: u64,
    driver: Option<Waker>,
    expired: Vec<Waker>,
}

struct TimerEntry {
    deadline: u64,
    /// The time at which its slot expires; `NEVER` while it is in none.
    placed: u64,
    level: u8,
    slot: u8,
    is_expired: bool,
    previous: u32,
    next: u32,
    waker: Option<Waker>,
}

/// A timeout that can be armed any number of times. Dropping it removes it from the wheel.
pub struct Timer {
    wheel: Rc<Wheel>,
    key: u32,
}

impl Wheel {
    /// An empty wheel. Spawn [`Wheel::run`] on the same loop.
    pub fn new() -> Rc<Wheel> {
        Rc::new(Wheel(RefCell::new(Slots::new(loop_clock::monotonic_ms()))))
    }

    /// A timer that is not armed.
    pub fn timer(self: &Rc<Self>) -> Timer {
        Timer {
            wheel: self.clone(),
            key: self.0.borrow_mut().add(),
        }
    }

    /// Waits for `duration`.
    pub async fn sleep(self: &Rc<Self>, duration: Duration) {
        let mut timer = self.timer();
        timer.arm(duration);
        poll_fn(|cx| timer.poll_expired(cx)).await;
    }

    /// The output of the future, or `Elapsed` after `duration`. For a wait per request keep a [`Timer`] instead.
    ///
    /// # Errors
    /// [`Elapsed`]: the future was not ready in time.
    pub async fn timeout<F: Future>(
        self: &Rc<Self>,
        duration: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        self.timer().guard(duration, future).await
    }

    /// Drives the wheel by a timer of the kernel; never returns.
    pub async fn run(self: Rc<Self>, mut timer: KernelTimer) {
        loop {
            self.turn(loop_clock::monotonic_ms());
            let next = self.0.borrow().next_slot();
            if next != NEVER {
                timer.set(next);
            }
            self.0.borrow_mut().driver_wakes_at = next;
            poll_fn(|cx| {
                let mut slots = self.0.borrow_mut();
                if slots.driver_wakes_at < next {
                    return Poll::Ready(());
                }
                if !slots
                    .driver
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(cx.waker()))
                {
                    slots.driver = Some(cx.waker().clone());
                }
                drop(slots);
                timer.poll_expired(cx)
            })
            .await;
        }
    }

    /// Expires all slots up to `now` and wakes the tasks that wait in them.
    fn turn(&self, now: u64) {
        let mut slots = self.0.borrow_mut();
        slots.advance(now);
        let mut expired = std::mem::take(&mut slots.expired);
        drop(slots);
        expired.drain(..).for_each(Waker::wake);
        self.0.borrow_mut().expired = expired; // keeps its capacity
    }
}

impl Timer {
    /// Sets the timer to expire `after` from now, whether or not it was armed.
    pub fn arm(&mut self, after: Duration) {
        let now = loop_clock::monotonic_ms();
        let after_ms = (after.as_millis() as u64).min(TIMEOUT_MAX_MS);
        let mut deadline = now + after_ms + 1; // what is left of this one does not count: never early by a millisecond
        if after_ms >= COARSE_FROM_MS {
            deadline = deadline.next_multiple_of(COARSE_MS);
        }
        self.wheel.0.borrow_mut().arm(self.key, deadline);
    }

    /// Disarms the timer. Costs one store; the entry leaves its slot later.
    pub fn disarm(&mut self) {
        let mut slots = self.wheel.0.borrow_mut();
        let entry = &mut slots.entries[self.key as usize];
        entry.deadline = NEVER;
        entry.is_expired = false;
    }

    /// Ready once the deadline has passed, and from then on until the timer is armed or disarmed.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut slots = self.wheel.0.borrow_mut();
        let entry = &mut slots.entries[self.key as usize];
        if entry.is_expired {
            return Poll::Ready(());
        }
        if !entry
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            entry.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The output of the future, or `Elapsed` after `after`. A future that is ready at once never touches the wheel.
    ///
    /// # Errors
    /// [`Elapsed`]: the future was not ready in time.
    pub async fn guard<F: Future>(
        &mut self,
        after: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut is_armed = false;
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                if is_armed {
                    self.disarm();
                }
                return Poll::Ready(Ok(output));
            }
            if !is_armed {
                self.arm(after);
                is_armed = true;
            }
            self.poll_expired(cx).map(|()| Err(Elapsed))
        })
        .await
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.wheel.0.borrow_mut().remove(self.key);
    }
}

impl Slots {
    fn new(now: u64) -> Slots {
        Slots {
            entries: Vec::new(),
            free: NONE,
            heads: [[NONE; SLOTS as usize]; LEVELS],
            occupied: [0; LEVELS],
            current: now,
            driver_wakes_at: NEVER,
            driver: None,
            expired: Vec::new(),
        }
    }

    fn add(&mut self) -> u32 {
        let entry = TimerEntry {
            deadline: NEVER,
            placed: NEVER,
            level: 0,
            slot: 0,
            is_expired: false,
            previous: NONE,
            next: NONE,
            waker: None,
        };
        if self.free == NONE {
            self.entries.push(entry);
            return self.entries.len() as u32 - 1;
        }
        let key = self.free;
        self.free = self.entries[key as usize].next;
        self.entries[key as usize] = entry;
        key
    }

    fn remove(&mut self, key: u32) {
        self.unlink(key);
        let free = self.free;
        let entry = &mut self.entries[key as usize];
        entry.waker = None;
        entry.next = free;
        self.free = key;
    }

    fn arm(&mut self, key: u32, deadline: u64) {
        let entry = &mut self.entries[key as usize];
        entry.is_expired = false;
        entry.deadline = deadline;
        if entry.placed <= deadline {
            return; // its slot comes by before, and will put it anew
        }
        self.unlink(key);
        self.place(key);
        let placed = self.entries[key as usize].placed;
        if placed < self.driver_wakes_at {
            self.driver_wakes_at = placed;
            if let Some(driver) = &self.driver {
                driver.wake_by_ref();
            }
        }
    }

    /// Inserts an entry that is in no slot at the lowest level that reaches its deadline.
    fn place(&mut self, key: u32) {
        let deadline = self.entries[key as usize].deadline.max(self.current + 1);
        let mut level = 0;
        while level < LEVELS - 1 && distance(self.current, deadline, level) >= SLOTS {
            level += 1;
        }
        let shift = SLOT_BITS * level as u32;
        // Beyond the last level: the farthest slot, from which it is inserted again.
        let number =
            (self.current >> shift) + distance(self.current, deadline, level).min(SLOTS - 1);
        let slot = (number % SLOTS) as usize;
        let head = self.heads[level][slot];
        let entry = &mut self.entries[key as usize];
        entry.level = level as u8;
        entry.slot = slot as u8;
        entry.placed = number << shift;
        entry.previous = NONE;
        entry.next = head;
        if head != NONE {
            self.entries[head as usize].previous = key;
        }
        self.heads[level][slot] = key;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, key: u32) {
        let entry = &mut self.entries[key as usize];
        if entry.placed == NEVER {
            return;
        }
        entry.placed = NEVER;
        let (level, slot, previous, next) = (
            entry.level as usize,
            entry.slot as usize,
            entry.previous,
            entry.next,
        );
        match previous {
            NONE => self.heads[level][slot] = next,
            previous => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if self.heads[level][slot] == NONE {
            self.occupied[level] &= !(1 << slot);
        }
    }

    /// The time at which the next occupied slot expires.
    fn next_slot(&self) -> u64 {
        (0..LEVELS)
            .filter_map(|level| self.next_slot_of(level))
            .min()
            .unwrap_or(NEVER)
    }

    fn next_slot_of(&self, level: usize) -> Option<u64> {
        if self.occupied[level] == 0 {
            return None;
        }
        let shift = SLOT_BITS * level as u32;
        let first = (self.current >> shift) + 1;
        let ahead = self.occupied[level]
            .rotate_right((first % SLOTS) as u32)
            .trailing_zeros();
        Some((first + u64::from(ahead)) << shift)
    }

    fn advance(&mut self, now: u64) {
        loop {
            let next = self.next_slot();
            if next > now {
                break;
            }
            self.current = next;
            for level in 0..LEVELS {
                let shift = SLOT_BITS * level as u32;
                if next & ((1 << shift) - 1) == 0 {
                    self.come_by(level, (next >> shift & (SLOTS - 1)) as usize);
                }
            }
        }
        self.current = self.current.max(now);
    }

    fn come_by(&mut self, level: usize, slot: usize) {
        let mut key = self.heads[level][slot];
        self.heads[level][slot] = NONE;
        self.occupied[level] &= !(1 << slot);
        while key != NONE {
            let entry = &mut self.entries[key as usize];
            let next = entry.next;
            entry.placed = NEVER;
            if entry.deadline <= self.current {
                entry.is_expired = true;
                self.expired.extend(entry.waker.take());
            } else if entry.deadline != NEVER {
                self.place(key);
            }
            key = next;
        }
    }
}

/// The number of slots of `level` between two times.
fn distance(current: u64, deadline: u64, level: usize) -> u64 {
    let shift = SLOT_BITS * level as u32;
    (deadline >> shift) - (current >> shift)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn slots_with(deadlines: &[u64], now: u64) -> Slots {
        let mut slots = Slots::new(now);
        for deadline in deadlines {
            let key = slots.add();
            slots.arm(key, *deadline);
        }
        slots
    }

    proptest! {
        #[test]
        fn every_deadline_expires_at_its_time(
            start in 0u64..1 << 40,
            delays in proptest::collection::vec(prop_oneof![1u64..200, 1u64..10_000, 1u64..1 << 26], 1..20),
            steps in proptest::collection::vec(1u64..1 << 22, 1..40),
        ) {
            let deadlines: Vec<u64> = delays.iter().map(|delay| start + delay).collect();
            let mut slots = slots_with(&deadlines, start);
            let mut now = start;
            for step in steps {
                now += step;
                slots.advance(now);
                for (entry, deadline) in slots.entries.iter().zip(&deadlines) {
                    prop_assert_eq!(entry.is_expired, *deadline <= now);
                    prop_assert!(entry.is_expired || entry.placed > now && entry.placed <= *deadline);
                }
                prop_assert!(slots.next_slot() > now);
            }
        }

        #[test]
        fn the_last_arming_counts(first in 1u64..100_000, second in 1u64..100_000, turn in 0u64..100_000) {
            let mut slots = slots_with(&[first], 0);
            slots.advance(turn.min(first - 1));
            let deadline = slots.current + second;
            slots.arm(0, deadline);
            slots.advance(deadline - 1);
            prop_assert!(!slots.entries[0].is_expired);
            slots.advance(deadline);
            prop_assert!(slots.entries[0].is_expired);
        }
    }

    #[test]
    fn an_empty_wheel_asks_for_no_wake_up() {
        let mut slots = slots_with(&[5, 70], 0);
        slots.entries[0].deadline = NEVER;
        slots.remove(1);
        slots.advance(5);
        assert_eq!(slots.next_slot(), NEVER);
        assert_eq!(slots.occupied, [0; LEVELS]);
        assert_eq!(slots.add(), 1, "a key is used again");
    }

    #[test]
    fn an_expired_timer_wakes_its_task_once_and_stays_expired() {
        let wheel = Wheel::new();
        let mut timer = wheel.timer();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        timer.arm(Duration::from_millis(10));
        assert!(timer.poll_expired(&mut cx).is_pending());
        let now = loop_clock::monotonic_ms();
        wheel.turn(now + 100);
        wheel.turn(now + 200);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(timer.poll_expired(&mut cx).is_ready());
        timer.disarm();
        assert!(timer.poll_expired(&mut cx).is_pending());
    }

    #[test]
    fn futures_end_or_time_out() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let wheel = Wheel::new();
            let driver = tokio::task::spawn_local(wheel.clone().run(KernelTimer::new().unwrap()));
            assert_eq!(
                wheel.timeout(Duration::from_secs(60), async { 7 }).await,
                Ok(7)
            );
            let never = std::future::pending::<()>();
            assert_eq!(
                wheel.timeout(Duration::from_millis(20), never).await,
                Err(Elapsed)
            );
            wheel.sleep(Duration::from_millis(1)).await;
            driver.abort();
        });
    }
}
