//! The complete grammar of nginx 1.31.5: every directive of its public modules, implemented here or not.
//!
//! With it a configuration is accepted or refused knowingly: a directive that nginx knows is never called unknown, and
//! one that is not obeyed gets a message with the reason. It does not say what *is* implemented: the `directives!`
//! tables do, and they are consulted first. A row's [`Fate`] applies only where no table has the name in that context.
//!
//! Facts only, taken from nginx's command tables: names, contexts, numbers of arguments. A name has one row per nginx
//! module that knows it.
//!
//! Invariant: within a module the rows are sorted by name, and no name occurs twice.

mod core;
pub mod foreign;
mod http;
mod mail;
pub mod missing;
mod passes;
mod row;
mod stream;

use std::sync::LazyLock;

pub use row::{Fate, KnownDirective};

use crate::table::context::Context;

/// Every row, sorted by name; the rows of one name in the order of the modules, outermost first.
static ALL: LazyLock<Vec<KnownDirective>> = LazyLock::new(|| {
    let tables = [
        core::ROWS,
        http::ROWS,
        passes::ROWS,
        stream::ROWS,
        mail::ROWS,
    ];
    let mut all = tables.concat();
    all.sort_by_key(|known| known.name);
    all
});

/// Every directive of nginx, sorted by name; a name occurs once for each module that knows it.
#[must_use]
pub fn all() -> &'static [KnownDirective] {
    &ALL
}

/// The rows of this name; none if nginx does not know it.
#[must_use]
pub fn find(name: &[u8]) -> &'static [KnownDirective] {
    let all = all();
    let start = all.partition_point(|known| known.name.as_bytes() < name);
    let length = all[start..].partition_point(|known| known.name.as_bytes() == name);
    &all[start..start + length]
}

/// The row of this name in a single context; `None` if nginx does not know the name there.
#[must_use]
pub fn find_in(name: &[u8], place: Context) -> Option<&'static KnownDirective> {
    find(name).iter().find(|known| known.contexts.meets(place))
}

/// Directives that nginx or a module no longer has, with what replaces them.
const GONE: &[(&str, &str)] = &[
    (
        "ssl",
        "nginx took it away with 1.25.1: \"listen … ssl\" says it; without TLS leave the line out",
    ),
    (
        "limit_zone",
        "nginx took it away with 1.7.6: \"limit_conn_zone\" says it",
    ),
    ("brotli_quality", "\"brotli_comp_level\" says it"),
    ("brotli_level", "\"brotli_comp_level\" says it"),
    ("brotli_min_len", "\"brotli_min_length\" says it"),
    ("brotli_mime_types", "\"brotli_types\" says it"),
];

/// Why nginx or a module no longer has a directive.
#[must_use]
pub fn gone(name: &[u8]) -> Option<&'static str> {
    let mut gone = GONE.iter();
    gone.find(|(known, _)| known.as_bytes() == name)
        .map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rows nginx 1.31.5 has, counted in its command tables.
    const ROWS_OF_NGINX: usize = 784;
    const NAMES_OF_NGINX: usize = 656;

    #[test]
    fn every_row_of_nginx_is_there_once() {
        assert_eq!(all().len(), ROWS_OF_NGINX);
        let mut names: Vec<_> = all().iter().map(|known| known.name).collect();
        names.dedup();
        assert_eq!(names.len(), NAMES_OF_NGINX);
        let mut rows: Vec<_> = all()
            .iter()
            .map(|known| (known.name, known.module))
            .collect();
        rows.sort_unstable();
        let before = rows.len();
        rows.dedup();
        assert_eq!(rows.len(), before, "a name stands twice in a module");
    }

    #[test]
    fn the_tables_are_sorted_within_each_module() {
        for table in [
            core::ROWS,
            http::ROWS,
            passes::ROWS,
            stream::ROWS,
            mail::ROWS,
        ] {
            for pair in table.windows(2) {
                assert!(
                    (pair[0].module, pair[0].name) < (pair[1].module, pair[1].name),
                    "{} {} stands before {} {}",
                    pair[0].module,
                    pair[0].name,
                    pair[1].module,
                    pair[1].name
                );
            }
        }
    }

    #[test]
    fn no_two_modules_claim_the_same_name_in_the_same_place() {
        for known in all() {
            for (place, _) in Context::NAMES {
                let claims = find(known.name.as_bytes()).iter();
                let modules: Vec<_> = claims
                    .filter(|row| row.contexts.meets(*place))
                    .map(|row| row.module)
                    .collect();
                assert!(modules.len() <= 1, "{} in {place}: {modules:?}", known.name);
            }
        }
    }

    #[test]
    fn a_name_is_found_with_every_module_that_knows_it() {
        let modules = |name: &str| {
            find(name.as_bytes())
                .iter()
                .map(|row| row.module)
                .collect::<Vec<_>>()
        };
        assert_eq!(modules("proxy_pass"), ["http_proxy", "stream_proxy"]);
        assert_eq!(
            modules("keepalive_timeout"),
            ["http_core", "http_upstream_keepalive"]
        );
        assert_eq!(modules("daemon"), ["core"]);
        assert!(find(b"no_such_directive").is_empty());
        assert!(find(b"").is_empty());
        assert!(find(b"zzz").is_empty());
    }

    #[test]
    fn the_place_chooses_the_row() {
        let row = |place| find_in(b"return", place);
        assert_eq!(
            row(Context::LOCATION).map(|row| row.module),
            Some("http_rewrite")
        );
        assert!(row(Context::LOCATION).is_some_and(|row| row.args.accepts(2)));
        assert_eq!(
            row(Context::STREAM_SERVER).map(|row| row.module),
            Some("stream_return")
        );
        assert!(row(Context::STREAM_SERVER).is_some_and(|row| !row.args.accepts(2)));
        assert!(row(Context::HTTP).is_none());
    }

    #[test]
    fn blocks_and_counts_are_those_of_nginx() {
        let row = |name: &str, place| find_in(name.as_bytes(), place).unwrap();
        assert!(row("location", Context::SERVER).args.has_block());
        assert!(row("location", Context::LOCATION).args.accepts(2));
        assert!(!row("location", Context::LOCATION).args.accepts(3));
        assert!(!row("root", Context::HTTP).args.has_block());
        assert!(row("sendfile", Context::LOCATION_IF).args.is_flag());
        assert!(row("include", Context::STREAM_UPSTREAM).args.accepts(1));
        assert!(row("internal", Context::LOCATION).args.accepts(0));
    }

    #[test]
    fn common_directives_are_not_refused() {
        for name in ["types_hash_max_size", "variables_hash_max_size"] {
            let row = find_in(name.as_bytes(), Context::HTTP).unwrap();
            assert!(matches!(row.fate, Fate::Met(_)), "{name}");
        }
        assert_eq!(
            find_in(b"fastcgi_pass", Context::LOCATION).unwrap().fate,
            Fate::NotYet
        );
    }
}
