//! The tasks of a loop: every poll is timed, and a slow one is attributed to a request.
//!
//! * [`spawn`], and [`spawn_begun`] for many short ones: the ways to start a task on a loop
//!   ([`poll_timing`], `spare_tasks`).
//! * [`yield_turn`]: the order of work within one iteration of a loop.
//! * `tick_lateness`: how late a tick would be served; [`tsc_clock`]: the time at the end of a poll; `cpu_wait`: the
//!   time without a processor.
//! * [`current_request`]: the request that a slow poll is attributed to.
//! * [`LoopFigures`]: the counters of one loop, read by others at any time; [`counters`]: those of modules among them.
//!
//! Not here: the loops themselves ([`crate::loops`]). Invariant: only the loop's thread writes what is counted.

pub mod counters;
pub(crate) mod cpu_wait;
pub mod current_request;
mod loop_figures;
pub mod poll_timing;
mod spare_tasks;
mod task_kind;
mod tick_lateness;
pub mod tsc_clock;
pub mod yield_turn;

pub use loop_figures::LoopFigures;
pub use poll_timing::spawn;
pub use spare_tasks::spawn_begun;
pub use task_kind::Kind;
