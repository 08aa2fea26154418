//! What is logged of rewriting and of variables without a value.

use config::{Flag, directives};

directives! {
    /// Log messages of rewriting.
    pub struct RewriteMessages in Location {
        /// Logs what `rewrite` and conditions do to the error log, at level `notice`.
        rewrite_log: Flag = "off", [HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF] FLAG;
        /// Logs a warning when a variable is used before `set` gave it a value.
        uninitialized_variable_warn: Flag = "on", [HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF] FLAG;
    }
}
