//! Counters of the zones of `limit_req` and `limit_conn`.
//!
//! They are kept by the zone's name, so that a reload resets nothing, even if it changes the zone's size. Loops share
//! these counters as they share the zone itself. Invariant: at most `LIMITS_KEPT_MAX` zones are told apart, over all
//! reloads.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use disk::metrics::Number;
use parking_lot::Mutex;
use runtime::families;
use runtime::metrics::Page;
use runtime::metrics::page::label;

use super::table::Room;
use super::zones::ZONES_MAX;
use super::{Counted, Paced};
use crate::limits::Zones;
use httpcore::handler::metrics::{ModuleMetrics, Shown};

families! {
    /// The families of these counters.
    pub FAMILIES;
    LIMITED Counter "freewheel_limit_requests" "" ["kind", "zone", "outcome"] "Results of the zones of limit_req and limit_conn, as in $limit_req_status and $limit_conn_status: counted in the zone that rejected or delayed a request most; in the other zones that allowed it, as passed.";
    LIMIT_KEYS Gauge "freewheel_limit_zone_keys" "" ["kind", "zone"] "Keys in a zone of a limit.";
    LIMIT_USED Gauge "freewheel_limit_zone_used_bytes" "bytes" ["kind", "zone"] "Memory that they use.";
    LIMIT_SIZE Gauge "freewheel_limit_zone_size_bytes" "bytes" ["kind", "zone"] "Limit of that memory.";
    LIMIT_FORGOTTEN Counter "freewheel_limit_zone_forgotten_keys" "" ["kind", "zone"] "Keys evicted early because a zone of limit_req was full: their clients are no longer limited.";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show,
};

/// Maximum number of zones that are told apart, of both kinds. When a further one comes, zones that no configuration
/// has any more are forgotten; any beyond that are counted together.
const LIMITS_KEPT_MAX: usize = 8 * ZONES_MAX;

/// The kind of limit that a zone is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `limit_req`.
    Requests,
    /// `limit_conn`.
    Connections,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Requests => "limit_req",
            Self::Connections => "limit_conn",
        }
    }
}

/// The decisions of a zone. Several loops write.
#[derive(Debug, Default)]
pub struct LimitFigures {
    paced: [Number; Paced::ALL.len()],
    counted: [Number; Counted::ALL.len()],
    /// Keys that were evicted to make room for others.
    pub forgotten: Number,
}

impl LimitFigures {
    /// Counts a decision of `limit_req`.
    pub fn pace(&self, said: Paced) {
        self.paced[said as usize].add_shared(1);
    }

    /// Counts a decision of `limit_conn`.
    pub fn count(&self, said: Counted) {
        self.counted[said as usize].add_shared(1);
    }
}

static KNOWN: Mutex<BTreeMap<(Kind, Bytes), Arc<LimitFigures>>> = Mutex::new(BTreeMap::new());
static OTHERS: LazyLock<Arc<LimitFigures>> = LazyLock::new(Arc::default);

/// The figures of a zone.
#[must_use]
pub fn of(kind: Kind, name: &Bytes) -> Arc<LimitFigures> {
    let name = (kind, name.clone());
    let mut known = KNOWN.lock();
    if known.len() >= LIMITS_KEPT_MAX && !known.contains_key(&name) {
        known.retain(|_, figures| Arc::strong_count(figures) > 1);
        if known.len() >= LIMITS_KEPT_MAX {
            return Arc::clone(&OTHERS);
        }
    }
    Arc::clone(known.entry(name).or_default())
}

/// Shows the zones of the configuration.
fn show(shown: &Shown<'_>, page: &mut Page) {
    let Some(zones) = shown.settings.map(|settings| settings.made::<Zones>()) else {
        return;
    };
    for zone in &zones.requests {
        let name = &*label(&zone.name);
        let Some(state) = zone.state() else { continue };
        let (figures, kind) = (state.figures(), Kind::Requests.name());
        for (said, count) in Paced::ALL.iter().zip(&figures.paced) {
            let outcome = said.name().to_ascii_lowercase();
            page.whole(&LIMITED, &[kind, name, &outcome], count.get());
        }
        let forgotten = figures.forgotten.get();
        page.whole(&LIMIT_FORGOTTEN, &[kind, name], forgotten);
        show_room(page, kind, name, state.room());
    }
    for zone in &zones.connections {
        let name = &*label(&zone.name);
        let Some(state) = zone.state() else { continue };
        let (figures, kind) = (state.figures(), Kind::Connections.name());
        for (said, count) in Counted::ALL.iter().zip(&figures.counted) {
            let outcome = said.name().to_ascii_lowercase();
            page.whole(&LIMITED, &[kind, name, &outcome], count.get());
        }
        show_room(page, kind, name, state.room());
    }
}

fn show_room(page: &mut Page, kind: &str, name: &str, room: Room) {
    page.whole(&LIMIT_KEYS, &[kind, name], room.keys);
    page.whole(&LIMIT_USED, &[kind, name], room.bytes);
    page.whole(&LIMIT_SIZE, &[kind, name], room.bytes_max);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_kind_and_name() {
        let name = Bytes::from_static(b"zone of this test");
        let requests = of(Kind::Requests, &name);
        assert!(Arc::ptr_eq(&requests, &of(Kind::Requests, &name)));
        assert!(!Arc::ptr_eq(&requests, &of(Kind::Connections, &name)));
        for number in 0..2 * LIMITS_KEPT_MAX {
            drop(of(Kind::Requests, &number.to_string().into()));
            assert!(KNOWN.lock().len() <= LIMITS_KEPT_MAX);
        }
        assert!(Arc::ptr_eq(&requests, &of(Kind::Requests, &name)));
    }
}
