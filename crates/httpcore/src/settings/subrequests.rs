//! The directives of sub-requests.

use config::{Flag, Size, directives};

directives! {
    /// Subrequests.
    pub struct Subrequests in Location {
        /// Logs subrequests to the access log, too.
        log_subrequest: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits the body of a subrequest's response that is kept in memory as the value of a variable (`set` of SSI
        /// `include`).
        subrequest_output_buffer_size: Size = "4k", [HTTP | SERVER | LOCATION] 1;
    }
}
