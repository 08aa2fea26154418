//! Names of files of certificates and keys.

use std::path::Path;

/// The full name of a file that a directive names: relative ones start at the configuration's directory, as in nginx;
/// what is no path (`data:…`, `engine:…`, `store:…`) stays as it is.
#[must_use]
pub fn full_name(conf_prefix: &Path, name: &str) -> String {
    match tls::keys::path(name) {
        Some(path) => conf_prefix.join(path).to_string_lossy().into_owned(),
        None => name.to_owned(),
    }
}

/// A certificate's name in a message: text of the configuration is not repeated.
pub(super) fn shown_name(name: &str) -> &str {
    if name.starts_with("data:") {
        "data:"
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_the_configuration() {
        let prefix = Path::new("/etc/nginx/");
        assert_eq!(full_name(prefix, "a.pem"), "/etc/nginx/a.pem");
        assert_eq!(full_name(prefix, "/a.pem"), "/a.pem");
        assert_eq!(full_name(prefix, "data:x"), "data:x");
        assert_eq!(full_name(prefix, "engine:e:x"), "engine:e:x");
    }
}
