//! How much of its responses a connection hands to the kernel ahead of what the network takes.
//!
//! What the kernel has taken goes out in its order, whatever becomes more urgent behind it; its buffer holds several
//! round trips' worth of a slow line. Not here: which stream sends (`wire::http2::priority`). Invariant: what is ahead is
//! bounded where that takes time to send, and nowhere else.

use std::os::fd::AsFd;

/// Milliseconds of sending that are handed ahead while one response is alone: the next one waits for about as long.
const AHEAD_ALONE_MS: u64 = 100;
/// The same where several share the connection: enough for a loop that comes back late.
const AHEAD_SHARED_MS: u64 = 25;
/// Milliseconds for which a connection that carried several responses at a time counts as shared.
const SHARED_MS: u64 = 5000;
/// Minimum of what is handed ahead, in bytes.
const AHEAD_MIN: u64 = 16 << 10;
/// From this many bytes on there is no limit: the kernel's buffers are hardly larger.
const AHEAD_MAX: u64 = 2 << 20;
/// Milliseconds between two measurements.
const MEASURE_EACH_MS: u64 = 100;

#[derive(Debug, Default)]
pub(super) struct SendAhead {
    /// When the line was last measured, in milliseconds of the loop's clock.
    measured_ms: Option<u64>,
    /// When several responses were last on their way.
    shared_ms: Option<u64>,
    /// The socket's limit in bytes; 0: the system's, which is none by default.
    limit: u32,
}

impl SendAhead {
    /// Measures the line of a socket that takes no more, with `live` streams on it, and sets its limit. `Some`: the number
    /// of bytes of DATA that may wait beside it from now on.
    pub(super) fn measure(&mut self, socket: impl AsFd, live: usize, now_ms: u64) -> Option<usize> {
        if live > 1 {
            self.shared_ms = Some(now_ms);
        }
        let is_due = |at| now_ms.saturating_sub(at) >= MEASURE_EACH_MS;
        if !self.measured_ms.is_none_or(is_due) {
            return None;
        }
        self.measured_ms = Some(now_ms);
        let is_shared = |at| now_ms.saturating_sub(at) < SHARED_MS;
        let ahead_ms = match self.shared_ms.is_some_and(is_shared) {
            true => AHEAD_SHARED_MS,
            false => AHEAD_ALONE_MS,
        };
        let limit = limit(&sys::tcp_info(&socket).ok()?, ahead_ms);
        if !is_another(self.limit, limit) {
            return None;
        }
        sys::set_notsent_lowat(&socket, limit).ok()?;
        self.limit = limit;
        Some(match limit {
            0 => usize::MAX,
            limit => limit as usize,
        })
    }
}

/// What a line sends in so many milliseconds, in bytes; 0: there is no need for a limit.
fn limit(line: &sys::TcpInfo, ahead_ms: u64) -> u32 {
    let window = u64::from(line.snd_cwnd) * u64::from(line.snd_mss);
    let ahead = window * ahead_ms * 1000 / u64::from(line.rtt.max(1));
    match ahead.max(AHEAD_MIN) {
        AHEAD_MAX.. => 0,
        ahead => ahead as u32,
    }
}

/// Whether a limit differs by so much from the one that is set that it is worth a call.
fn is_another(set: u32, limit: u32) -> bool {
    let (low, high) = (set.min(limit), set.max(limit));
    low != high && (low == 0 || high - low > low / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rtt: u32, snd_cwnd: u32) -> u32 {
        let snd_mss = 1448;
        let line = sys::TcpInfo {
            rtt,
            snd_cwnd,
            snd_mss,
            ..sys::TcpInfo::default()
        };
        limit(&line, AHEAD_SHARED_MS)
    }

    #[test]
    fn a_slow_line_gets_what_it_sends_in_25_ms() {
        assert_eq!(line(100_000, 100), 36_200);
        assert_eq!(line(100_000, 10), 16_384, "never less than a record");
        assert_eq!(line(0, 10), 0);
        assert_eq!(line(200, 100), 0, "a machine nearby");
        assert_eq!(line(40_000, 3000), 0, "868 Mbit/s");
    }

    #[test]
    fn a_limit_is_changed_where_that_is_worth_a_call() {
        assert!(!is_another(0, 0));
        assert!(is_another(0, 16_384));
        assert!(is_another(16_384, 0));
        assert!(!is_another(16_384, 20_480));
        assert!(is_another(16_384, 20_481));
        assert!(is_another(20_481, 16_384));
    }
}
