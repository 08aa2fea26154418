//! Signals as events of a descriptor: no handler runs, nothing is interrupted.
//!
//! Not here: the reaction to them. Invariant: the signals are blocked in every thread, so that only the descriptor sees
//! them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that nginx knows. Those that ask for nothing (ALRM, IO) are taken, too: else they would end the process.
const KNOWN: [Signal; 10] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCHLD,
    Signal::SIGALRM,
    Signal::SIGIO,
];

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    /// Which.
    pub signal: Signal,
    /// The process that sent it; 0 when the kernel did.
    pub sender: u32,
}

/// All signals that this process takes.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals in this thread, and in those that it starts, and opens the descriptor. SIGPIPE
    /// is ignored already: Rust's start-up code does it.
    ///
    /// # Errors
    /// That of signalfd(2).
    pub(crate) fn open() -> io::Result<Self> {
        Self::of(&KNOWN)
    }

    /// The same for these signals alone.
    ///
    /// # Errors
    /// That of signalfd(2).
    pub(crate) fn of(signals: &[Signal]) -> io::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        set.thread_block()?;
        // A parent may have left it ignored, which outlives exec(2): the kernel would then reap the workers unseen.
        if signals.contains(&Signal::SIGCHLD) {
            sys::process::keep_children()?;
        }
        Ok(Self(SignalFd::with_flags(
            &set,
            SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
        )?))
    }

    /// The next one, if one came.
    #[must_use]
    pub(crate) fn take(&self) -> Option<ReceivedSignal> {
        let info = self.0.read_signal().ok().flatten()?;
        let number = i32::try_from(info.ssi_signo).ok()?;
        let signal = Signal::try_from(number).ok()?;
        Some(ReceivedSignal {
            signal,
            sender: info.ssi_pid,
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// nginx's line: `signal 15 (SIGTERM) received from 1234, exiting`.
pub(crate) fn note(received: ReceivedSignal, action: &str) {
    let number = received.signal as i32;
    let name = received.signal.as_str();
    let action = if action.is_empty() {
        String::new()
    } else {
        format!(", {action}")
    };
    let text = match received.sender {
        0 => format!("signal {number} ({name}) received{action}"),
        sender => format!("signal {number} ({name}) received from {sender}{action}"),
    };
    logs::process_log::error_log(logs::process_log::Level::Notice, format_args!("{text}"));
}
