//! What the families of directives share: `fastcgi_…`, `uwsgi_…`, `scgi_…` and `grpc_…` have most of their directives in
//! common with `proxy_…`.
//!
//! It is declared once, under the names of `proxy_…` ([`FamilySettings`]), and implemented once: where another family passes a
//! location's requests on, that family's lines take the place of those of `proxy_…` when the location is built. Not
//! here: their names (`family`), and what a family has alone. Invariant: code that serves reads the location's
//! settings, and knows no family's names.

use std::sync::{Arc, OnceLock};

use config::{
    Args, Directive, DirectiveEntry, DirectiveTable, Error, Group, InheritanceLevel, Problem,
    Renamed, Scope, Section, sections,
};

use crate::settings::cache_path;
use crate::settings::cache_path::Zones;
use crate::settings::caching::Caching;
use crate::settings::directives::{ProxyAnswers, ProxyRewrites, RequestSettings};
use crate::settings::family::{DECLARED, Family};
use crate::settings::ssl::{GrpcSsl, ProxySsl, UwsgiSsl};
use crate::settings::store::ProxyStore;
use crate::settings::{proxy_pass, store};

sections! {
    /// The settings that the families share.
    pub struct FamilySettings {
        /// [`RequestSettings`].
        pub asking: RequestSettings,
        /// [`ProxyAnswers`].
        pub answers: ProxyAnswers,
        /// [`ProxyStore`].
        pub store: ProxyStore,
        /// [`Caching`].
        pub caching: Caching,
    }
}

/// A family's settings at one level.
pub type RawFamilySettings = <FamilySettings as Section>::Raw;

/// Texts of the manual that are others than those of `proxy_…`, by what stands behind the prefix.
const TEXTS: &[(&str, &str)] = &[
    (
        "hide_header",
        "Removes a header field from responses. `X-Accel-…` are removed by default, and `Status` (not with uwsgi).",
    ),
    (
        "cache_key",
        "Sets the key that a response is stored under. Without it all responses have one key, and a warning is logged. HEAD is \
         passed on as HEAD; its response is stored only if `$request_method` is part of the key.",
    ),
    (
        "no_cache",
        "Does not store the response if one of the values is neither empty nor `0`. They may use the response's header fields.",
    ),
    (
        "next_upstream",
        "Sets the failures and statuses after which a request is passed to the next server, as `proxy_next_upstream` does, but \
         without `http_502` and `http_504`.",
    ),
];

/// The same of gRPC.
const GRPC_TEXTS: &[(&str, &str)] = &[(
    "hide_header",
    "Removes a header field from responses. `Date`, `Server` and `X-Accel-…` are removed by default.",
)];

/// The lines of a family at one level, as far as they are shared.
macro_rules! shared {
    ($($(#[$meta:meta])* $Shared:ident $title:literal)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone)]
            pub struct $Shared(FamilySettings);

            config::own!($Shared);

            impl Section for $Shared {
                type Raw = RawFamilySettings;

                fn tables() -> Vec<&'static DirectiveTable> {
                    static TABLE: OnceLock<&'static DirectiveTable> = OnceLock::new();
                    vec![TABLE.get_or_init(|| Box::leak(Box::new(table(Family::$Shared, $title))))]
                }

                fn set(raw: &mut Self::Raw, line: &Directive, scope: &mut Scope) -> Result<bool, Error> {
                    set(Family::$Shared, raw, line, scope)
                }

                fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw {
                    FamilySettings::merge(parent, child)
                }

                fn fill(raw: &mut Self::Raw, scope: &mut Scope) -> Result<(), Error> {
                    FamilySettings::fill(raw, scope)
                }

                fn finish(raw: Self::Raw, scope: &mut Scope) -> Result<Self, Error> {
                    FamilySettings::finish(raw, scope).map(Self)
                }
            }
        )*
    };
}

