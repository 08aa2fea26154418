//! What one loop counts.
//!
//! Invariant: only the loop's thread writes; who reads is never waited for.

use std::sync::Arc;

use disk::figures::{Histogram, Number};
use parking_lot::Mutex;

use super::of_modules::ModuleFigures;
use super::stalls::Stalls;
use crate::loops::Kind;

/// The figures of one loop, in memory of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LoopFigures {
    /// The loop's number.
    pub index: usize,
    /// Its place among all loops that were: no other one that runs has it.
    pub slot: usize,
    /// Where polls that took too long are noted.
    pub stalls: Arc<Stalls>,
    /// `event_loop_blocked`: from the moment the loop got an event to the start of the poll that it is for.
    pub blocked: Histogram,
    /// How long polls took.
    pub polls: Histogram,
    /// How late ticks of a millisecond were served.
    pub ticks: Histogram,
    /// Connections that its sockets accepted.
    pub accepted: Number,
    /// Requests that began.
    pub requests: Number,
    /// Connections that read or answer a request now.
    pub in_exchange: Number,
    /// Of these, those that answer one.
    pub answering: Number,
    /// The longest poll, in nanoseconds.
    pub longest_ns: Number,
    /// Whose it was; locked only when there is a longer one.
    pub longest: Mutex<Option<Kind>>,
    /// What few configurations need: in memory that stays untouched otherwise.
    pub modules: Box<ModuleFigures>,
}
