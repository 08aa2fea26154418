//! State that only few requests have: all of it in one box, made by the first module that needs it ([`Request::rare`]),
//! so that all other requests carry one empty pointer.
//!
//! Not here: its meaning, which its module knows. Invariant: an internal redirect clears what [`Rare::forget`] says; a
//! sub-request takes over what `Rare::of_child` says, and nothing else.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::after::compression::ratio::Ratio;
use crate::after::userid::Uids;
use crate::connection::Client;
use crate::limits::Limited;

use super::Request;

/// State that only few requests need.
#[derive(Debug, Default)]
pub struct Rare {
    /// The client of the connection itself, once `real_ip_header` has named the one behind it.
    pub connected: Option<Rc<Client>>,
    /// Whether a trusted proxy named something that is no address, and that was counted.
    pub is_misnamed: Cell<bool>,
    /// Verdicts of `limit_req` and `limit_conn`, once one was asked.
    pub limited: OnceCell<Rc<Limited>>,
    /// Whether its body was refused for its length.
    pub is_body_refused: bool,
    /// The redirect that `return` last answered it with: `$status` where an error page replaced the response and its
    /// status.
    pub returned: Cell<Option<u16>>,
    /// Number of `Expires` lines that the configuration added to its response, where `gzip_proxied` needs it.
    pub added_expires: Cell<usize>,
    /// `$limit_rate` in bytes per second, when it was set.
    pub limit_rate: Cell<Option<u64>>,
    /// First byte of the slice that is asked for (`$slice_range`).
    pub slice_start: Cell<Option<u64>>,
    /// The client's identifiers (`userid`).
    pub uids: Cell<Option<Uids>>,
    /// Compression ratio of the response's body (`$gzip_ratio`).
    pub ratio: Option<Rc<Ratio>>,
    /// The background update behind its stale response: nothing is ever sent here, and the sender is dropped when the
    /// update has ended.
    pub update: Option<oneshot::Receiver<()>>,
}

impl Rare {
    /// Forgets the state that an internal redirect makes invalid, as nginx's module contexts.
    pub fn forget(&self) {
        self.slice_start.set(None);
        self.uids.set(None);
        self.added_expires.set(0);
    }

    /// State that a sub-request inherits at its start.
    fn of_child(&self) -> Self {
        Self {
            connected: self.connected.clone(),
            limited: self.limited.clone(),
            ..Self::default()
        }
    }
}

impl Request {
    /// Its rare state, made on first use.
    pub fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// Its rare state, if there is any.
    #[must_use]
    pub fn rare_if_any(&self) -> Option<&Rare> {
        self.rare.get().map(|rare| &**rare)
    }

    /// [`Request::rare`], mutable.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_init(Box::default);
        self.rare.get_mut().expect("it was just made")
    }

    /// `$limit_rate` in bytes per second, when it was set.
    #[must_use]
    pub fn limit_rate(&self) -> Option<u64> {
        self.rare_if_any()?.limit_rate.get()
    }

    /// First byte of the slice that is asked for (`$slice_range`).
    #[must_use]
    pub fn slice_start(&self) -> Option<u64> {
        self.rare_if_any()?.slice_start.get()
    }

    /// Shares this request's state with a new sub-request.
    pub(super) fn share_rare(&self, child: &mut Self) {
        if self.settings().limits.is_any() {
            // Asked once for all of them, whichever is first.
            self.limited();
        }
        if let Some(shared) = self.rare_if_any().map(Rare::of_child) {
            *child.rare_mut() = shared;
        }
    }
}
