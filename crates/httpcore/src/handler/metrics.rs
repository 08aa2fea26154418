//! How a module shows its metrics.
//!
//! Each module that counts has a static [`ModuleMetrics`], which stands in the list of all of them
//! (`server::settings::tables`). Not here: the counters, which stand beside their module
//! ([`runtime::timing::counters`]).

use runtime::Ledger;
use runtime::metrics::{Families, Page};
use runtime::timing::counters::{Counters, PerLoop};

use crate::settings::{Location, Settings};

/// The metrics of a module.
#[derive(Debug)]
pub struct ModuleMetrics {
    /// The families that it declares.
    pub families: Families,
    /// Shows its samples as they are now.
    pub show: fn(&Shown<'_>, &mut Page),
}

/// What metrics are shown of.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The worker's loops.
    pub ledger: &'a Ledger,
    /// The configuration that is served.
    pub settings: Option<&'a Settings>,
}

impl Shown<'_> {
    /// What all loops have counted of a kind.
    #[must_use]
    pub fn loops<T: Counters>(&self) -> PerLoop<T> {
        self.ledger.counters()
    }

    /// Whether a location uses something; samples of what none uses are shown from the first count on.
    pub fn is_any_location(&self, uses: impl FnMut(&Location) -> bool) -> bool {
        let settings = self.settings;
        settings.is_some_and(|settings| settings.locations.iter().any(uses))
    }
}
