//! Loads a configuration: from its texts to everything that the processes need of it.
//!
//! Not here: sockets, files of logs. Invariant: master and worker load in the same way, the master from the file
//! system, the worker from the bundle's texts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Error, Grammar, Recorded, Scope, TextSource, Tree};

use super::directives::Main;
use super::hints;
use crate::settings::acme::{Acme, Declared};
use crate::settings::build;
use crate::settings::build::Surroundings;
use crate::settings::circumstances::Circumstances;
use httpcore::handler::Modules;
use httpcore::settings::Settings;
use httpcore::tls::WatchedPair;

/// The place of a configuration, and the additions of the command line.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The prefix (`-p`), ending in a slash: logs, caches and temporary files are relative to it.
    pub prefix: PathBuf,
    /// The first file (`-c`); includes are relative to its directory.
    pub root: PathBuf,
    /// The directives of `-g`.
    pub globals: Option<Vec<u8>>,
}

/// A configuration that can be served.
#[derive(Debug)]
pub struct Loaded {
    /// The tree of directives.
    pub tree: Tree,
    /// The settings of the processes.
    pub main: Main,
    /// The settings of the loops.
    pub settings: Arc<Settings>,
    /// Warnings for the user.
    pub warnings: Vec<Error>,
    /// The names of the variables, by index.
    pub variables: Vec<String>,
    /// The surroundings that it was read under.
    pub circumstances: Circumstances,
}

/// The part of a configuration that the master keeps. The master serves nothing: a worker builds the settings from the
/// same texts.
#[derive(Debug)]
pub struct Kept {
    /// The settings of the processes.
    pub main: Main,
    /// The texts that were read.
    pub texts: Recorded,
    /// The surroundings that it was read under.
    pub circumstances: Circumstances,
    /// The settings of the loops, where they run in this process (`master_process off`).
    pub settings: Option<Arc<Settings>>,
    /// Certificates that are taken when they change (`ssl_certificate_watch`), each once.
    pub watched: Vec<Arc<WatchedPair>>,
    /// The issuers of certificates by ACME.
    pub(crate) acme: Vec<Declared>,
}

impl Loaded {
    /// Drops what a master does not need; `is_single`: its process also serves.
    #[must_use]
    pub fn keep(self, is_single: bool) -> Kept {
        Kept {
            main: self.main,
            texts: self.tree.recorded(),
            circumstances: self.circumstances,
            watched: watched(&self.settings),
            acme: self.settings.made::<Acme>().issuers.clone(),
            settings: is_single.then_some(self.settings),
        }
    }
}

/// The pairs that a configuration has watched, each once.
fn watched(settings: &Settings) -> Vec<Arc<WatchedPair>> {
    let servers = settings.servers.iter();
    let pairs = servers.filter_map(|server| server.tls.as_ref());
    let pairs: BTreeSet<_> = pairs.flat_map(|tls| tls.watched.iter().cloned()).collect();
    pairs.into_iter().collect()
}

/// The reasons why a configuration cannot be served.
#[derive(Debug)]
pub struct Refused {
    /// The first error.
    pub error: Error,
    /// Further ones: files that cannot be used are all told at once.
    pub others: Vec<Error>,
    /// The warnings that came before it.
    pub warnings: Vec<Error>,
}

impl Refused {
    /// All errors, in order.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        std::iter::once(&self.error).chain(&self.others)
    }

    /// All errors as one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let all: Vec<_> = self.errors().map(ToString::to_string).collect();
        all.join("; ")
    }
}

/// Reads, checks and builds a configuration.
///
/// # Errors
/// The first error, at its place; where files of certificates and keys are at fault, all of these.
pub fn load(
    origin: &Origin,
    circumstances: &Circumstances,
    source: &mut dyn TextSource,
    modules: Modules,
) -> Result<Loaded, Box<Refused>> {
    let refused = |error, others, warnings| {
        Box::new(Refused {
            error,
            others,
            warnings,
        })
    };
    let grammar = Grammar::new(super::tables_with(modules));
    let (tree, mut warnings) =
        config::load_checked(&origin.root, origin.globals.as_deref(), source, &grammar)
            .map_err(|error| refused(error, Vec::new(), Vec::new()))?;
    let mut scope = Scope::new();
    let built = build(&tree, &mut scope, origin, circumstances, modules);
    warnings.extend(scope.take_warnings());
    let mut faults = scope.take_faults();
    let built = match (built, faults.is_empty()) {
        (Ok(built), true) => Ok(built),
        (Ok(_), false) => Err(faults.remove(0)),
        (Err(error), true) => Err(error),
        (Err(error), false) => {
            faults.push(error);
            Err(faults.remove(0))
        }
    };
    match built {
        Ok((main, settings)) => Ok(Loaded {
            tree,
            main,
            settings: Arc::new(settings),
            warnings,
            variables: scope
                .variables()
                .iter()
                .map(|variable| variable.name.clone())
                .collect(),
            circumstances: circumstances.clone(),
        }),
        Err(error) => {
            let advised = |error| hints::add(error, &tree).advised();
            let error = advised(error);
            let faults = faults.into_iter().map(advised).collect();
            // A hint that the error has already is not repeated as a warning.
            warnings.retain(|warning| warning.hint().is_none() || warning.hint() != error.hint());
            Err(refused(error, faults, warnings))
        }
    }
}

/// Builds the settings of a tree that was checked. Warnings, and faults of files that it names, go to `scope`.
///
/// # Errors
/// The first error, at its place.
pub(crate) fn build(
    tree: &Tree,
    scope: &mut Scope,
    origin: &Origin,
    circumstances: &Circumstances,
    modules: Modules,
) -> Result<(Main, Settings), Error> {
    let mut main = Main::read(tree, scope)?;
    main.settle(circumstances.cores, scope);
    let pools = main.processes.thread_pool.iter();
    let surroundings = Surroundings {
        prefix: origin.prefix.clone(),
        // With nothing behind it the directory gets its slash.
        conf_prefix: origin.root.parent().unwrap_or(Path::new("/")).join(""),
        circumstances: circumstances.clone(),
        modules,
        pools: pools.map(|pool| pool.name.clone().into()).collect(),
    };
    let settings = build::build(tree, scope, &surroundings)?;
    check_connections(&main, settings.listens.sockets().count())?;
    Ok((main, settings))
}

/// As nginx: each loop could have a connection for each listening socket, and one more.
fn check_connections(main: &Main, listening: usize) -> Result<(), Error> {
    let connections = main.events.worker_connections.0;
    if usize::try_from(connections).is_ok_and(|connections| connections <= listening) {
        return Err(Error::without_place(format!(
            "{connections} worker_connections are not enough for {listening} listening sockets"
        )));
    }
    Ok(())
}

/// Reads only the settings of the processes.
///
/// # Errors
/// The first error, at its place.
pub fn main(
    origin: &Origin,
    circumstances: &Circumstances,
    source: &mut dyn TextSource,
    modules: Modules,
) -> Result<(Tree, Main), Error> {
    let (tree, _) = config::load_checked(
        &origin.root,
        origin.globals.as_deref(),
        source,
        &Grammar::new(super::tables_with(modules)),
    )?;
    let mut scope = Scope::new();
    let mut main = Main::read(&tree, &mut scope)?;
    main.settle(circumstances.cores, &mut scope);
    Ok((tree, main))
}
