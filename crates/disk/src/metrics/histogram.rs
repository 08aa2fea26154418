//! Histograms of durations, with the same buckets everywhere, so that sums over loops and threads are exact.
//!
//! Log-linear: each power of ten from 1 µs to 100 s is divided into 18 equal steps (1, 1.5, 2, 2.5 … 9.5), so that the
//! shown bounds ([`BOUNDS`]: 1, 2, 5, 10 …) are bounds of buckets. Invariant: a bucket counts durations above its lower
//! bound, up to and including its upper one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::ARE_COUNTED;

/// Steps of one power of ten.
const STEPS: usize = 18;
/// The first power of ten of nanoseconds: 1 µs. Everything up to it is in one bucket.
const FIRST: u32 = 3;
/// The last one: up to 100 s.
const LAST: u32 = 10;
/// All buckets: one below and one above those of the powers.
const BUCKETS: usize = 2 + STEPS * POWERS;

/// The bounds that are shown: in nanoseconds, and in seconds as the readers of metrics write them.
pub const BOUNDS: [(u64, &str); 25] = [
    (1_000, "1e-06"),
    (2_000, "2e-06"),
    (5_000, "5e-06"),
    (10_000, "1e-05"),
    (20_000, "2e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (200_000, "0.0002"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_000_000, "0.002"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (20_000_000, "0.02"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (200_000_000, "0.2"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_000_000_000, "2.0"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
    (20_000_000_000, "20.0"),
    (50_000_000_000, "50.0"),
    (100_000_000_000, "100.0"),
];

/// Powers of ten with buckets.
const POWERS: usize = (LAST - FIRST + 1) as usize;

/// Binary digits after the first one by which [`GUESSES`] is indexed.
const DIGITS: u32 = 5;
/// The first binary digit of 1 µs and of 100 s.
const DIGIT_FIRST: u32 = 9;
const DIGIT_LAST: u32 = 36;

/// The bucket of the least number with each beginning. No two bounds have the same beginning, so a number belongs to
/// this bucket or the next: no decimal logarithm and no division, which would cost time in several histograms of each
/// request.
const GUESSES: [u8; ((DIGIT_LAST - DIGIT_FIRST + 1) << DIGITS) as usize] = {
    let mut guesses = [0; ((DIGIT_LAST - DIGIT_FIRST + 1) << DIGITS) as usize];
    let (mut place, mut bucket) = (0, 0);
    while place < guesses.len() {
        let first = DIGIT_FIRST + (place as u32 >> DIGITS);
        let width = 1 << (first - DIGITS);
        let least = (1 << first) + width * (place as u64 % (1 << DIGITS));
        while UPPERS[bucket] <= least {
            bucket += 1;
        }
        assert!(bucket == BUCKETS - 1 || UPPERS[bucket + 1] >= least + width);
        guesses[place] = bucket as u8;
        place += 1;
    }
    guesses
};

/// The upper bound of each bucket.
const UPPERS: [u64; BUCKETS] = {
    let mut uppers = [0; BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        uppers[bucket] = upper(bucket);
        bucket += 1;
    }
    uppers
};

/// The bucket of a duration.
#[inline]
fn bucket(ns: u64) -> usize {
    if ns <= UPPERS[0] {
        return 0;
    }
    let below = ns - 1;
    let first = below.ilog2();
    let place = ((first - DIGIT_FIRST) << DIGITS) as usize + (below >> (first - DIGITS)) as usize;
    match GUESSES.get(place - (1 << DIGITS)) {
        Some(&guess) => {
            let guess = usize::from(guess);
            guess + usize::from(below >= UPPERS[guess])
        }
        None => BUCKETS - 1,
    }
}

/// Half of each power of ten.
const HALVES: [u64; POWERS] = {
    let mut halves = [500; (LAST - FIRST + 1) as usize];
    let mut index = 1;
    while index < halves.len() {
        halves[index] = halves[index - 1] * 10;
        index += 1;
    }
    halves
};

/// The upper bound of a bucket in nanoseconds.
const fn upper(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1000;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (power, step) = ((bucket - 1) / STEPS, (bucket - 1) % STEPS);
    HALVES[power] * (step as u64 + 3)
}

/// A histogram of durations, written by one thread or several and read by others.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts a duration, as the only writer.
    #[inline]
    pub fn record(&self, ns: u64) {
        if ns == 0 {
            return self.record_none(1);
        }
        if !ARE_COUNTED {
            return;
        }
        let count = &self.buckets[bucket(ns)];
        count.store(count.load(Relaxed) + 1, Relaxed);
        let sum = self.sum_ns.load(Relaxed).wrapping_add(ns);
        self.sum_ns.store(sum, Relaxed);
    }

    /// Counts a number of durations of 0, as the only writer.
    #[inline]
    pub fn record_none(&self, times: u64) {
        if ARE_COUNTED {
            let count = &self.buckets[0];
            count.store(count.load(Relaxed) + times, Relaxed);
        }
    }

    /// Counts a duration, as one of several writers.
    pub fn record_shared(&self, ns: u64) {
        if !ARE_COUNTED {
            return;
        }
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// A copy of its current state.
    #[must_use]
    pub fn times(&self) -> Times {
        let mut times = Times::default();
        times.merge(self);
        times
    }
}

/// A copy of a histogram, or the sum of several.
#[derive(Debug, Clone)]
pub struct Times {
    buckets: Box<[u64; BUCKETS]>,
    sum_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            sum_ns: 0,
        }
    }
}

