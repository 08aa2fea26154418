//! The order of work within one iteration of a loop: everything is received before anything of it is sent on.
//!
//! Invariant: a task that yields is polled again in the same iteration, after every task that was ready when it
//! yielded. Where none is, it goes on.

use std::future::poll_fn;
use std::task::Poll;

use super::poll_timing::are_others_ready;

/// Yields to the tasks that are ready now. A task that passes requests on sends after them, so that the sends go out in
/// a row: a server on the same machine is then woken once for all of them, and not for each request, which costs the
/// kernel more than the sending.
pub async fn others_first() {
    if !are_others_ready() {
        return;
    }
    let mut is_asked_again = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_asked_again, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