shared! {
    /// `fastcgi_…`.
    Fastcgi "FastCGI: directives shared with proxying"
    /// `uwsgi_…`.
    Uwsgi "uwsgi: directives shared with proxying"
    /// `scgi_…`.
    Scgi "SCGI: directives shared with proxying"
    /// `grpc_…`.
    Grpc "gRPC: directives shared with proxying"
}

/// What `…_next_upstream` and `…_cache_use_stale` of a family may not name, unlike those of `proxy_…`, and why.
fn refused_answers(family: Family) -> (&'static [&'static str], &'static str) {
    match family {
        Family::Grpc => (&["updating"], "gRPC has no cache"),
        _ => (&["http_502", "http_504"], "only HTTP servers have it"),
    }
}

fn set(
    family: Family,
    raw: &mut RawFamilySettings,
    line: &Directive,
    scope: &mut Scope,
) -> Result<bool, Error> {
    let Some(name) = family.declared(line.name.bytes()) else {
        return Ok(false);
    };
    let is_choice = matches!(&name[..], b"proxy_next_upstream" | b"proxy_cache_use_stale");
    if is_choice {
        let (refused, why) = refused_answers(family);
        let mut args = line.args.iter();
        if let Some(at) = args.position(|word| refused.iter().any(|one| *word == *one)) {
            let sentence = format!("invalid value \"{}\"", line.args[at].display());
            let problem = Problem::new(sentence).hint_that(why);
            return Err(line.error(&problem.at(at)));
        }
    }
    let asking = &mut raw.asking;
    Ok(
        asking.take_in(|raw| RequestSettings::set_as(raw, &name, line, scope))?
            || (raw.answers).take_in(|raw| ProxyAnswers::set_as(raw, &name, line, scope))?
            || (raw.store).take_in(|raw| ProxyStore::set_as(raw, &name, line, scope))?
            || (raw.caching).take_in(|raw| Caching::set_as(raw, &name, line, scope))?,
    )
}

/// The shared directives under a family's names.
fn table(family: Family, title: &str) -> DirectiveTable {
    let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let own = |entry: &DirectiveEntry| {
        let texts = match family {
            Family::Grpc => GRPC_TEXTS,
            _ => TEXTS,
        };
        let text = entry.name.strip_prefix(DECLARED).and_then(|rest| {
            let mut texts = texts.iter().filter(|(name, _)| *name == rest);
            texts.next().map(|(_, text)| (*text).to_owned())
        });
        let (refused, _) = refused_answers(family);
        let syntax = refused.iter().fold(entry.syntax.to_owned(), |syntax, one| {
            syntax.replace(&format!(" | {one}"), "")
        });
        DirectiveEntry {
            name: leaked(family.renamed(entry.name)),
            syntax: leaked(syntax),
            doc: leaked(text.unwrap_or_else(|| family.renamed(entry.doc))),
            args: match (family, entry.name) {
                // nginx's table has it so. What may stand there is the same.
                (Family::Uwsgi, "proxy_cache_background_update") => Args::from(1),
                _ => entry.args,
            },
            ..entry.clone()
        }
    };
    let shared = FamilySettings::tables();
    let tables = shared.iter().copied().chain([cache_path::lines()]);
    DirectiveTable {
        name: leaked(format!("{family:?}")),
        doc: leaked(format!(
            "{title}.\n\nEach of these works like its `proxy_…` counterpart. `{}pass` and its other directives are on a page of their own.",
            family.prefix()
        )),
        level: InheritanceLevel::Location,
        entries: tables
            .flat_map(|table| &table.entries)
            .filter(|entry| {
                let rest = entry.name.strip_prefix(DECLARED);
                rest.is_none_or(|rest| family.has(rest.as_bytes()))
            })
            .map(own)
            .collect(),
    }
}

