//! The name and version that the server shows: `server_tokens`.

use config::directives;

/// The program's version, as in `-v`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of nginx whose behaviour is followed.
pub const NGINX_VERSION: &str = "1.31.5";

const FULL: &str = concat!("freewheel/", env!("CARGO_PKG_VERSION"));
const PLAIN: &str = "freewheel";
const FULL_LINE: &str = concat!("Server: freewheel/", env!("CARGO_PKG_VERSION"), "\r\n");
const PLAIN_LINE: &str = "Server: freewheel\r\n";

config::choices! {
    /// How much `Server` and built-in pages tell.
    pub enum Tokens {
        /// Name and version.
        On = "on",
        /// The name alone.
        Off = "off",
        /// Name, version and build: the same as `on`, since builds have no names.
        Build = "build",
    }
}

directives! {
    /// Server identification.
    pub struct Identity in Location {
        /// Shows the version in `Server` and in built-in pages.
        server_tokens: Tokens = "on", [HTTP | SERVER | LOCATION] 1;
    }
}

impl Identity {
    /// For built-in pages.
    #[must_use]
    pub const fn signature(&self) -> &'static str {
        match self.server_tokens {
            Tokens::On | Tokens::Build => FULL,
            Tokens::Off => PLAIN,
        }
    }

    /// The `Server` line with its line end.
    #[must_use]
    pub const fn line(&self) -> &'static str {
        match self.server_tokens {
            Tokens::On | Tokens::Build => FULL_LINE,
            Tokens::Off => PLAIN_LINE,
        }
    }
}
