//! The directives of redirects that the server makes itself.

use config::{Flag, directives};

directives! {
    /// Redirects made by the server.
    pub struct Redirects in Location {
        /// Makes redirects absolute: with scheme, host and port.
        absolute_redirect: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Uses the server's first name in absolute redirects instead of the request's host.
        server_name_in_redirect: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Adds the port to absolute redirects unless it is 80.
        port_in_redirect: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}
