//! What gets better by itself, by what a configuration uses.
//!
//! Invariant: each sentence is one that docs/differences.md, docs/cache-directories.md or docs/upgrading.md has at more length.

use config::Tree;

/// A gain: the lines of which a configuration has one (none: every configuration), and the sentence.
struct Gain {
    lines: &'static [&'static str],
    sentence: &'static str,
}

const GAINS: &[Gain] = &[
    Gain {
        lines: &[],
        sentence: "a file that is not in memory is read by a thread of a pool: other requests do not wait for the disk",
    },
    Gain {
        lines: &[],
        sentence: "a reload ends no kept connection, and a configuration that the worker refuses changes nothing",
    },
    Gain {
        lines: &["aio"],
        sentence: "aio threads: what is in memory is sent at once and never waits behind the reads of a pool",
    },
    Gain {
        lines: &["open_file_cache"],
        sentence: "open_file_cache: files are kept open without it, too, and each use sees whether the file has changed: \
                   the lines may go",
    },
    Gain {
        lines: &["access_log", "error_log"],
        sentence: "logs: lines are written by a thread of their own, so a slow disk of logs does not hold the loops",
    },
    Gain {
        lines: &["proxy_cache", "fastcgi_cache", "uwsgi_cache", "scgi_cache"],
        sentence: "caches: a response is used while it is still being fetched, a disk that fails or is slow fails no request, \
                   and max_size is never exceeded",
    },
    Gain {
        lines: &[
            "proxy_cache_lock",
            "fastcgi_cache_lock",
            "uwsgi_cache_lock",
            "scgi_cache_lock",
        ],
        sentence: "cache locks: the other requests follow the first one's fetch from its first byte on",
    },
    Gain {
        lines: &["upstream"],
        sentence: "upstreams: all loops count failures and connections of a server together, with and without \"zone\", and a \
                   reload keeps the state of a group that it does not change",
    },
    Gain {
        lines: &["gzip", "brotli", "zstd"],
        sentence: "compression: work of more than about 100 µs is done by threads of its own",
    },
    Gain {
        lines: &["auth_basic_user_file"],
        sentence: "passwords: they are checked in a pool, and a right one is remembered for a minute",
    },
    Gain {
        lines: &["proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass"],
        sentence: "buffering: temporary files are written by a pool, and a disk that refuses one costs no response",
    },
    Gain {
        lines: &["dav_methods"],
        sentence: "WebDAV: a file is replaced as a whole, and a move that fails half-way leaves the original",
    },
];

/// The sentences for a configuration.
#[must_use]
pub(super) fn of(tree: &Tree) -> Vec<&'static str> {
    let has = |names: &[&str]| {
        let mut is_there = false;
        tree.each(&mut |line| {
            let is_off = line.args.len() == 1 && line.args[0] == "off";
            is_there |= !is_off && names.iter().any(|name| line.name == *name);
        });
        names.is_empty() || is_there
    };
    let mut all = Vec::new();
    for gain in GAINS {
        if has(gain.lines) {
            all.push(gain.sentence);
        }
    }
    all
}
