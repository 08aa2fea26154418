//! The results of `limit_req` and `limit_conn` for a request. Limits are checked once for a request and its
//! sub-requests together, whatever happens to its URI.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use httpcore::request::Request;
use httpcore::request::state::State;

use super::connections::CountedRequest;

/// The result of `limit_req`.
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

/// The result of `limit_conn`.
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

/// The results of both.
#[derive(Debug, Default)]
pub struct Limited {
    /// Result of `limit_req`, once it was checked.
    pub paced: Cell<Option<Paced>>,
    /// Result of `limit_conn`, once it was checked.
    pub counted: Cell<Option<Counted>>,
    /// The keys by which the request is counted.
    pub held: RefCell<Vec<CountedRequest>>,
}

impl State for Limited {
    /// Its places are its own: they are taken until it has ended.
    fn apart(&self) -> Option<Rc<dyn State>> {
        Some(Rc::new(Self {
            paced: self.paced.clone(),
            counted: self.counted.clone(),
            held: RefCell::default(),
        }))
    }

    /// The request is not counted any more.
    fn answered(&self) {
        self.held.take();
    }
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

/// The results of the limits for a request.
pub(crate) fn of(request: &Request) -> &Limited {
    request.family_states().get_or_default()
}

fn if_any(request: &Request) -> Option<&Limited> {
    request.family_states_if_any()?.get()
}

/// Appends `$limit_req_status`; `false`: the limit was not checked.
pub(crate) fn append_paced(request: &Request, out: &mut Vec<u8>) -> bool {
    let said = if_any(request).and_then(|limited| limited.paced.get());
    said.map(|said| out.extend_from_slice(said.name().as_bytes()))
        .is_some()
}

/// Appends `$limit_conn_status`; `false`: the limit was not checked.
pub(crate) fn append_counted(request: &Request, out: &mut Vec<u8>) -> bool {
    let said = if_any(request).and_then(|limited| limited.counted.get());
    said.map(|said| out.extend_from_slice(said.name().as_bytes()))
        .is_some()
}
