//! Content from modules of other programs: the one open end of an otherwise closed list.
//!
//! A module names its directives and, where a location has what it needs, makes a [`Handler`] for that location. How
//! to write one: `docs/adding-a-module.md`. Invariant: a handler never blocks; blocking work goes through
//! [`run_in_pool`].

pub mod metrics;

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use config::made::LOCATION;
use config::{Directive, DirectiveTable, Error, MadeOfLocation, Placed, Scope, Section};
use disk::Lane;
use slots::slotted;

use crate::Failure;
use crate::files;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::settings::Location;
use crate::variables::block::VariableBlock;
use crate::variables::table::VariableEntry;
use metrics::ModuleMetrics;

/// The modules that a program is built with, beside the built-in ones.
pub type Modules = &'static [&'static dyn Module];

/// The future that a handler returns.
pub type Making<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// Makes the content of a location. Shared by all loops.
pub trait Handler: Debug + Send + Sync {
    /// Answers a request.
    fn make<'a>(&'a self, request: &'a mut Request) -> Making<'a>;

    /// Whether it passes requests on, so that `/a` is redirected to `/a/` if only that location exists.
    fn passes(&self) -> bool {
        false
    }
}

/// A module: directives, and what they make.
pub trait Module: Debug + Send + Sync {
    /// Its directives. They may stand in `http`, in servers and in locations, and their names must be new ones.
    fn tables(&self) -> Vec<&'static DirectiveTable>;

    /// Its variables ([`crate::variables!`]). Their names must be new ones.
    fn variables(&self) -> &'static [VariableEntry] {
        &[]
    }

    /// Its blocks of `http` that define a variable, as `map` does; their directives are in its tables.
    fn variable_blocks(&self) -> &'static [VariableBlock] {
        &[]
    }

    /// Its metrics ([`runtime::families!`]), whose counters its loops keep ([`runtime::timing::counters`]). Their names
    /// must be new ones.
    fn metrics(&self) -> Option<&'static ModuleMetrics> {
        None
    }

    /// Makes the handler of one location (or of what a server says outside of any); `None` where files are to answer.
    ///
    /// Called for every location of every configuration that is read, to check it, in the master too: nothing is opened here.
    ///
    /// # Errors
    /// An error in the directives, with its place.
    fn configure(
        &self,
        place: &Place<'_>,
        scope: &mut Scope,
    ) -> Result<Option<Arc<dyn Handler>>, Error>;
}

/// A location as a module sees it: the lines of modules there and around it.
#[derive(Debug)]
pub struct Place<'a> {
    levels: &'a [Vec<&'a Directive>],
    prefix: &'a Path,
    pools: &'a [Bytes],
}

impl<'a> Place<'a> {
    /// A location with its lines of modules, from the outside in, the base directory of relative paths, and the pools
    /// that are declared.
    #[must_use]
    pub fn new(levels: &'a [Vec<&'a Directive>], prefix: &'a Path, pools: &'a [Bytes]) -> Self {
        Self {
            levels,
            prefix,
            pools,
        }
    }

    /// The directory to which relative paths of data refer (`-p`).
    #[must_use]
    pub fn prefix(&self) -> &'a Path {
        self.prefix
    }

    /// The settings of a group of directives here: inherited, merged, and with the defaults.
    ///
    /// # Errors
    /// A wrong value, or a line that stands twice.
    pub fn settings<S: Section>(&self, scope: &mut Scope) -> Result<S, Error> {
        let mut merged = S::Raw::default();
        for level in self.levels {
            let mut raw = S::Raw::default();
            for line in level {
                S::set(&mut raw, line, scope)?;
            }
            merged = S::merge(&merged, raw);
        }
        S::finish(merged, scope)
    }

    /// Checks that a pool's name is declared (`default` always is).
    ///
    /// # Errors
    /// `unknown thread pool "X"`, where the name stands.
    pub fn check_pool(&self, name: &Placed<Bytes>) -> Result<(), Error> {
        if name.value == "default" || self.pools.contains(&name.value) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&name.value);
        Err(name.error(format!("unknown thread pool \"{text}\"")))
    }
}

/// Lets the first module that wants the location make its handler.
///
/// # Errors
/// As [`Module::configure`].
pub fn configure(
    modules: Modules,
    place: &Place<'_>,
    scope: &mut Scope,
) -> Result<Option<Arc<dyn Handler>>, Error> {
    for module in modules {
        if let Some(handler) = module.configure(place, scope)? {
            return Ok(Some(handler));
        }
    }
    Ok(None)
}

/// What a module of another program has made of a location.
#[derive(Debug, Clone)]
struct OfLocation(Arc<dyn Handler>);

slotted!(LOCATION: OfLocation);

/// The handler of a location; `None`: files, or what else answers there.
#[must_use]
pub fn of(location: &Location) -> Option<&Arc<dyn Handler>> {
    location.made::<OfLocation>().map(|own| &own.0)
}

/// Puts the handler of a location, if it has one, among what is made of it.
pub fn set(made: &mut MadeOfLocation, handler: Option<Arc<dyn Handler>>) {
    made.set(handler.map(OfLocation));
}

/// Lets the location's handler answer.
pub async fn make(request: &mut Request, handler: &Arc<dyn Handler>) -> Outcome {
    handler.make(request).await
}

/// Runs work that may block in the pool of that name, while the loop goes on with other requests.
///
/// The work owns all that it uses, since it goes on (or is dropped, if it waits still) when the client has left.
///
/// # Errors
/// 503 with `Retry-After` when the pool's queue is full, 500 when there is no such pool; each with its log line.
pub async fn run_in_pool<F, T>(request: &Request, pool: &[u8], work: F) -> Result<T, Failure>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let disk = request.client.loop_.disk.disk();
    let known = match pool {
        b"default" => Some(disk.default_pool()),
        name => disk.pool(name),
    };
    let known = known.ok_or_else(|| files::pool_not_found(request, pool))?;
    known
        .run(Lane::Read, work)
        .await
        .map_err(|overflow| files::overflowed(request, &overflow))
}
