//! Gathers a page of all metrics, as they are now.
//!
//! Not here: counting. Invariant: no loop is asked for anything, so that a blocked one is shown too.

use logs::Logs;
use runtime::loops::sums;
use runtime::metrics::Page;
use runtime::metrics::page::Value;
use runtime::{Ledger, families};

use super::families::tables;
use super::process::Process;
use super::{Monitoring, disk, of};
use crate::memory;
use crate::memory::metrics::OtherCounts;
use crate::settings::tables as lists;
use httpcore::handler::Modules;
use httpcore::handler::metrics::Shown;
use httpcore::status_zone;
use proxy::caching;
use upstream::Upstreams;

families! {
    /// The worker and its configuration.
    pub(super) WORKER;
    BUILD_INFO Gauge "freewheel_build_info" "" ["version"] "Always 1; the version is in the label.";
    PROCESS_START Gauge "freewheel_process_start_time_seconds" "seconds" [] "Start time of the worker's counters, in seconds since 1970.";
    GENERATION Gauge "freewheel_configuration_generation" "" [] "Number of the current configuration; increases with each reload, and with each change that ssl_certificate_watch takes over.";
    CONFIGURED Gauge "freewheel_configuration_loaded_timestamp_seconds" "seconds" [] "Time at which it took effect, in seconds since 1970.";
    CONFIGURATION_TOOK Gauge "freewheel_configuration_load_seconds" "seconds" [] "Time until the last loop used it: since the master began to read it, or since the worker was started with it.";
}

families! {
    /// The logs.
    pub(super) LOGS;
    LOG_LINES Counter "freewheel_log_lines" "" ["outcome"] "Lines of all logs: written, dropped for lack of space, failed to be written.";
    LOG_BYTES Counter "freewheel_log_bytes" "bytes" [] "Bytes of the written lines, before compression.";
}

/// All metrics.
#[must_use]
pub(crate) fn page(ledger: &Ledger) -> Page {
    let own = of(ledger);
    let sources = own.sources.get();
    let modules = sources.map_or::<Modules, _>(&[], |sources| sources.modules);
    let mut page = Page::in_order(tables(modules));
    show_worker(own, &mut page);
    sums::show(ledger, &mut page);
    status_zone::show(ledger, &mut page);
    if let Some(sources) = sources {
        disk::show(&sources.disk, &mut page);
        show_logs(&sources.logs, &mut page);
    }
    let process = Process::look();
    process.show(&mut page);
    // Outside the lock: a thread that applies a configuration never waits for this.
    let settings = own.settings.lock().upgrade();
    let settings = settings.as_deref();
    let known = OtherCounts {
        connections: sums::all(ledger).connections,
        index_bytes: settings.map_or(0, caching::metrics::index_bytes),
        anonymous_bytes: process.anonymous_bytes,
    };
    memory::metrics::show(memory::of(ledger), known, &mut page);
    let shown = Shown { ledger, settings };
    for module in lists::metrics(modules) {
        (module.show)(&shown, &mut page);
    }
    if let Some(settings) = settings {
        caching::metrics::show(settings, &mut page);
        upstream::metrics::show_states(settings.made::<Upstreams>(), &mut page);
    }
    upstream::metrics::show(&mut page);
    upstream::ocsp::metrics::show(&mut page);
    page
}

fn show_worker(own: &Monitoring, page: &mut Page) {
    page.whole(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
    let seconds = |ms: u64| Value::Real(ms as f64 / 1e3);
    page.add(&PROCESS_START, &[], seconds(own.started_ms));
    page.whole(&GENERATION, &[], own.generation.get());
    page.add(&CONFIGURED, &[], seconds(own.configured_ms.get()));
    page.nanoseconds(&CONFIGURATION_TOOK, &[], own.configuring_ns.get());
}

fn show_logs(logs: &Logs, page: &mut Page) {
    let logs = logs.figures();
    let lines = [
        ("written", logs.written),
        ("dropped", logs.dropped),
        ("failed", logs.failed),
    ];
    for (outcome, count) in lines {
        page.whole(&LOG_LINES, &[outcome], count);
    }
    page.whole(&LOG_BYTES, &[], logs.bytes);
}
