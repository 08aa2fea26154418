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
mod stream;

use std::sync::LazyLock;

use crate::args::Args;
use crate::context::Context;

/// One directive of one nginx module.
#[derive(Clone, Copy, Debug)]
pub struct KnownDirective {
    /// The directive's name.
    pub name: &'static str,
    /// Where nginx allows it.
    pub contexts: Context,
    /// How many arguments nginx takes, and whether a block follows.
    pub args: Args,
    /// nginx's module, named as in its documentation without `ngx_` and `_module`: `http_core`, `stream_proxy`.
    pub module: &'static str,
    /// What becomes of it where no table of ours has it.
    pub fate: Fate,
}

/// What becomes of a directive of nginx that is not implemented here. Each reason is a clause that completes a
/// sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Planned; until then a configuration with it is refused.
    NotYet,
    /// Ignoring it changes no response: one warning, with the reason.
    Ignored(&'static str),
    /// Will never be implemented: a configuration with it is refused, with the reason.
    Refused(&'static str),
}

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

const TABLES_GROW: Fate = Fate::Ignored("Freewheel's tables take the size that they need");
const NO_MEMORY_POOLS: Fate =
    Fate::Ignored("Freewheel does not take memory in pools of a fixed size");
const ONE_SEND: Fate =
    Fate::Ignored("Freewheel always sends the head and what is ready of the body together");
const NO_LOW_WATER: Fate =
    Fate::Ignored("Linux has no low-water mark for sending, and nginx does nothing with it there");
const LOOP_BUFFER: Fate =
    Fate::Ignored("a piece is read into a buffer of its loop, and an idle tunnel holds none");
const NO_MUTEX: Fate =
    Fate::Ignored("each loop has its own listening socket, so there is no mutex to take");
const OWN_EVENTS: Fate = Fate::Ignored("the event loops size their own lists of events");
const EPOLL_ONLY: Fate = Fate::Ignored("Freewheel's loops always use epoll");
const ACCEPTS_ALL: Fate = Fate::Ignored("a loop always accepts the connections that are waiting");
const ALWAYS_JIT: Fate =
    Fate::Ignored("regular expressions are always compiled to machine code where PCRE2 can");
const NO_DEBUG: Fate =
    Fate::Ignored("Freewheel has no debugging log; nginx without --with-debug ignores it too");
const OBSOLETE: Fate = Fate::Ignored("it is obsolete, and nginx ignores it too");
const NO_STORED_BODY: Fate = Fate::Ignored(
    "only what passes requests on stores their bodies, and nothing of that is built yet",
);
const TEXTS_ARE_READ: Fate =
    Fate::Ignored("Freewheel sends all parts of a page with commands from memory");
const NO_RECYCLED_BUFFERS: Fate = Fate::Ignored("Freewheel does not recycle buffers");
const NO_INTERIM: Fate =
    Fate::Ignored("early hints of servers that requests are passed on to are not passed on yet");
const NO_NAMES: Fate = Fate::Ignored("nothing that asks for names while it serves is built yet");
const NO_KQUEUE: Fate = Fate::Ignored("it is for kqueue, and nginx does nothing with it on Linux");
const NO_HTTP2: Fate = Fate::Ignored("it has no effect without HTTP/2, which is not built yet");
const NO_TLS: Fate = Fate::Ignored(
    "it has no effect without TLS, which is not built yet and which \"listen\" refuses",
);
const NO_TLS_BEHIND: Fate = Fate::Ignored(
    "it has no effect without TLS to other servers, which is not built yet and without which none is asked over \"https://\"",
);
const GZIP_MEMORY: Fate =
    Fate::Ignored("answers are compressed piece by piece, with the memory that a piece needs");
const GZIP_HASH: Fate = Fate::Ignored("the compressor chooses the size of its tables itself");
const OTHER_SYSTEM: Fate =
    Fate::Refused("it belongs to an event method of another operating system");
const NO_PERFTOOLS: Fate =
    Fate::Refused("the profiler of Google's performance tools is not linked; use perf");
const NO_SBRK: Fate =
    Fate::Refused("it watches the heap's break, which this program's allocator does not use");
const NO_PERL: Fate = Fate::Refused("there is no Perl interpreter in Freewheel");
const NO_ENGINE: Fate = Fate::Refused("engines are OpenSSL's, and Freewheel does not use OpenSSL");

/// Turns `"module" { "name": [CONTEXT | …] arguments [block] [=> FATE]; … } …` into `ROWS`. The arguments are as in the
/// `directives!` tables: `1`, `(1..=2)`, `(2..)`, `FLAG`.
macro_rules! rows {
    ($($module:literal {
        $($name:literal: [$($context:ident)|+] $args:tt $($block:ident)? $(=> $fate:ident)?;)*
    })*) => {
        pub(super) const ROWS: &[super::KnownDirective] = &[$($(super::KnownDirective {
            name: $name,
            contexts: $crate::context::Context::NONE$(.or($crate::context::Context::$context))+,
            args: super::arguments!($args)$(.$block())?,
            module: $module,
            fate: super::fate!($($fate)?),
        },)*)*];
    };
}

macro_rules! arguments {
    (FLAG) => {
        $crate::args::Args::FLAG
    };
    (($least:literal..=$most:literal)) => {
        $crate::args::Args::between($least, $most)
    };
    (($least:literal..)) => {
        $crate::args::Args::at_least($least)
    };
    ($count:literal) => {
        $crate::args::Args::exactly($count)
    };
}

macro_rules! fate {
    () => {
        super::Fate::NotYet
    };
    ($fate:ident) => {
        super::$fate
    };
}

use {arguments, fate, rows};

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
            assert!(matches!(row.fate, Fate::Ignored(_)), "{name}");
        }
        assert_eq!(
            find_in(b"fastcgi_pass", Context::LOCATION).unwrap().fate,
            Fate::NotYet
        );
    }
}
