//! Messages about nginx's directives that are not implemented yet: the missing feature, and what replaces it until
//! then.
//!
//! Not here: which directives these are ([`super::Fate::NotYet`]). Invariant: each of them belongs to one of the
//! features.

use super::row::KnownDirective;

/// A feature of nginx that is not implemented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Its name, which begins a sentence.
    pub what: &'static str,
    /// What to do without it: a clause.
    pub instead: &'static str,
    /// What enables the feature, if no directive does; directives that only configure it are ignored without it.
    pub asked_by: &'static str,
    /// Prefixes of the names of its modules.
    modules: &'static [&'static str],
    /// Prefixes of the names of its directives, in any module.
    names: &'static [&'static str],
    /// Prefixes of the names of its variables.
    variables: &'static [&'static str],
}

/// All features, in the order in which they are tried for a directive.
static ALL: &[Missing] = &[
    Missing {
        what: "`stream` (TCP and UDP)",
        instead: "leave it to nginx or HAProxy on addresses of their own, beside Freewheel",
        asked_by: "",
        modules: &["stream"],
        names: &[],
        variables: &[
            "session_time",
            "bytes_received",
            "protocol",
            "upstream_session_time",
            "ssl_preread_",
        ],
    },
    Missing {
        what: "`mail`",
        instead: "leave it to nginx on addresses of its own, beside Freewheel",
        asked_by: "",
        modules: &["mail"],
        names: &[],
        variables: &[],
    },
    Missing {
        what: "memcached",
        instead: "let the application ask it, or keep its answers with `proxy_cache`",
        asked_by: "",
        modules: &["http_memcached"],
        names: &[],
        variables: &["memcached_key"],
    },
    Missing {
        what: "HTTP/3",
        instead: "let the server in front speak it; switches that are `off` are taken",
        asked_by: "",
        modules: &["http_v3", "quic"],
        names: &[],
        variables: &["http3", "quic"],
    },
    Missing {
        what: "databases of MaxMind's GeoIP",
        instead: "make the same variables of the networks with `geo`",
        asked_by: "",
        modules: &["http_geoip"],
        names: &[],
        variables: &["geoip_"],
    },
    Missing {
        what: "changing pictures",
        instead: "pass requests for them on to a service that does (imgproxy, nginx), behind `proxy_cache`",
        asked_by: "",
        modules: &["http_image"],
        names: &[],
        variables: &[],
    },
    Missing {
        what: "XSLT",
        instead: "transform in the application, or in an nginx behind `proxy_cache`",
        asked_by: "",
        modules: &["http_xslt"],
        names: &[],
        variables: &[],
    },
];

/// All features of nginx that are not implemented.
#[must_use]
pub fn all() -> &'static [Missing] {
    ALL
}

/// The missing feature that a directive of this module and name belongs to.
#[must_use]
pub fn of(module: &str, name: &str) -> Option<&'static Missing> {
    let begins = |text: &str, list: &[&str]| list.iter().any(|begin| text.starts_with(begin));
    ALL.iter()
        .find(|missing| begins(module, missing.modules) || begins(name, missing.names))
}

/// The missing feature that a variable of this name (without `$`) belongs to.
#[must_use]
pub fn of_variable(name: &str) -> Option<&'static Missing> {
    let begins = |missing: &&Missing| {
        missing
            .variables
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    ALL.iter().find(begins)
}

impl Missing {
    /// The feature and what to do without it: a sentence without its full stop.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{} is not built yet: {}", self.what, self.instead).replace('`', "\"")
    }
}

impl KnownDirective {
    /// The missing feature that the directive belongs to.
    #[must_use]
    pub fn missing(&self) -> Option<&'static Missing> {
        of(self.module, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fate, all as rows};
    use super::*;

    #[test]
    fn every_directive_that_is_not_built_says_what_is_missing_and_every_part_has_some() {
        let mut used = Vec::new();
        for row in rows().iter().filter(|row| row.fate == Fate::NotYet) {
            // Of the modules that are built, the tables are asked first.
            if let Some(missing) = row.missing() {
                used.push(missing.what);
            }
        }
        for missing in ALL {
            let is_used = used.contains(&missing.what);
            assert_eq!(is_used, missing.asked_by.is_empty(), "{}", missing.what);
        }
        assert_eq!(
            of("stream_proxy", "proxy_ssl").map(|m| m.what),
            Some("`stream` (TCP and UDP)")
        );
        assert_eq!(of("http_proxy", "proxy_pass"), None);
    }
}
