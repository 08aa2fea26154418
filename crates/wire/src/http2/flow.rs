//! Flow control (RFC 9113, 5.2 and 6.9): what may be sent, and what the peer may send.
//!
//! Not here: frames. Invariant: the peer gets room only for what the consumer has taken, so that no stream holds more
//! than its window in memory.

use super::Reason;
use super::frame::MAX_31;
use disk::memory::level::level;
use disk::memory::{self, MemoryLevel};

/// The window of a connection, and of every stream before SETTINGS (RFC 9113, 6.9.2).
pub const INITIAL_WINDOW: u32 = 65_535;

/// The window in bytes of a stream whose body is read, at first.
pub const BODY_WINDOW: u32 = 256 << 10;
/// Maximum window of a stream in bytes: what a reader that takes all that comes gets in the end, enough for 40 MB/s at 100 ms.
pub const BODY_WINDOW_MAX: u32 = 4 << 20;

/// What may be sent on a stream or connection. Below 0 if the peer lowered its initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow(i64);

impl SendWindow {
    /// A window of this many bytes.
    pub fn new(bytes: u32) -> SendWindow {
        SendWindow(i64::from(bytes))
    }

    /// Number of bytes that may be sent.
    pub fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Takes a WINDOW_UPDATE.
    ///
    /// # Errors
    /// The window exceeds 2^31-1.
    pub fn widen(&mut self, increment: u32) -> Result<(), Reason> {
        self.change(i64::from(increment))
    }

    /// Takes a change of SETTINGS_INITIAL_WINDOW_SIZE, up or down.
    ///
    /// # Errors
    /// The window exceeds 2^31-1.
    pub fn change(&mut self, by: i64) -> Result<(), Reason> {
        self.0 += by;
        if self.0 > i64::from(MAX_31) {
            return Err(Reason::WindowOverflow);
        }
        Ok(())
    }

    /// Counts what was sent; at most [`SendWindow::available`].
    pub fn spend(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as i64;
    }
}

/// What the peer may send on a stream or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWindow {
    /// Number of bytes that the peer may still send; below 0 if we lowered our initial window.
    credit: i64,
    /// Number of bytes received that the consumer has not taken.
    held: i64,
    /// Maximum of `credit` and `held` together, in bytes.
    target: i64,
}

impl RecvWindow {
    /// A window that the peer knows to be of `credit` bytes, and that is to be `target` bytes wide.
    pub fn new(credit: u32, target: u32) -> RecvWindow {
        RecvWindow {
            credit: i64::from(credit),
            held: 0,
            target: i64::from(target),
        }
    }

    /// Counts the payload of a DATA frame, its padding included.
    ///
    /// # Errors
    /// The peer was not allowed to send as much.
    pub fn receive(&mut self, bytes: usize) -> Result<(), Reason> {
        if bytes as i64 > self.credit {
            return Err(Reason::WindowExceeded);
        }
        self.receive_any(bytes);
        Ok(())
    }

    /// The same, where more than the peer was allowed to send is taken: it gets no room before all of it is made up for.
    pub fn receive_any(&mut self, bytes: usize) {
        self.credit -= bytes as i64;
        self.held += bytes as i64;
    }

    /// Counts what the consumer has taken; returns the increment to announce now, if it is worth a frame: from half of
    /// the window on.
    pub fn release(&mut self, bytes: usize) -> Option<u32> {
        self.held = (self.held - bytes as i64).max(0);
        self.update()
    }

    /// Number of bytes received and not taken.
    pub fn held(&self) -> usize {
        self.held as usize
    }

    /// Changes the width, and returns the increment to announce.
    pub fn resize(&mut self, target: u32) -> Option<u32> {
        self.target = i64::from(target.min(MAX_31));
        self.update()
    }

    /// Maximum number of bytes that the peer may have sent without their being taken.
    pub fn target(&self) -> u32 {
        self.target as u32
    }

    /// Takes a change of our own SETTINGS_INITIAL_WINDOW_SIZE, once the peer has acknowledged it; returns the increment to
    /// announce.
    pub fn change(&mut self, by: i64) -> Option<u32> {
        self.credit += by;
        self.update()
    }

    fn update(&mut self) -> Option<u32> {
        let gap = self.target - self.held - self.credit;
        if gap <= 0 || gap < self.target / 2 {
            return None;
        }
        self.credit += gap;
        u32::try_from(gap).ok()
    }
}

