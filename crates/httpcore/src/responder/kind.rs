//! Kinds of sub-requests: the modules that make them, each under a name by which they are counted.

use disk::metrics::Number;
use runtime::metrics::Page;
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{LoopFigures, families};
use slots::{Slot, slotted};

use crate::handler::metrics::{ModuleMetrics, Shown};
use crate::settings::Location;
use crate::status_zone::CLASSES;

families! {
    /// The families of these counters.
    FAMILIES;
    SUBREQUESTS Counter "freewheel_subrequests" "" ["kind", "status"] "Subrequests, and those of post_action, by class of the response's status; none: closed without a response, or no connection left for a mirror.";
}

/// What all kinds declare; each of them is shown by its module.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |_, _| {},
};

/// Maximum number of kinds.
const KINDS_MAX: usize = 16;
/// The label of those without a status: closed, or never begun.
const NO_STATUS: &str = "none";
/// Classes of status, and one for those without.
const OUTCOMES: usize = CLASSES.len() + 1;

static KINDS: slots::Family = slots::Family::new();

/// A kind of sub-request.
#[derive(Debug)]
pub struct Kind {
    name: &'static str,
    slot: Slot,
}

/// The counters of one loop.
#[derive(Debug, Default)]
struct SubrequestCounters([[Number; OUTCOMES]; KINDS_MAX]);

slotted!(COUNTERS: SubrequestCounters);

impl Kind {
    /// A kind, to be kept in a static.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            slot: Slot::of(&KINDS),
        }
    }

    /// Counts an answer with this status; `None`: it was closed without one, or could not be made.
    pub fn count(&self, figures: &LoopFigures, status: Option<u16>) {
        let class = match status {
            Some(status @ 100..=599) => usize::from(status / 100) - 1,
            Some(_) => CLASSES.len() - 1,
            None => CLASSES.len(),
        };
        figures.of::<SubrequestCounters>().0[self.slot.index()][class].add(1);
    }

    /// Shows what was counted, also where that is nothing but a location uses the kind.
    pub fn show(&self, shown: &Shown<'_>, page: &mut Page, uses: impl FnMut(&Location) -> bool) {
        let loops = shown.loops::<SubrequestCounters>();
        let counts = sums(&loops, |counters| &counters.0[self.slot.index()]);
        if counts == [0; OUTCOMES] && !shown.is_any_location(uses) {
            return;
        }
        for (class, count) in CLASSES.iter().chain([&NO_STATUS]).zip(counts) {
            page.whole(&SUBREQUESTS, &[self.name, class], count);
        }
    }
}
