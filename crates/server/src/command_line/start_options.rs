//! What nginx's flags mean: which configuration is read, from where, and which log is the first.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::flags::Flags;
use crate::process::load::Origin;
use crate::process::start::Options;
use config::default_paths::{CONFIGURATION, ERROR_LOG, PREFIX};
use httpcore::handler::Modules;

/// The options that the flags ask for.
#[must_use]
pub(super) fn of(flags: &Flags, modules: Modules) -> Options {
    let prefix = match &flags.prefix {
        // As in nginx, an empty one is the current directory.
        Some(prefix) if prefix.is_empty() || prefix.ends_with(b"/") => path(prefix),
        Some(prefix) => path(&[prefix, &b"/"[..]].concat()),
        None => Path::new(PREFIX).join(""),
    };
    let root = flags
        .configuration
        .as_deref()
        .map_or_else(|| PathBuf::from(CONFIGURATION), path);
    let error_log = match flags.error_log.as_deref() {
        Some(b"stderr" | b"") => None,
        Some(name) => Some(prefix.join(path(name))),
        None if ERROR_LOG == "stderr" => None,
        None => Some(prefix.join(ERROR_LOG)),
    };
    let origin = Origin {
        root: prefix.join(root),
        prefix,
        globals: flags.globals.clone(),
    };
    Options {
        origin,
        instead: None,
        error_log,
        is_quiet: flags.is_quiet,
        modules,
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::new("")).join(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_are_read_as_nginx_reads_them() {
        let flags = Flags {
            prefix: Some(Vec::new()),
            error_log: Some(Vec::new()),
            configuration: Some(b"conf/x.conf".to_vec()),
            ..Flags::default()
        };
        let options = of(&flags, Modules::default());
        assert_eq!(options.origin.root, Path::new("conf/x.conf"));
        assert_eq!(options.error_log, None);
    }
}
