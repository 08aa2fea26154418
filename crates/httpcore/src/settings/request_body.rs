//! The directives of a location that concern request bodies.

use std::path::Path;

use bytes::Bytes;
use config::{Flag, Msec, Offset, Problem, Scope, Size, Value, Word, directives, parse_number};
use disk::{LEVELS_MAX, TemporaryPlace};

/// Maximum of digits that all levels of a temporary path may take of a file's name, as nginx.
const LEVEL_DIGITS_MAX: u64 = 10;

/// A directory for temporary files, as configured (`client_body_temp_path`, `proxy_temp_path`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempPath {
    path: Bytes,
    levels: [u8; LEVELS_MAX],
}

impl TempPath {
    /// A directory without levels.
    #[must_use]
    pub fn named(path: &str) -> TempPath {
        TempPath {
            path: Bytes::copy_from_slice(path.as_bytes()),
            levels: [0; LEVELS_MAX],
        }
    }

    /// The directory, a relative one below the prefix.
    #[must_use]
    pub fn place(&self, prefix: &Path) -> TemporaryPlace {
        use std::os::unix::ffi::OsStrExt as _;
        let path = prefix.join(std::ffi::OsStr::from_bytes(&self.path));
        let path = path.as_os_str().as_bytes();
        TemporaryPlace {
            directory: path.strip_suffix(b"/").unwrap_or(path).into(),
            levels: self.levels,
        }
    }
}

impl Value for TempPath {
    const SYNTAX: &'static str = "path [level1 [level2 [level3]]]";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let mut levels = [0; LEVELS_MAX];
        let mut used = 0;
        for (i, word) in args.iter().enumerate().skip(1) {
            let digits = parse_number(word.bytes());
            let digits = digits.filter(|digits| (1..=LEVEL_DIGITS_MAX - used).contains(digits));
            let digits = digits.ok_or_else(|| Problem::directive("invalid value").at(i))?;
            used += digits;
            levels[i - 1] = digits as u8;
        }
        Ok(Self {
            path: args[0].bytes().clone(),
            levels,
        })
    }
}

config::choices! {
    /// `client_body_in_file_only`.
    pub enum InFileOnly {
        /// In memory as long as the buffer holds it.
        Off = "off",
        /// Always in a file, which stays.
        On = "on",
        /// Always in a file, which is removed after the request.
        Clean = "clean",
    }
}

directives! {
    /// Request bodies.
    pub struct ClientBody in Location {
        /// Limits the body of a request; larger ones are rejected with 413. `0` switches the check off.
        client_max_body_size: Offset = "1m", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time between two reads of a body (408 after that). A body that is discarded, as for files, is
        /// subject to `lingering_timeout`.
        client_body_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Sets how much of a body is kept in memory; a larger one is written to a temporary file. A body known to be
        /// at most a quarter larger stays in memory, too.
        client_body_buffer_size: Size = "16k", [HTTP | SERVER | LOCATION] 1;
        /// Saves every body in a file: with `on` the file is kept, with `clean` it is removed after the request.
        /// `$request_body_file` is its path.
        client_body_in_file_only: InFileOnly = "off", [HTTP | SERVER | LOCATION] 1;
        /// Whether a body in memory is in a single buffer. It always is.
        client_body_in_single_buffer: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the directory for bodies that are kept in files, and the digits of its levels of subdirectories.
        ///
        /// The directory is created at startup and belongs to the worker's user. A file in it has no name, so that none
        /// is left behind in any event, unless `client_body_in_file_only` asks for one.
        client_body_temp_path: TempPath = (config::default_paths::CLIENT_BODY_TEMP), [HTTP | SERVER | LOCATION] 1..=4, syntax "path [level1 [level2 [level3]]]";
    }
}
