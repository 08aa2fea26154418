//! What comes out of an issuer's thread: challenges to answer, certificates to show, figures, lines for a log.

use crate::challenge::Challenge;
use crate::store::Issued;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something was done.
    Notice,
    /// Something failed, and is tried again.
    Warn,
    /// Something failed, and fails again until something is changed.
    Error,
}

/// Numbers about a certificate, since the thread was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The order's name ([`crate::Order::id`]).
    pub id: String,
    /// The first name that it is for.
    pub name: String,
    /// Orders that were begun.
    pub orders: u64,
    /// Attempts that failed: orders, and questions about renewal.
    pub failures: u64,
    /// When something is tried next, in seconds since 1970.
    pub next_attempt: i64,
}

/// What takes what comes out.
pub trait Sink: Send + Sync {
    /// Has a challenge answered; returns when it is.
    ///
    /// # Errors
    /// Why it is not.
    fn answer(&self, challenge: &Challenge) -> Result<(), String>;
    /// The challenge is over.
    fn withdraw(&self, challenge: &Challenge);
    /// There is a certificate, by the names of issuer and order. Returns when it is shown.
    fn issued(&self, issuer: &str, id: &str, issued: &Issued);
    /// The numbers of all certificates of an issuer, as they are now.
    fn figures(&self, issuer: &str, figures: Vec<Figures>);
    /// A line for the log.
    fn log(&self, level: Level, text: &str);
}