/// A level that says one of `…_store` and `…_cache` switches the other one of the level around off.
pub fn settle_stores(
    stores: (&mut Group<ProxyStore>, &mut Group<Caching>),
    fastcgi: &mut Group<Fastcgi>,
    uwsgi: &mut Group<Uwsgi>,
    scgi: &mut Group<Scgi>,
) {
    store::settle(stores.0, stores.1);
    fn settle<S: Section<Raw = RawFamilySettings>>(family: &mut Group<S>) {
        if family.get().is_some() {
            let policy = family.edit();
            store::settle(&mut policy.store, &mut policy.caching);
        }
    }
    settle(fastcgi);
    settle(uwsgi);
    settle(scgi);
}

/// The settings of a location that depend on the family that passes its requests on.
#[expect(missing_docs, reason = "each is the group of its name")]
pub struct FamilyDependent<'a> {
    pub asking: &'a mut Arc<RequestSettings>,
    pub answers: &'a mut Arc<ProxyAnswers>,
    pub store: &'a mut Arc<ProxyStore>,
    pub caching: &'a mut Arc<Caching>,
    pub rewrites: &'a mut Arc<ProxyRewrites>,
    pub ssl: &'a mut Arc<ProxySsl>,
    pub fastcgi: &'a Fastcgi,
    pub uwsgi: &'a Uwsgi,
    pub scgi: &'a Scgi,
    pub grpc: &'a Grpc,
    pub uwsgi_ssl: &'a UwsgiSsl,
    pub grpc_ssl: &'a GrpcSsl,
}

/// Replaces the lines of `proxy_…` by those of the family that passes the location's requests on, and checks those that
/// are not obeyed. Returns that family, if there is one.
///
/// # Errors
/// The directives contradict each other.
pub fn settle(
    policies: &mut FamilyDependent<'_>,
    chosen: Option<Family>,
    zones: &Zones,
    scope: &mut Scope,
) -> Result<(), Error> {
    check(
        Family::Proxy,
        policies.answers,
        policies.store,
        policies.caching,
    )?;
    zones.check(Family::Proxy, policies.caching)?;
    for family in Family::OTHERS {
        let said = match family {
            Family::Proxy => continue,
            Family::Fastcgi => &policies.fastcgi.0,
            Family::Uwsgi => &policies.uwsgi.0,
            Family::Scgi => &policies.scgi.0,
            Family::Grpc => &policies.grpc.0,
        };
        check(family, &said.answers, &said.store, &said.caching)?;
        zones.check(family, &said.caching)?;
        if chosen == Some(family) {
            let mut policy = said.clone();
            if family == Family::Grpc {
                stream(&mut policy);
            }
            warn_of_key(family, &policy.caching, scope);
            *policies.asking = policy.asking;
            *policies.answers = policy.answers;
            *policies.store = policy.store;
            *policies.caching = policy.caching;
            *policies.ssl = match family {
                Family::Grpc => Arc::clone(&policies.grpc_ssl.0.ssl),
                _ => Arc::clone(&policies.uwsgi_ssl.0.ssl),
            };
            // A gateway's response is its own: nothing in it is rewritten.
            *policies.rewrites = Arc::new(ProxyRewrites::finish(Default::default(), scope)?);
        }
    }
    Ok(())
}

/// gRPC streams both ways, as in nginx, which has no directives for it.
fn stream(policy: &mut FamilySettings) {
    Arc::make_mut(&mut policy.asking).proxy_request_buffering = false;
    Arc::make_mut(&mut policy.answers).proxy_buffering = false;
}

/// Without a key all answers would be the same one; nginx says so, too.
fn warn_of_key(family: Family, caching: &Caching, scope: &mut Scope) {
    if caching.is_on() && caching.proxy_cache_key.is_none() {
        let sentence = family.renamed("no \"proxy_cache_key\" for \"proxy_cache\"");
        scope.warn(caching.proxy_cache.error(sentence));
    }
}

fn check(
    family: Family,
    answers: &ProxyAnswers,
    store: &ProxyStore,
    caching: &Caching,
) -> Result<(), Error> {
    // gRPC has one buffer.
    if family != Family::Grpc {
        proxy_pass::check_buffers(family, answers)?;
    }
    store::check(family, store, caching)
}