/// The growing window of a stream whose data is read: twice as wide each time that a whole one was taken, as TCP's own in
/// slow start. The peer's distance is not known, and a window that is narrower than what is on its way bounds the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowingWindow {
    width: u32,
    /// Number of bytes taken since the window got this width.
    taken: u64,
}

impl Default for GrowingWindow {
    fn default() -> Self {
        GrowingWindow::of(BODY_WINDOW)
    }
}

impl GrowingWindow {
    /// A window of so many bytes at first, at least 1.
    pub fn of(width: u32) -> GrowingWindow {
        GrowingWindow { width, taken: 0 }
    }

    /// Counts what the reader has taken; returns the width, in bytes, that the window is to get now, if that is another
    /// one. None while the memory's budget is tight.
    pub fn take(&mut self, bytes: usize) -> Option<u32> {
        self.taken += bytes as u64;
        if self.taken < u64::from(self.width) || self.width >= BODY_WINDOW_MAX || is_scarce() {
            return None;
        }
        self.taken = 0;
        self.width = (self.width * 2).min(BODY_WINDOW_MAX);
        Some(self.width)
    }
}

/// Whether memory is too scarce for wide windows.
fn is_scarce() -> bool {
    level() >= MemoryLevel::Windows || memory::is_tight(memory::budget())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_with_what_is_taken_of_it() {
        let mut window = GrowingWindow::default();
        assert_eq!(window.take(BODY_WINDOW as usize - 1), None);
        assert_eq!(window.take(1), Some(2 * BODY_WINDOW));
        assert_eq!(window.take(BODY_WINDOW as usize), None, "half of it");
        let widths: Vec<u32> = (0..100)
            .filter_map(|_| window.take(BODY_WINDOW as usize))
            .collect();
        assert_eq!(widths, [1 << 20, 2 << 20, BODY_WINDOW_MAX]);
    }

    #[test]
    fn a_send_window_may_be_negative() {
        let mut window = SendWindow::new(100);
        window.spend(80);
        window.change(-50).unwrap();
        assert_eq!((window, window.available()), (SendWindow(-30), 0));
        window.widen(31).unwrap();
        assert_eq!(window.available(), 1);
        assert_eq!(window.widen(MAX_31), Err(Reason::WindowOverflow));
        let mut window = SendWindow::new(MAX_31);
        assert_eq!(window.change(1), Err(Reason::WindowOverflow));
    }

    #[test]
    fn room_is_given_for_what_was_taken() {
        let mut window = RecvWindow::new(100, 100);
        assert_eq!(window.receive(101), Err(Reason::WindowExceeded));
        window.receive(100).unwrap();
        assert_eq!(window.receive(1), Err(Reason::WindowExceeded));
        assert_eq!(window.release(49), None, "less than half");
        assert_eq!(window.release(1), Some(50));
        assert_eq!(window.held(), 50);
        window.receive(50).unwrap();
        assert_eq!(
            window.release(1000),
            Some(100),
            "never more than the target"
        );
        assert_eq!(window.resize(1000), Some(900));
        assert_eq!(window.resize(10), None);
        window.receive(995).unwrap();
        assert_eq!(window.release(995), Some(5));
    }

    #[test]
    fn what_was_taken_beyond_the_window_is_made_up_for() {
        let mut window = RecvWindow::new(100, 100);
        window.receive_any(130);
        assert_eq!(window.receive(1), Err(Reason::WindowExceeded));
        assert_eq!(window.release(30), None);
        assert_eq!(window.release(50), Some(80));
        window.receive(50).unwrap();
        assert_eq!(window.receive(1), Err(Reason::WindowExceeded));
    }

    #[test]
    fn a_lowered_initial_window_takes_effect_with_its_acknowledgement() {
        let mut window = RecvWindow::new(INITIAL_WINDOW, 10);
        window.receive(60_000).unwrap();
        window.change(10 - i64::from(INITIAL_WINDOW));
        assert_eq!(window.receive(1), Err(Reason::WindowExceeded));
        assert_eq!(window.release(59_000), Some(59_000));
        assert_eq!(window.receive(1), Err(Reason::WindowExceeded));
        assert_eq!(window.release(1000), Some(1000));
        assert_eq!(window.receive(11), Err(Reason::WindowExceeded));
        window.receive(10).unwrap();
    }
}
