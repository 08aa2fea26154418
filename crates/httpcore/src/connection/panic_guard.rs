//! Keeps a panic from going further than the connection whose task it happened in.
//!
//! The process's panic hook asks [`take`] first: inside a guarded task the message is kept for the one line that names
//! the client, elsewhere the hook writes it itself. Invariant: a task that panicked is never polled again.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use runtime::timing::current_request::Suspended;

use crate::client::Client;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    static WORDS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a connection's future; a panic in it ends it with the panic's message and place.
pub(super) fn guard(
    client: &Client,
    mut future: Pin<&mut impl Future<Output = ()>>,
) -> impl Future<Output = Result<(), String>> {
    // Not an `async fn`: each connection has one of these, and would hold the arguments twice.
    let mut kept = Suspended::default();
    poll_fn(move |context| {
        // One connection's task may poll that of another, or of its own request.
        let was_guarded = IS_GUARDED.replace(true);
        kept.enter(client.number);
        // State that the future shares with other tasks is in cells whose borrows end as it unwinds.
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        IS_GUARDED.set(was_guarded);
        match polled {
            Ok(Poll::Pending) => {
                kept.leave();
                Poll::Pending
            }
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => Poll::Ready(Err(words(&*panic))),
        }
    })
}

/// Keeps the message of a panic for the guard around it; `false`: this thread has no guard.
pub fn take(panic: &PanicHookInfo<'_>) -> bool {
    if !IS_GUARDED.get() {
        return false;
    }
    WORDS.set(Some(line(panic)));
    true
}

/// Place and message of a panic, in one line.
#[must_use]
pub fn line(panic: &PanicHookInfo<'_>) -> String {
    panic.to_string().replace('\n', " ")
}

/// The panic's message. Without the hook's text the panic was resumed from a job in a pool, whose thread has logged the
/// place.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    WORDS
        .take()
        .or(said)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
