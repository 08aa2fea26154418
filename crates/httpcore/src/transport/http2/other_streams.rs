//! Whether a stream waits for its client, or for other streams of its connection.
//!
//! Not here: whose turn it is to send ([`super::Http2Connection::grant`]).

use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use wire::Timer;
use wire::http2::StreamKey;

use super::Http2Connection;

/// The longest wait for other streams that is not taken for one for the client: theirs may be the slow one.
const PATIENCE: Duration = Duration::from_millis(250);

/// The other streams of a connection, as one stream sees them while it sends a piece.
pub(crate) struct OtherStreams {
    connection: Rc<Http2Connection>,
    key: StreamKey,
    /// Armed when the first of them went before.
    timer: Option<Timer>,
}

impl OtherStreams {
    pub(super) fn of(connection: &Rc<Http2Connection>, key: StreamKey) -> OtherStreams {
        OtherStreams {
            connection: Rc::clone(connection),
            key,
            timer: None,
        }
    }

    /// Whether they are what keeps this stream from sending, and not its client; for at most 250 ms in a piece, behind
    /// which the task is woken.
    pub(crate) fn go_first(&mut self, context: &mut Context<'_>) -> bool {
        let key = self.key;
        let (connection, timer) = (&self.connection, &mut self.timer);
        if !connection.with_session(|session| session.waits_for_others(key)) {
            return false;
        }
        let timer = timer.get_or_insert_with(|| {
            let mut timer = connection.owner.wheel.timer();
            timer.arm(PATIENCE);
            timer
        });
        timer.poll_expired(context).is_pending()
    }
}
