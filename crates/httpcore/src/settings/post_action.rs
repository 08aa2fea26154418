//! The directive of requests that follow a request.

use bytes::Bytes;
use config::directives;

directives! {
    /// Requests after a request (post_action).
    pub struct PostAction in Location {
        /// Runs the request again at this URI or named location once it has been answered; nothing of the second
        /// response is sent. The client's next request waits for it, and the log line is written after it. A location
        /// that inherits it from outside causes a cycle.
        post_action: Option<Bytes> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 1, syntax "uri | @name";
    }
}
