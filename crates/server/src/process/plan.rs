//! From a bundle and its settings to the orders for the loops.
//!
//! Not here: how they obey ([`runtime::loops`]). Invariant: every socket of the bundle goes to a loop.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use httpcore::settings::Settings;
use runtime::listen::BACKLOG_DEFAULT;
use runtime::loops::accept::Source;
use runtime::loops::loop_threads;
use runtime::{Listener, SocketType};

use super::bundle::Bundle;
use super::directives::Main;
use crate::http_server::Plan;

/// The loops' orders for a bundle.
#[must_use]
pub(crate) fn plan(bundle: &Bundle, main: &Main, settings: &Arc<Settings>) -> Plan {
    let processes = &main.processes;
    let loops = processes.worker_processes.count();
    let cpus = processes
        .worker_cpu_affinity
        .as_ref()
        .map_or_else(Vec::new, |affinity| {
            affinity.cpus(loops, bundle.circumstances.cores)
        });
    let mut sources = Vec::new();
    for (address, sockets) in &bundle.sockets {
        let listener = Arc::new(Listener {
            address: address.clone(),
            socket_type: SocketType::Stream,
        });
        let listens = &settings.listens;
        let entry = listens.find(address).map(|place| &listens.entries()[place]);
        let backlog = entry.map_or(BACKLOG_DEFAULT, |entry| entry.options.backlog);
        let source = |socket: &Arc<OwnedFd>| Source {
            listener: Arc::clone(&listener),
            socket: Arc::clone(socket),
            backlog,
        };
        sources.extend(sockets.iter().map(source));
    }
    Plan {
        loops: loop_threads::Plan {
            number: bundle.generation,
            configuration: Arc::clone(settings) as _,
            loops,
            connections_max: main.events.worker_connections.0,
            sources,
            stall_ns: processes.stall_threshold.0.saturating_mul(1_000_000),
            cpus,
        },
        settings: Arc::clone(settings),
        begun_ns: bundle.begun_ns,
        memory_budget: processes.memory_budget,
    }
}
