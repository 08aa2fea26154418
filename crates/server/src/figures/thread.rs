//! The thread that puts figures together and writes them: it takes longer than a loop may be kept, and looks into /proc.
//!
//! Invariant: who asks waits for an answer without keeping its loop; nobody more than [`ASKS_MAX`] does at a time.

use std::sync::{Arc, OnceLock, mpsc};

use tokio::sync::oneshot;

use super::text::{self, Format};
use super::{Ledger, gather, json};

/// Questions that may wait for the thread.
pub const ASKS_MAX: usize = 64;

/// How figures are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As text for Prometheus.
    Text(Format),
    /// As JSON.
    Json,
}

/// A question.
struct Ask {
    ledger: Arc<Ledger>,
    shape: Shape,
    answer: oneshot::Sender<String>,
}

/// The way to the thread, which is started by the first question.
#[derive(Default)]
pub(super) struct Thread(OnceLock<Option<mpsc::SyncSender<Ask>>>);

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Thread")
    }
}

impl Ledger {
    /// All figures, written; `None`: too many ask at a time (or there is no thread to be had).
    pub async fn written(self: &Arc<Self>, shape: Shape) -> Option<String> {
        let (answer, written) = oneshot::channel();
        let ask = Ask {
            ledger: Arc::clone(self),
            shape,
            answer,
        };
        let thread = self.thread.0.get_or_init(start).as_ref()?;
        thread.try_send(ask).ok()?;
        written.await.ok()
    }
}

fn start() -> Option<mpsc::SyncSender<Ask>> {
    let (asks, asked) = mpsc::sync_channel(ASKS_MAX);
    let thread = std::thread::Builder::new().name("figures".to_owned());
    thread.spawn(move || answer_all(&asked)).ok()?;
    Some(asks)
}

fn answer_all(asked: &mpsc::Receiver<Ask>) {
    while let Ok(ask) = asked.recv() {
        // Who has left needs none.
        if ask.answer.is_closed() {
            continue;
        }
        let page = gather::page(&ask.ledger);
        let written = match ask.shape {
            Shape::Text(format) => text::write(&page, format),
            Shape::Json => json::write(&page, &ask.ledger.stalls.last()),
        };
        let _ = ask.answer.send(written);
    }
}
