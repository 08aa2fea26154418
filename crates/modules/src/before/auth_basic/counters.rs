//! Counters of passwords: what was found, and how long it took.

use disk::metrics::{Histogram, Number};
use runtime::metrics::Page;
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{families, label_values};
use slots::slotted;

use crate::before::auth_basic::AuthBasic;
use httpcore::handler::metrics::{ModuleMetrics, Shown};

families! {
    /// The families of these counters.
    FAMILIES;
    PASSWORDS Counter "freewheel_auth_basic_requests" "" ["outcome"] "Results of auth_basic: a password that was right, or remembered as right; missing, of an unknown user, wrong; an unreadable format in the file (unreadable), or no result (failed).";
    PASSWORD_CHECKS Histogram "freewheel_auth_basic_check_seconds" "seconds" [] "Time to check a password that was not remembered: until its turn, in the pool's queue, and running.";
}

slotted!(COUNTERS: PasswordCounters);

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show,
};

label_values! {
    /// The outcome of checking a password.
    pub enum Password {
        /// It is right.
        Right = "right",
        /// It was found right a short while ago.
        Remembered = "remembered",
        /// The request has none.
        Missing = "missing",
        /// It is of a user who is not in the file.
        UnknownUser = "unknown_user",
        /// It is wrong.
        Wrong = "wrong",
        /// The file's entry cannot be read.
        Unreadable = "unreadable",
        /// It could not be checked: there is no file, or the pool is full.
        Failed = "failed",
    }
}

/// The counters of one loop.
#[derive(Debug, Default)]
pub(super) struct PasswordCounters {
    found: [Number; Password::ALL.len()],
    /// How long it took to check passwords that were not remembered.
    pub checks: Histogram,
}

impl PasswordCounters {
    /// Counts a request by what was found.
    pub(super) fn count(&self, found: Password) {
        self.found[found as usize].add(1);
    }
}

fn show(shown: &Shown<'_>, page: &mut Page) {
    let loops = shown.loops::<PasswordCounters>();
    let found = sums(&loops, |counters| &counters.found);
    let is_used =
        || shown.is_any_location(|location| location.own::<AuthBasic>().auth_basic.is_some());
    if found == [0; Password::ALL.len()] && !is_used() {
        return;
    }
    for (found, count) in Password::ALL.iter().zip(found) {
        page.whole(&PASSWORDS, &[found.name()], count);
    }
    let checks = loops.times(|counters| &counters.checks);
    page.times(&PASSWORD_CHECKS, &[], checks);
}
