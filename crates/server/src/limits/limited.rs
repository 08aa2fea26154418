//! The results of `limit_req` and `limit_conn` for a request. Limits are checked once for a request and its
//! sub-requests together, whatever happens to its URI.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::request::Request;

use super::connections::Held;

/// What `limit_req` has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Paced {
    /// It came within the rate.
    Passed,
    /// It had to wait.
    Delayed,
    /// It came too fast.
    Rejected,
    /// It would have had to wait.
    DelayedDryRun,
    /// It would have been rejected.
    RejectedDryRun,
}

/// What `limit_conn` has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counted {
    /// There was a place.
    Passed,
    /// There was none.
    Rejected,
    /// There would have been none.
    RejectedDryRun,
}

/// What both have said.
#[derive(Debug, Default)]
pub struct Limited {
    /// `limit_req`, once it was asked.
    pub paced: Cell<Option<Paced>>,
    /// `limit_conn`, once it was asked.
    pub counted: Cell<Option<Counted>>,
    /// Where it is counted.
    pub held: RefCell<Vec<Held>>,
}

impl Paced {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [
        Self::Passed,
        Self::Delayed,
        Self::Rejected,
        Self::DelayedDryRun,
        Self::RejectedDryRun,
    ];

    /// `$limit_req_status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Delayed => "DELAYED",
            Self::Rejected => "REJECTED",
            Self::DelayedDryRun => "DELAYED_DRY_RUN",
            Self::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }
}

impl Counted {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Passed, Self::Rejected, Self::RejectedDryRun];

    /// `$limit_conn_status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Rejected => "REJECTED",
            Self::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }
}

impl Request {
    /// What limits have said to it.
    pub fn limited(&self) -> &Rc<Limited> {
        self.rare().limited.get_or_init(Rc::default)
    }

    /// It is answered: it counts no more where it was counted, before its client learns of its end.
    pub fn release_limits(&self) {
        if let Some(limited) = self.rare_if_any().and_then(|rare| rare.limited.get()) {
            limited.held.take();
        }
    }
}

/// Appends `$limit_req_status`; `false`: it was not asked.
pub fn append_paced(request: &Request, out: &mut Vec<u8>) -> bool {
    let said = request
        .rare_if_any()
        .and_then(|rare| rare.limited.get()?.paced.get());
    said.map(|said| out.extend_from_slice(said.name().as_bytes()))
        .is_some()
}

/// Appends `$limit_conn_status`; `false`: it was not asked.
pub fn append_counted(request: &Request, out: &mut Vec<u8>) -> bool {
    let said = request
        .rare_if_any()
        .and_then(|rare| rare.limited.get()?.counted.get());
    said.map(|said| out.extend_from_slice(said.name().as_bytes()))
        .is_some()
}
