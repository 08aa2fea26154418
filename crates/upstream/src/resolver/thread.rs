//! The helper thread that waits for name servers, and for the next time to ask them.
//!
//! Not here: what runs on it. Invariant: there is one, for all configurations; no task on it blocks it.

use std::future::Future;
use std::io;
use std::sync::OnceLock;

use logs::process_log::{Level, error_log};
use tokio::runtime::{Builder, Handle};

/// Runs a task on the thread, which is started by the first one. `false`: it cannot be started, and the log says why.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> bool {
    static THREAD: OnceLock<Option<Handle>> = OnceLock::new();
    let handle = THREAD.get_or_init(|| match start() {
        Ok(handle) => Some(handle),
        Err(error) => {
            error_log(
                Level::Alert,
                format_args!("the resolver's thread cannot be started ({error})"),
            );
            None
        }
    });
    match handle {
        Some(handle) => {
            drop(handle.spawn(task));
            true
        }
        None => false,
    }
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
