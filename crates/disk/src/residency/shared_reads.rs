//! Shared reads: windows that many clients wait for are filled before those that only one waits for.
//!
//! Not here: when a file counts as sent to many (`files::open_file`), and the fills themselves (`window`).

use crate::files::open_file::OpenFile;
use crate::pool::{Lane, Overflow, Pool};
use crate::residency::fill::WindowFill;
use crate::residency::mappings::MappingUse;
use crate::residency::window::{self, Claim, FillJob, Residency, WINDOW, Windows};
use std::ops::RangeInclusive;
use std::sync::Arc;

impl Windows {
    /// Has the pool fill the missing ones of these windows in its shared lane. Returns the fill of the first one, to be
    /// awaited; None: it is in memory.
    ///
    /// # Errors
    /// The pool is full, and no other job fills the first one.
    pub(crate) fn hurry(
        self: &Arc<Self>,
        file: &OpenFile,
        windows: RangeInclusive<u64>,
        pool: &Pool,
    ) -> Result<Option<Arc<WindowFill>>, Overflow> {
        let mut first = None;
        let wanted = *windows.start();
        let take = |number: u64| {
            let (start, len) = (number * WINDOW, file.meta().len);
            let len = WINDOW.min(len.saturating_sub(start));
            if self.residency(file, start, len) != Residency::Absent {
                return None;
            }
            let job = match self.claim(file, number) {
                Ok(job) => job,
                Err(running) => self.job(file.meta(), number, running, Claim::Another),
            };
            if number == wanted {
                first = Some((job.fill.clone(), job.claim));
            }
            job.fill.hurry().then_some(job)
        };
        let jobs: Vec<FillJob> = windows.filter_map(take).collect();
        let handle = file.handle.clone();
        let begun = match jobs.is_empty() {
            true => Ok(()),
            false => pool.spawn(Lane::Shared, move || {
                window::run(jobs, &handle, MappingUse::Made)
            }),
        };
        match (begun, first) {
            (Err(overflow), Some((_, Claim::Own))) => Err(overflow),
            (_, first) => Ok(first.map(|(fill, _)| fill)),
        }
    }
}
