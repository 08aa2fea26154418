//! The meaning of a configuration: immutable, shared by all loops, addressed by index.
//!
//! Built once (`server::settings::build`) from the tree that `config` read, in the master (to check it) and in the worker (to use it);
//! blocking work (names, regexes) is done then. The directives that the core obeys stand here, a file each group, and need no
//! request; what obeys them stands above. Not here: the directives of modules. Invariant: every `ServerId` and `LocationId` that leaves the builder is valid.

pub mod admission;
pub mod conditions;
pub mod connections;
pub mod core;
pub mod error_pages;
pub mod files;
pub mod given;
pub mod http2;
mod logs;
pub mod post_action;
pub mod redirects;
pub mod request_body;
pub mod rewrite_messages;
pub mod root;
pub mod server;
pub mod server_tokens;
pub mod subrequests;
pub mod types;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock};

use ::logs::format::Formats;
use ::logs::{AccessLogs, ErrorLogs};
use bytes::Bytes;
use config::{Groups, MadeOfAll, MadeOfLocation, Own, VariableSet};
use disk::Pool;
use message::Methods;
use runtime::listen;
use wire::http1::request_parser::HeadLimits;

pub use self::core::CoreSettings;
use crate::route::{LocationId, Locations, ServerId, ServerNames};
use crate::tls::ServerTls;
use ::logs::getaddrinfo::Hosts;
pub use http2::Http2Settings;
pub use server::ServerSettings;
use slots::Slotted;

/// Maximum number of roots that are probed when a configuration is taken over.
pub const ROOTS_MAX: usize = 256;

/// A whole configuration.
#[derive(Debug, Default)]
pub struct Settings {
    /// The base directory of relative paths of data; ends in a slash.
    pub prefix: PathBuf,
    /// The configuration's directory, the base of relative paths of users' files; ends in a slash.
    pub conf_prefix: PathBuf,
    /// The machine's name (`$hostname`).
    pub hostname: Bytes,
    /// Every address with its servers.
    pub listens: listen::Table,
    /// The names of the servers of each entry of `listens`.
    pub names: Vec<ServerNames>,
    /// What modules have made of it ([`Settings::made`]).
    pub made: MadeOfAll,
    /// The names that are looked up while it is built.
    pub hosts: Hosts,
    /// `$realpath_root` and the variables that are made of it, if it is used anywhere.
    pub realpath_variables: VariableSet,
    /// Whether the time of a response's first byte is used anywhere.
    pub wants_first_byte: bool,
    /// The names of `status_zone`, each once.
    pub status_zones: Vec<String>,
    /// Number of caches of `open_file_cache`.
    pub stale_files: usize,
    /// The formats of `log_format`.
    pub log_formats: Formats,
    /// Every server, by [`ServerId`].
    pub servers: Vec<Server>,
    /// Every location, servers' own included, by [`LocationId`].
    pub locations: Vec<Location>,
}

impl Settings {
    /// A server of this configuration.
    #[must_use]
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id as usize]
    }

    /// The server that a name in a handshake of TLS means at an address, by the address' index; `None`: the default one.
    /// It stands in for one that a match that fails leaves open; requests with that host are refused.
    #[must_use]
    pub fn server_of_name(&self, entry: usize, name: Option<&[u8]>) -> Option<ServerId> {
        let host = message::host::parse(name?).ok()?;
        let named = self.names.get(entry)?.find(&host.name).ok()??;
        Some(named.server)
    }

    /// A location of this configuration.
    #[must_use]
    pub fn location(&self, id: LocationId) -> &Location {
        &self.locations[id as usize]
    }

    /// The directories of every `root` and `alias` without variables, each once, at most [`ROOTS_MAX`].
    #[must_use]
    pub fn roots(&self) -> Vec<Bytes> {
        let mut roots: Vec<Bytes> = Vec::new();
        for path in self
            .locations
            .iter()
            .filter_map(|l| l.settings.root.path.literal())
        {
            if !roots.contains(path) && roots.len() < ROOTS_MAX {
                roots.push(path.clone());
            }
        }
        roots
    }

    /// What a module has made of it; if nothing, then the default.
    #[inline]
    #[must_use]
    pub fn made<T: Slotted + Default + Send + Sync>(&self) -> &T {
        self.made.get_or_init(T::default)
    }
}

