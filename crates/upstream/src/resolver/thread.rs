//! The helper thread that waits for name servers, and for the next time to ask them.
//!
//! Not here: what runs on it. Invariant: there is one, for all configurations; no task on it blocks it.

use std::future::Future;
use std::io;
use std::sync::mpsc;

use logs::process_log::{Level, error_log};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use wire::errno;
use wire::loop_clock::monotonic_ms;

/// Pause behind a start of the thread that failed, in milliseconds: each one is told.
const RETRY_MS: u64 = 1000;

static THREAD: Mutex<Thread> = Mutex::new(Thread {
    handle: None,
    retry_at_ms: 0,
});

struct Thread {
    /// `None`: it does not run, or not yet: it is tried again.
    handle: Option<Handle>,
    /// Before this a task does not start it.
    retry_at_ms: u64,
}

/// Starts the thread, unless it runs.
///
/// # Errors
/// It cannot be started: the sentence says why.
pub(crate) fn begin() -> io::Result<()> {
    THREAD.lock().begin(start).map(drop)
}

/// Runs a task on the thread, which is started by the first one. `false`: it cannot be started, and the log says why.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> bool {
    let handle = THREAD.lock().for_task(start, monotonic_ms());
    handle.map(|handle| drop(handle.spawn(task))).is_some()
}

/// Starts a thread with a runtime.
type Start = fn() -> io::Result<Handle>;

impl Thread {
    fn begin(&mut self, start: Start) -> io::Result<Handle> {
        if let Some(handle) = &self.handle {
            return Ok(handle.clone());
        }
        let handle = start().map_err(|error| {
            let error = errno(&error);
            io::Error::other(format!("the resolver's thread cannot be started ({error})"))
        })?;
        self.handle = Some(handle.clone());
        Ok(handle)
    }

    fn for_task(&mut self, start: Start, now_ms: u64) -> Option<Handle> {
        if self.handle.is_none() && now_ms < self.retry_at_ms {
            return None;
        }
        let begun = self.begin(start);
        if let Err(error) = &begun {
            self.retry_at_ms = now_ms + RETRY_MS;
            error_log(Level::Alert, format_args!("{error}"));
        }
        begun.ok()
    }
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let handle = runtime.handle().clone();
    let (gives, given) = mpsc::channel::<Runtime>();
    let thread = std::thread::Builder::new().name("resolver".to_owned());
    let started = thread.spawn(move || {
        if let Ok(runtime) = given.recv() {
            runtime.block_on(std::future::pending::<()>());
        }
    });
    match started {
        // It waits for it.
        Ok(_) => drop(gives.send(runtime)),
        Err(error) => {
            // A task of a loop may be here, where a runtime cannot just be dropped.
            runtime.shutdown_background();
            return Err(error);
        }
    }
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_failed_is_tried_again_a_second_later() {
        let fails: Start = || Err(io::ErrorKind::WouldBlock.into());
        let mut thread = Thread {
            handle: None,
            retry_at_ms: 0,
        };
        assert!(thread.for_task(fails, 5).is_none());
        assert!(thread.for_task(start, 1004).is_none());
        assert!(thread.for_task(start, 1005).is_some());
        assert!(thread.for_task(fails, 1006).is_some(), "it runs");
        let mut other = Thread {
            handle: None,
            retry_at_ms: 10_000,
        };
        assert!(other.begin(fails).is_err());
        assert!(other.begin(start).is_ok(), "a reload does not wait");
    }
}