impl Times {
    /// Adds the counts of a histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count.load(Relaxed);
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns.load(Relaxed));
    }

    /// Adds the counts of another copy.
    pub fn add(&mut self, other: &Times) {
        for (sum, count) in self.buckets.iter_mut().zip(&*other.buckets) {
            *sum += count;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// The difference from an earlier copy.
    #[must_use]
    pub fn since(&self, earlier: &Times) -> Times {
        let mut since = self.clone();
        for (count, before) in since.buckets.iter_mut().zip(&*earlier.buckets) {
            *count = count.saturating_sub(*before);
        }
        since.sum_ns = since.sum_ns.wrapping_sub(earlier.sum_ns);
        since
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all durations, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The number of durations up to each of [`BOUNDS`].
    #[must_use]
    pub fn up_to_bounds(&self) -> [u64; BOUNDS.len()] {
        let (mut bucket, mut sum) = (0, 0);
        BOUNDS.map(|(bound, _)| {
            while upper(bucket) <= bound {
                sum += self.buckets[bucket];
                bucket += 1;
            }
            sum
        })
    }

    /// The quantile of a share (0 to 1), in nanoseconds: the upper bound of its bucket, 100 s at most. 0: there are no
    /// durations.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut sum = 0;
        for (index, in_bucket) in self.buckets.iter().enumerate() {
            sum += in_bucket;
            if sum >= wanted {
                return upper(index).min(BOUNDS[BOUNDS.len() - 1].0);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_includes_its_upper_bound() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(upper(index)), index);
            assert_eq!(bucket(upper(index) + 1), index + 1);
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn shown_bounds_are_bounds_of_buckets_with_the_right_texts() {
        for (ns, seconds) in BOUNDS {
            assert_eq!(upper(bucket(ns)), ns);
            let shown: f64 = seconds.parse().unwrap();
            assert!((shown * 1e9 - ns as f64).abs() < 1e-3);
        }
    }

    #[test]
    fn sums_of_loops_are_exact() {
        let (one, other) = (Histogram::default(), Histogram::default());
        (1..=1000).for_each(|n| one.record(n * 1000));
        (1..=1000).for_each(|n| other.record_shared(n * 1_000_000));
        let mut both = one.times();
        both.merge(&other);
        let mut twice = one.times();
        twice.add(&other.times());
        assert_eq!(
            (twice.count(), twice.sum_ns()),
            (both.count(), both.sum_ns())
        );
        assert_eq!(both.count(), 2000);
        assert_eq!(both.sum_ns(), 500_500 * 1_001_000);
        let bounds = both.up_to_bounds();
        assert_eq!(
            (bounds[0], bounds[1], bounds[9], bounds[10]),
            (1, 2, 1001, 1002)
        );
        assert_eq!(bounds[18], 2000);
        assert_eq!(both.quantile_ns(0.5), 1_000_000);
        assert_eq!(both.quantile_ns(1.0), 1_000_000_000);
        assert_eq!(Times::default().quantile_ns(0.99), 0);
    }
}
