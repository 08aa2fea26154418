//! The directives that combine access rules.

use config::{Msec, directives};

config::choices! {
    /// `satisfy`.
    pub enum Satisfy {
        /// Every judge must let the client pass.
        All = "all",
        /// One is enough.
        Any = "any",
    }
}

directives! {
    /// Combined access rules (satisfy).
    pub struct Admission in Location {
        /// Sets whether all access rules (`allow` and `deny`, `auth_basic`, `auth_request`) must allow a client, or
        /// whether one is enough.
        satisfy: Satisfy = "all", [HTTP | SERVER | LOCATION] 1;
        /// Delays responses with status 401 or 407, which slows down password guessing.
        auth_delay: Msec = "0", [HTTP | SERVER | LOCATION] 1;
    }
}
