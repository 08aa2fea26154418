//! What is counted of HTTP/2 connections: streams, resets, and why connections were ended.

use disk::metrics::Number;
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{families, label_values};
use slots::slotted;
use wire::http2::Reason;

use crate::handler::metrics::ModuleMetrics;

label_values! {
    /// Who reset a stream, and why.
    pub(super) enum Reset {
        /// The client.
        Client = "client",
        /// We, for a fault of the client's.
        Fault = "fault",
        /// We, before anything was done of it: more streams than the client may open.
        Refused = "refused",
        /// We: the client did not take the response, or did not send its request.
        TimedOut = "timeout",
        /// We: the response broke off.
        Broken = "broken",
    }
}

/// The counters of one loop.
#[derive(Debug)]
pub(super) struct Http2Counters {
    pub(super) connections: [Number; 1],
    pub(super) streams: [Number; 1],
    pub(super) open: [Number; 1],
    pub(super) resets: [Number; Reset::ALL.len()],
    /// Connections ended because their configuration or the worker wanted it.
    pub(super) goaways: [Number; 1],
    /// Connections ended for a fault, by its reason.
    pub(super) faults: [Number; Reason::ALL.len()],
}

impl Default for Http2Counters {
    fn default() -> Self {
        Self {
            connections: Default::default(),
            streams: Default::default(),
            open: Default::default(),
            resets: Default::default(),
            goaways: Default::default(),
            faults: std::array::from_fn(|_| Number::default()),
        }
    }
}

slotted!(COUNTERS: Http2Counters);

families! {
    /// The families of these counters.
    FAMILIES;
    CONNECTIONS Counter "freewheel_http2_connections" "" [] "HTTP/2 connections of clients.";
    STREAMS Counter "freewheel_http2_streams" "" [] "Streams that clients have opened.";
    OPEN Gauge "freewheel_http2_streams_open" "" [] "Streams whose request is being answered.";
    RESETS Counter "freewheel_http2_resets" "" ["by"] "Streams that were reset before they ended: by the client, or by the server for a fault of the client's (fault), since the client had opened too many (refused), had not taken the response or sent its request in time (timeout), or since the response broke off (broken).";
    GOAWAYS Counter "freewheel_http2_goaways" "" ["reason"] "GOAWAY frames sent: without an error (end), or for a fault of the client's, by its name.";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let all = shown.loops::<Http2Counters>();
        let [connections] = sums(&all, |it| &it.connections);
        let is_used = shown
            .settings
            .is_some_and(|settings| settings.servers.iter().any(|server| server.http2.http2));
        if !is_used && connections == 0 {
            return;
        }
        let [streams] = sums(&all, |it| &it.streams);
        let [open] = sums(&all, |it| &it.open);
        page.whole(&CONNECTIONS, &[], connections);
        page.whole(&STREAMS, &[], streams);
        page.whole(&OPEN, &[], open);
        let resets = sums(&all, |it| &it.resets);
        for (by, count) in Reset::ALL.iter().zip(resets) {
            page.whole(&RESETS, &[by.name()], count);
        }
        let [goaways] = sums(&all, |it| &it.goaways);
        page.whole(&GOAWAYS, &["end"], goaways);
        let faults: [u64; Reason::ALL.len()] = sums(&all, |it| &it.faults);
        for (reason, count) in Reason::ALL.iter().zip(faults) {
            if count > 0 {
                page.whole(&GOAWAYS, &[reason.name()], count);
            }
        }
    },
};
