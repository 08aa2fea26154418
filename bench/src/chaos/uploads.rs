//! Bodies of requests: what a client sends, and what an origin makes of it.

use crate::asked::{SIZES, difference, part};
use crate::findings;
use bytes::Bytes;
use http_body_util::Channel;
use http_body_util::channel::Sender;
use std::time::Duration;
use tokio::time::sleep;

/// The field that says what the body is: `SEED LENGTH`.
pub const FIELD: &str = "x-upload";
/// Bytes from which on a body is not sent slowly.
const SLOW_MAX: u64 = 70_000;
/// Pieces of a body on their way.
pub const AHEAD: usize = 2;

/// Why a body ends too early.
#[derive(Debug)]
pub struct GivenUp;

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("given up")
    }
}

impl std::error::Error for GivenUp {}

/// A body that is made as it is sent.
pub type Flow = Channel<Bytes, GivenUp>;

/// A body to send.
#[derive(Debug, Clone, Copy)]
pub struct Upload {
    /// Which body.
    pub seed: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Where the client gives up.
    pub quit: Option<u64>,
    is_slow: bool,
}

impl Upload {
    /// Any but the largest.
    pub fn any() -> Upload {
        let size = SIZES[fastrand::usize(..SIZES.len() - 1)];
        Upload {
            seed: fastrand::u64(..1000),
            size,
            quit: (size > 0 && fastrand::u8(..5) == 0).then(|| fastrand::u64(..size)),
            is_slow: size <= SLOW_MAX && fastrand::u8(..5) == 0,
        }
    }

    /// The value of `FIELD`.
    pub fn said(&self) -> String {
        format!("{} {}", self.seed, self.size)
    }

    /// The body, which a task sends.
    pub fn flow(self) -> Flow {
        let (sender, flow) = Channel::new(AHEAD);
        tokio::spawn(self.send(sender));
        flow
    }

    async fn send(self, mut sender: Sender<Bytes, GivenUp>) {
        let (mut at, end) = (0, self.quit.unwrap_or(self.size));
        let most = if self.is_slow { 2000 } else { 30_000 };
        while at < end {
            let count = usize::try_from(end - at).map_or(most, |left| left.min(most));
            let piece = part(self.seed, at, count);
            if sender.send_data(Bytes::from_static(piece)).await.is_err() {
                return;
            }
            at += piece.len() as u64;
            if self.is_slow {
                sleep(Duration::from_millis(1)).await;
            }
        }
        if self.quit.is_some() {
            sender.abort(GivenUp);
        }
    }
}

/// What has come of a body.
pub struct Arriving<'a> {
    seed: u64,
    size: u64,
    at: u64,
    place: &'a str,
}

impl<'a> Arriving<'a> {
    /// `said`: the value of `FIELD`; `place`: the words of a finding.
    pub fn new(said: &str, place: &'a str) -> Option<Arriving<'a>> {
        let (seed, size) = said.split_once(' ')?;
        Some(Arriving {
            seed: seed.parse().ok()?,
            size: size.parse().ok()?,
            at: 0,
            place,
        })
    }

    /// Whether it is the right piece.
    pub fn take(&mut self, piece: &[u8]) -> bool {
        if let Some(at) = difference(self.seed, self.at, piece) {
            findings::wrong(format!("upload: another byte at {at}: {}", self.place));
            return false;
        }
        self.at += piece.len() as u64;
        true
    }

    /// It has ended in order.
    pub fn end(&self) {
        if self.at == self.size {
            findings::count("upload whole");
        } else {
            let place = self.place;
            findings::wrong(format!(
                "upload: the end at {} of {}: {place}",
                self.at, self.size
            ));
        }
    }
}
