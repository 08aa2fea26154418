//! The thread that gathers and writes metrics: that takes longer than a loop may be kept, and reads /proc.
//!
//! Invariants: a request waits for its page without keeping its loop, and at most [`ASKS_MAX`] wait at a time. The text
//! is kept in pieces, so that neither sending nor freeing it keeps a loop, however many zones and peers there are.

use std::sync::{Arc, mpsc};

use bytes::Bytes;
use parking_lot::Mutex;
use runtime::Ledger;
use runtime::metrics::text::{self, Format};
use runtime::metrics::{Page, json};
use tokio::sync::oneshot;

use super::{gather, of};

/// Maximum number of requests that may wait for the thread.
pub(crate) const ASKS_MAX: usize = 64;
/// Bytes of a piece.
const PIECE_BYTES: usize = 32 << 10;

/// The format of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFormat {
    /// As text for Prometheus.
    Text(Format),
    /// As JSON.
    Json,
}

/// A request for the metrics.
struct PageRequest {
    ledger: Arc<Ledger>,
    shape: PageFormat,
    answer: oneshot::Sender<Vec<Bytes>>,
}

/// The channel to the thread, which is started by the first request for which it can be.
#[derive(Default)]
pub(super) struct Thread(Mutex<Option<mpsc::SyncSender<PageRequest>>>);

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Thread")
    }
}

/// All metrics, written, in pieces; `None`: too many requests wait (or no thread can be started).
pub(crate) async fn written(ledger: &Arc<Ledger>, shape: PageFormat) -> Option<Vec<Bytes>> {
    let (answer, written) = oneshot::channel();
    let ask = PageRequest {
        ledger: Arc::clone(ledger),
        shape,
        answer,
    };
    of(ledger).thread.channel()?.try_send(ask).ok()?;
    written.await.ok()
}

impl Thread {
    fn channel(&self) -> Option<mpsc::SyncSender<PageRequest>> {
        let mut channel = self.0.lock();
        if channel.is_none() {
            *channel = start();
        }
        channel.clone()
    }
}

fn start() -> Option<mpsc::SyncSender<PageRequest>> {
    let (asks, asked) = mpsc::sync_channel(ASKS_MAX);
    let thread = std::thread::Builder::new().name("figures".to_owned());
    thread.spawn(move || answer_all(&asked)).ok()?;
    Some(asks)
}

fn answer_all(asked: &mpsc::Receiver<PageRequest>) {
    while let Ok(ask) = asked.recv() {
        // Requests that wait at the same time get the same answer.
        let mut waiting = vec![ask];
        waiting.extend(asked.try_iter().take(ASKS_MAX));
        // A client that has left needs none.
        waiting.retain(|ask| !ask.answer.is_closed());
        let Some(ledger) = waiting.first().map(|ask| Arc::clone(&ask.ledger)) else {
            continue;
        };
        let page = gather::page(&ledger);
        let mut known: Vec<(PageFormat, Vec<Bytes>)> = Vec::new();
        for ask in waiting {
            let found = known.iter().find(|(shape, _)| *shape == ask.shape);
            let pieces = if let Some((_, pieces)) = found {
                pieces.clone()
            } else {
                let made = in_pieces(&write(&ledger, &page, ask.shape));
                known.push((ask.shape, made.clone()));
                made
            };
            let _ = ask.answer.send(pieces);
        }
    }
}

fn write(ledger: &Ledger, page: &Page, shape: PageFormat) -> Vec<u8> {
    match shape {
        PageFormat::Text(format) => text::write(page, format).into_bytes(),
        PageFormat::Json => json::write(page, &ledger.stalls.last()),
    }
}

/// Splits a text. Each piece has memory of its own, so that freeing one on a loop gives back little at a time.
fn in_pieces(text: &[u8]) -> Vec<Bytes> {
    let pieces = text.chunks(PIECE_BYTES);
    pieces.map(Bytes::copy_from_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_lies_in_pieces_of_memory_of_their_own() {
        let text = "0123456789".repeat(PIECE_BYTES / 4);
        let pieces = in_pieces(text.as_bytes());
        assert_eq!(pieces.len(), text.len().div_ceil(PIECE_BYTES));
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(pieces.concat(), text.as_bytes());
        assert!(pieces.into_iter().all(|piece| piece.try_into_mut().is_ok()));
    }
}