/// A `server` block.
#[derive(Debug)]
pub struct Server {
    /// Its first name (`$server_name`), empty when it has none.
    pub name: Bytes,
    /// Its settings for reading requests.
    pub settings: ServerSettings,
    /// The limits of a request header, out of these settings.
    pub limits: HeadLimits,
    /// Its settings for HTTP/2.
    pub http2: Arc<Http2Settings>,
    /// The location that stands for the server itself; its `inner` are the server's locations.
    pub location: LocationId,
    /// Its locations `@name`, in the order of the configuration.
    pub named: Vec<(Bytes, LocationId)>,
    /// TLS; `None`: it has none.
    pub tls: Option<Arc<ServerTls>>,
}

impl Server {
    /// The location `@name` (`@` included).
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<LocationId> {
        self.named
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, location)| *location)
    }
}

/// The logs of a configuration that was only checked.
static NO_LOGS: LazyLock<Arc<(AccessLogs, ErrorLogs)>> = LazyLock::new(Default::default);

impl Location {
    /// Its settings for a module.
    #[inline]
    #[must_use]
    pub fn own<S: Own>(&self) -> &S {
        self.groups.own()
    }

    /// What a module has made of its directives here.
    #[inline]
    #[must_use]
    pub fn made<T: Slotted + Send + Sync>(&self) -> Option<&T> {
        self.made.get()
    }

    /// Its settings for all modules.
    #[must_use]
    pub fn groups(&self) -> &dyn Groups {
        &*self.groups
    }

    /// Its logs of requests.
    #[must_use]
    pub fn access_logs(&self) -> &AccessLogs {
        &self.logs.get().unwrap_or(&*NO_LOGS).0
    }

    /// Its logs of errors.
    #[must_use]
    pub fn error_logs(&self) -> &ErrorLogs {
        &self.logs.get().unwrap_or(&*NO_LOGS).1
    }
}

/// `limit_except` of a location.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// The methods of requests that stay.
    pub allowed: Methods,
    /// The location for all other requests.
    pub location: LocationId,
}

/// A `location` block, or the part of a server outside of any.
#[derive(Debug)]
pub struct Location {
    /// As written, without its modifier; empty for the server itself.
    pub name: Bytes,
    /// Its settings for the core.
    pub settings: CoreSettings,
    /// Its settings for modules.
    pub groups: Box<dyn Groups>,
    /// What modules have made of their directives ([`Location::made`]).
    pub made: MadeOfLocation,
    /// The locations inside.
    pub inner: Locations,
    /// Whether it is the scope of an `if`, which needs more than the URI to match.
    pub is_conditional: bool,
    /// The requests that continue in another location (`limit_except`).
    pub exception: Option<Exception>,
    /// Whether it is `internal`.
    pub is_internal: bool,
    /// The place of its block in the configuration's text, which another one may have that includes the same file.
    pub place: Option<config::TextPlace>,
    /// The location around it; `None`: it stands for a server.
    pub outer: Option<LocationId>,
    /// Its logs, once [`Settings::equip`] has been called.
    pub logs: OnceLock<Arc<(AccessLogs, ErrorLogs)>>,
    /// Whether its requests are passed on to another server (`proxy_pass` and its kin, `tunnel_pass`).
    pub is_passed_on: bool,
    /// Whether a step before the content has something to do here; if not, they are left out.
    pub has_steps_before: bool,
    /// Whether a module may make content here, beside what passes requests on and plain files; if not, none is asked.
    pub has_content: bool,
    /// Whether clients may get different files for the same URI.
    pub has_variants: bool,
    /// Whether it has filters that may read the bytes of bodies.
    pub has_filters: bool,
    /// Its `status_zone`, among those of the configuration.
    pub zone: Option<usize>,
    /// Its `open_file_cache`, among those of the configuration: locations that have theirs from the same level share it.
    pub stale_files: Option<usize>,
    /// Its thread pool, set on first use (unless the name has variables).
    pub pool: OnceLock<Pool>,
}
