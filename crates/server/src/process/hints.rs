//! Hints that need the whole configuration: the names that it declares, for a line that refers to one that it does not.
//!
//! Not here: what is an error, and hints that the text around it gives ([`config::Error::advised`]). Invariant: a hint
//! is only added, below nginx's sentence.

use config::known::{foreign, missing};
use config::suggest::of_declared;
use config::{Error, Tree};

/// The names that are shown at most, and the depth of blocks that are looked into, are bounded by the configuration itself.
struct Kind {
    /// The text around the name in the sentence.
    sentence: (&'static str, &'static str),
    /// The directives that refer to it, and the text before the name in the argument.
    named_by: (&'static [&'static str], &'static str),
    /// The directive that declares it, and the text before the name in its argument (the name ends at a colon then).
    declared_by: (&'static str, &'static str),
    /// A name that exists without a declaration.
    built_in: Option<&'static str>,
}

const NO_ZONE: (&str, &str) = ("zero size shared memory zone \"", "\"");

/// Kinds with the same sentence are told apart by the directive that refers to the name.
const KINDS: &[Kind] = &[
    Kind {
        sentence: NO_ZONE,
        named_by: (&["limit_req"], "zone="),
        declared_by: ("limit_req_zone", "zone="),
        built_in: None,
    },
    Kind {
        sentence: NO_ZONE,
        named_by: (&["limit_conn"], ""),
        declared_by: ("limit_conn_zone", "zone="),
        built_in: None,
    },
    Kind {
        sentence: ("\"proxy_cache\" zone \"", "\" is unknown"),
        named_by: (&["proxy_cache"], ""),
        declared_by: ("proxy_cache_path", "keys_zone="),
        built_in: None,
    },
    Kind {
        sentence: ("\"fastcgi_cache\" zone \"", "\" is unknown"),
        named_by: (&["fastcgi_cache"], ""),
        declared_by: ("fastcgi_cache_path", "keys_zone="),
        built_in: None,
    },
    Kind {
        sentence: ("\"uwsgi_cache\" zone \"", "\" is unknown"),
        named_by: (&["uwsgi_cache"], ""),
        declared_by: ("uwsgi_cache_path", "keys_zone="),
        built_in: None,
    },
    Kind {
        sentence: ("\"scgi_cache\" zone \"", "\" is unknown"),
        named_by: (&["scgi_cache"], ""),
        declared_by: ("scgi_cache_path", "keys_zone="),
        built_in: None,
    },
    Kind {
        sentence: ("unknown log format \"", "\""),
        named_by: (&["access_log"], ""),
        declared_by: ("log_format", ""),
        built_in: Some("combined"),
    },
    Kind {
        sentence: ("host not found in upstream \"", "\""),
        named_by: (
            &[
                "proxy_pass",
                "fastcgi_pass",
                "uwsgi_pass",
                "scgi_pass",
                "grpc_pass",
            ],
            "",
        ),
        declared_by: ("upstream", ""),
        built_in: None,
    },
    Kind {
        sentence: ("unknown thread pool \"", "\""),
        named_by: (&["aio"], "threads="),
        declared_by: ("thread_pool", ""),
        built_in: Some("default"),
    },
];

/// The error, with a hint about the name from the configuration.
pub(crate) fn add(error: Error, tree: &Tree) -> Error {
    if let Some(name) = between(error.sentence(), "unknown \"", "\" variable") {
        let told = missing::of_variable(name).map(|missing| missing.sentence());
        let told = told.or_else(|| foreign::told_of_variable(name));
        return error.with_hint(told.as_deref());
    }
    if error.hint().is_some() {
        return error;
    }
    let hint = KINDS
        .iter()
        .find_map(|kind| kind.hint(error.sentence(), error.place().is_none(), tree));
    error.with_hint(hint.as_deref())
}

impl Kind {
    fn hint(&self, sentence: &str, says_where: bool, tree: &Tree) -> Option<String> {
        let name = between(sentence, self.sentence.0, self.sentence.1)?;
        let at = match says_where {
            true => format!("{} names it; ", self.first_named(name, tree)?),
            false => String::new(),
        };
        let (by, before) = self.declared_by;
        let mut declared: Vec<String> = self
            .built_in
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        tree.each(&mut |line| {
            if line.name == by {
                declared.extend(
                    line.args
                        .iter()
                        .find_map(|word| declares(&word.display(), before)),
                );
            }
        });
        // It may be a host name, which no line declares.
        if by == "upstream" && (declared.is_empty() || name.contains(['.', ':'])) {
            return None;
        }
        Some(at + &of_declared(name.as_bytes(), &declared, by))
    }

    /// The first place where a line refers to it.
    fn first_named(&self, name: &str, tree: &Tree) -> Option<String> {
        let (lines, before) = self.named_by;
        let mut found = None;
        tree.each(&mut |line| {
            let is_it = |word: &str| word.strip_prefix(before) == Some(name);
            let names = lines.iter().any(|by| line.name == *by);
            if names && found.is_none() && line.args.iter().any(|word| is_it(&word.display())) {
                found = Some(format!("\"{}\" of {}", line.name.display(), line.place()));
            }
        });
        found
    }
}

/// The name that an argument declares.
fn declares(word: &str, before: &str) -> Option<String> {
    let name = word.strip_prefix(before)?;
    let end = if before.is_empty() {
        None
    } else {
        name.find(':')
    };
    Some(name[..end.unwrap_or(name.len())].to_owned())
}

fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.strip_suffix(behind)
}
