//! HTTP on all loops of a worker: what each loop serves with, and what is done once for all of them when a
//! configuration is served.
//!
//! Not here: threads and sockets ([`runtime::loops`]), where a configuration comes from ([`crate::process`]). Invariant: a
//! configuration that cannot be served leaves the loops with the one that they have.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use runtime::loops::loop_threads::{self, LoopThreads};
use runtime::{
    Accepted, Configuration, Datagrams, Kind, Ledger, Listener, Loop, Service, Serving, Shared,
    Start, spawn,
};

use crate::dashboard::{history, sampler};
use crate::memory;
use crate::memory::directives::MemoryBudget;
use crate::monitoring;
use crate::monitoring::directives;
use crate::steps::Steps;
use httpcore::connection;
use httpcore::connection::tls_handshake;
use httpcore::http_loop::generation::Generation;
use httpcore::http_loop::{HttpLoop, REMOVED_KEPT};
use httpcore::responder::Responder as _;
use httpcore::settings::Settings;
use httpcore::status_zone;
use modules::limits;
use upstream::KeepalivePool;
use upstream::Upstreams;
use upstream::ocsp::Staples;

/// A configuration, for the loops and for what stands beside them.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// For the loops; its configuration is these settings.
    pub loops: loop_threads::Plan,
    /// The settings.
    pub settings: Arc<Settings>,
    /// When the configuration was requested, by [`runtime::timing::poll_timing::now_ns`].
    pub begun_ns: u64,
    /// `memory_budget`.
    pub memory_budget: MemoryBudget,
}

/// The loops of a worker with their service. Lives on the worker's main thread, which may block.
pub(crate) struct HttpServer {
    threads: LoopThreads,
    ledger: Arc<Ledger>,
}

impl HttpServer {
    /// No loops yet.
    #[must_use]
    pub(crate) fn new(shared: Shared) -> Self {
        let ledger = Arc::clone(&shared.ledger);
        let start = start(Arc::clone(&ledger));
        Self {
            threads: LoopThreads::new(start, shared),
            ledger,
        }
    }

    /// Makes a configuration the current one. Returns when every loop has taken it over.
    ///
    /// # Errors
    /// When memory of zones, a thread, an epoll instance or a registration cannot be had; the loops then go on with what
    /// they have.
    pub(crate) fn apply(&mut self, plan: &Plan) -> io::Result<()> {
        let former = self.settings();
        let former = former
            .as_ref()
            .map(|settings| settings.made::<limits::Zones>());
        let Plan { settings, .. } = plan;
        settings
            .made::<limits::Zones>()
            .equip(former)
            .map_err(io::Error::other)?;
        let upstreams = settings.made::<Upstreams>();
        upstreams.watch()?;
        upstreams.limits();
        settings.made::<Staples>().watch()?;
        self.threads.apply(&plan.loops)?;
        memory::of(&self.ledger).configure(plan.memory_budget, plan.loops.loops);
        monitoring::configure(&self.ledger, settings, plan.loops.number, plan.begun_ns);
        if directives::shows_dashboard(settings) {
            sampler::begin(&self.ledger);
        }
        Ok(())
    }

    /// The metrics.
    #[must_use]
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The settings that were handed out last.
    #[must_use]
    pub(crate) fn settings(&self) -> Option<Arc<Settings>> {
        self.threads.configuration().map(settings_of)
    }

    /// Frees configurations that are no longer used, and returns how many there were.
    pub(crate) fn forget_old(&mut self) -> usize {
        self.threads.forget_old()
    }

    /// Whether an older configuration than the current one is still in use.
    #[must_use]
    pub(crate) fn has_old(&self) -> bool {
        self.threads.has_old()
    }

    /// Tells all loops to finish and end.
    pub(crate) fn shut_down(&mut self) {
        self.threads.shut_down();
        // Streams of dashboards have no end of their own.
        history::of(&self.ledger).end();
    }

    /// Whether a loop still runs.
    #[must_use]
    pub(crate) fn is_running(&mut self) -> bool {
        self.threads.is_running()
    }
}

fn settings_of(configuration: Configuration) -> Arc<Settings> {
    configuration
        .downcast()
        .expect("the configurations of these loops are settings")
}

fn start(ledger: Arc<Ledger>) -> Start {
    Arc::new(move |loop_: &Rc<Loop>, number, configuration| {
        let settings = settings_of(configuration);
        KeepalivePool::of(loop_).keep_only(settings.made::<Upstreams>());
        let generation = Generation::new(number, settings);
        Steps::install(loop_);
        let http = HttpLoop::new(loop_, generation, status_zone::zones(&ledger));
        Box::new(HttpService {
            loop_: Rc::clone(loop_),
            http,
        })
    })
}

/// HTTP as the service of one loop.
struct HttpService {
    loop_: Rc<Loop>,
    http: Rc<HttpLoop>,
}

impl Service for HttpService {
    fn may_accept(&self, listener: &Listener) -> bool {
        tls_handshake::may_accept(&self.http, &listener.address)
    }

    fn serve(&self, accepted: Accepted) -> Serving {
        connection::serve::<Steps>(Rc::clone(&self.loop_), Rc::clone(&self.http), accepted)
    }

    fn receive(&self, _: Datagrams) -> Serving {
        // `listen` has no word for datagrams yet.
        Box::pin(std::future::ready(()))
    }

    fn configure(&self, number: u64, configuration: Configuration) {
        let settings = settings_of(configuration);
        KeepalivePool::of(&self.loop_).keep_only(settings.made::<Upstreams>());
        if self.http.configure(Generation::new(number, settings)) {
            let (http, wheel) = (Rc::clone(&self.http), Rc::clone(&self.loop_.wire.wheel));
            drop(spawn(Kind::Control, async move {
                wheel.sleep(REMOVED_KEPT).await;
                http.forget_removed(number);
            }));
        }
    }
}
