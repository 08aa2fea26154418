//! The samples that are kept for later viewers, and the clients that are told of new ones.
//!
//! Invariant: the lock is held for moving pointers only; a client that does not read costs no more than [`BEHIND_MAX`]
//! pointers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
use runtime::{Ledger, PARTS};
use slots::slotted;
use tokio::sync::broadcast::{self, Receiver, Sender};

use super::series::Taken;
use super::{BEHIND_MAX, HISTORY_BYTES_MAX, SAMPLES_MAX, STREAMS_MAX};

slotted!(PARTS: History);

/// The samples of the last minutes.
#[derive(Debug)]
pub(crate) struct History {
    kept: Mutex<HistoryState>,
    streams: AtomicUsize,
    /// Whether there is a sampler.
    pub(super) is_sampled: Mutex<bool>,
}

#[derive(Debug)]
struct HistoryState {
    /// All series.
    series: Bytes,
    samples: VecDeque<Bytes>,
    bytes: usize,
    /// The last lines of errors and stalls, of each kind.
    lines: Vec<Bytes>,
    /// `None`: the worker quits.
    news: Option<Sender<Bytes>>,
}

/// A client's data: the samples to send first, and the channel of later ones.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The samples to send first.
    pub past: VecDeque<Bytes>,
    /// The later ones.
    pub news: Receiver<Bytes>,
}

/// The samples of a worker.
#[must_use]
pub(crate) fn of(ledger: &Ledger) -> &History {
    ledger.part()
}

impl Default for History {
    fn default() -> Self {
        Self {
            kept: Mutex::new(HistoryState {
                series: Bytes::new(),
                samples: VecDeque::new(),
                bytes: 0,
                lines: Vec::new(),
                news: Some(broadcast::channel(BEHIND_MAX).0),
            }),
            streams: AtomicUsize::new(0),
            is_sampled: Mutex::default(),
        }
    }
}

impl History {
    /// Keeps a sample and sends it to all clients. `lines` is an event with the new lines, and `all_lines` one with all
    /// of them.
    pub(crate) fn add(&self, taken: Taken, lines: Option<Bytes>, all_lines: Vec<Bytes>) {
        let mut kept = self.kept.lock();
        if let Some(all) = taken.all {
            kept.series = all;
        }
        kept.bytes += taken.sample.len();
        kept.samples.push_back(taken.sample.clone());
        while kept.samples.len() > SAMPLES_MAX || kept.bytes > HISTORY_BYTES_MAX {
            let Some(oldest) = kept.samples.pop_front() else {
                break;
            };
            kept.bytes -= oldest.len();
        }
        if lines.is_some() {
            kept.lines = all_lines;
        }
        if let Some(news) = &kept.news {
            for event in [taken.added, Some(taken.sample), lines]
                .into_iter()
                .flatten()
            {
                // No client watches, which is fine.
                let _ = news.send(event);
            }
        }
    }

    /// Takes a place among the clients that watch.
    pub(super) fn take_place(&self) -> bool {
        let taken = self.streams.fetch_update(Relaxed, Relaxed, |count| {
            (count < STREAMS_MAX).then_some(count + 1)
        });
        taken.is_ok()
    }

    /// Gives it back.
    pub(super) fn leave_place(&self) {
        self.streams.fetch_sub(1, Relaxed);
    }

    /// The kept samples, and the channel of later ones; `None`: the worker quits.
    pub(super) fn read(&self) -> Option<Reader> {
        let kept = self.kept.lock();
        let news = kept.news.as_ref()?.subscribe();
        let past = [&kept.series]
            .into_iter()
            .chain(&kept.samples)
            .chain(&kept.lines)
            .cloned();
        Some(Reader {
            past: past.filter(|event| !event.is_empty()).collect(),
            news,
        })
    }

    /// Ends all streams: the worker quits.
    pub(crate) fn end(&self) {
        self.kept.lock().news = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Taken {
        Taken {
            sample: Bytes::copy_from_slice(text.as_bytes()),
            added: None,
            all: None,
        }
    }

    #[test]
    fn the_oldest_go_first_by_number_and_by_bytes() {
        let history = History::default();
        for number in 0..SAMPLES_MAX + 5 {
            history.add(sample(&number.to_string()), None, Vec::new());
        }
        let past = history.read().unwrap().past;
        assert_eq!((past.len(), &past[0][..]), (SAMPLES_MAX, &b"5"[..]));
        let large = "x".repeat(HISTORY_BYTES_MAX / 2);
        (0..3).for_each(|_| history.add(sample(&large), None, Vec::new()));
        assert_eq!(history.read().unwrap().past.len(), 2);
    }

    #[test]
    fn who_does_not_read_is_behind_and_an_end_is_told() {
        let history = History::default();
        let mut slow = history.read().unwrap().news;
        (0..=BEHIND_MAX).for_each(|_| history.add(sample("a"), None, Vec::new()));
        assert!(matches!(
            slow.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(_))
        ));
        history.end();
        assert!(history.read().is_none());
    }

    #[test]
    fn places_are_bounded() {
        let history = History::default();
        assert!((0..STREAMS_MAX).all(|_| history.take_place()));
        assert!(!history.take_place());
        history.leave_place();
        assert!(history.take_place());
    }
}
