//! The processes: a master that holds the configuration and the sockets, a worker that serves.
//!
//! * `master`: reads, binds, starts, supervises, obeys signals; `upgrade` replaces its program. `single` is both in one
//!   process.
//! * `worker`: takes `bundle`s from the master over a socket pair (`frame`, `word`) and runs the loops.
//!   `build` makes the settings of one, `plan` has the loops' orders, `deadline` ends what it still serves when it may
//!   leave no later.
//! * [`load`], [`source`], `directives`, `affinity`, `pools`: from texts to what the processes need.
//! * `acme`: the threads that get certificates, and what workers are told of them.
//! * `sockets`, `log_files`, `pid`, `privileges`, `signals`, `title`, `notify`, `certificate_watch`: one thing each.
//!
//! Not here: the loops ([`runtime::loops`]) and the processing of requests. Invariant: the master runs no loop, and no
//! thread but those that get certificates by ACME; the worker learns everything from the master and opens no configuration itself.

mod acme;
mod affinity;
mod build;
pub(crate) mod bundle;
pub(crate) mod certificate_watch;
mod deadline;
pub(crate) mod devices;
pub(crate) mod directives;
pub(crate) mod directories;
pub(crate) mod frame;
pub(crate) mod hints;
mod hold;
pub mod load;
pub(crate) mod log_files;
pub(crate) mod master;
pub(crate) mod metrics_log;
mod notify;
pub(crate) mod obstacles;
pub(crate) mod pid;
mod pinned;
mod plan;
pub(crate) mod pools;
pub(crate) mod privileges;
pub(crate) mod reload;
mod remains;
pub(crate) mod signals;
pub(crate) mod single;
pub(crate) mod sockets;
pub mod source;
pub(crate) mod spawn;
pub(crate) mod start;
mod supervise;
mod title;
mod trust;
mod upgrade;
mod word;
pub(crate) mod worker;

use httpcore::handler::Modules;

/// The tables of everything that is built.
#[must_use]
pub fn tables() -> Vec<&'static config::DirectiveTable> {
    directives::Main::tables()
        .into_iter()
        .chain(crate::settings::tables::all())
        .collect()
}

/// The same with the tables of modules from outside.
#[must_use]
pub fn tables_with(modules: Modules) -> Vec<&'static config::DirectiveTable> {
    let mut all = tables();
    all.extend(modules.iter().flat_map(|module| module.tables()));
    all
}
