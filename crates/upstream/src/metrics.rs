//! The metrics of peers, as they are now.
//!
//! Not here: counting (`balancing::peer_counters`).

use std::collections::BTreeSet;

use runtime::families;
use runtime::metrics::Page;

use super::Upstreams;
use super::balancing::{Now, peer_counters};

families! {
    /// The families of these metrics.
    pub FAMILIES;
    PEER_REQUESTS Counter "freewheel_upstream_requests" "" ["upstream", "peer", "outcome"] "Requests to a peer: answered (its head came, whatever became of the body), answered with a 403 or 404 that is not wanted (proxy_next_upstream), failed, abandoned (nobody waited for the head any more). Those of upstreams whose names came from requests are together, without names.";
    PEER_HEADER Histogram "freewheel_upstream_header_seconds" "seconds" ["upstream", "peer"] "Time until the head of a response was received, in whole milliseconds.";
    PEER_RESPONSE Histogram "freewheel_upstream_response_seconds" "seconds" ["upstream", "peer"] "Time until a response was received completely, in whole milliseconds.";
    PEER_CONNECTIONS Gauge "freewheel_upstream_connections" "" ["upstream", "peer"] "Current requests of a peer.";
    PEER_OPENED Counter "freewheel_upstream_opened_connections" "" ["upstream", "peer"] "Connections opened to a peer; the other requests used kept ones.";
    PEER_FAILING Gauge "freewheel_upstream_peer_failing" "" ["upstream", "peer"] "1 while a peer is considered unavailable for its fail_timeout (max_fails), otherwise 0.";
}

/// Shows the counters of all peers.
pub fn show(page: &mut Page) {
    for ((upstream, peer), counters) in peer_counters::all() {
        let labels = [&upstream[..], &peer[..]];
        let outcomes = [
            ("answered", &counters.answered),
            ("unwanted", &counters.unwanted),
            ("failed", &counters.failed),
            ("abandoned", &counters.abandoned),
        ];
        for (outcome, count) in outcomes {
            let labels = [labels[0], labels[1], outcome];
            page.whole(&PEER_REQUESTS, &labels, count.get());
        }
        page.whole(&PEER_OPENED, &labels, counters.opened.get());
        page.times(&PEER_HEADER, &labels, counters.header.times());
        page.times(&PEER_RESPONSE, &labels, counters.response.times());
    }
}

/// Shows the state of the peers of a configuration's upstreams.
pub fn show_states(upstreams: &Upstreams, page: &mut Page) {
    let mut shown = BTreeSet::new();
    for upstream in upstreams.list() {
        let group = upstream.group();
        let states = group.connections().into_iter();
        let states = states.zip(group.failing(Now::read()));
        for (peer, (count, is_failing)) in group.peers().zip(states) {
            // The same server may stand twice, and the same name with two ports.
            let name = upstream.name();
            if shown.insert((name.to_string(), peer.name.to_string())) {
                let labels = [&*name, &peer.name];
                page.whole(&PEER_CONNECTIONS, &labels, u64::from(count));
                page.whole(&PEER_FAILING, &labels, u64::from(is_failing));
            }
        }
    }
}
