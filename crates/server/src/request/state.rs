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

/// What only few requests have to remember.
#[derive(Debug, Default)]
pub struct Rare {
    /// The client of the connection itself, once `real_ip_header` has named the one behind it.
    pub connected: Option<Rc<Client>>,
    /// A proxy whose word counts said something that is no address, and that was counted.
    pub is_misnamed: Cell<bool>,
    /// What `limit_req` and `limit_conn` have said, once one was asked.
    pub limited: OnceCell<Rc<Limited>>,
    /// Its body was refused for its length.
    pub is_body_refused: bool,
    /// The redirect that it was last answered with by `return`: `$status` where an error page took its place and its status.
    pub returned: Cell<Option<u16>>,
    /// How many lines `Expires` the configuration has added to its answer, where `gzip_proxied` wants to know.
    pub added_expires: Cell<usize>,
    /// `$limit_rate` in bytes a second, when it was set.
    pub limit_rate: Cell<Option<u64>>,
    /// Where the slice begins that is asked for (`$slice_range`).
    pub slice_start: Cell<Option<u64>>,
    /// What `userid` knows of the client.
    pub uids: Cell<Option<Uids>>,
    /// What compressing made of the answer's body (`$gzip_ratio`).
    pub ratio: Option<Rc<Ratio>>,
    /// The update that runs behind its stale answer: nothing comes here, and the other end goes when that has ended.
    pub update: Option<oneshot::Receiver<()>>,
}

impl Rare {
    /// Forgets what an internal redirect makes untrue, as nginx's contexts of modules.
    pub fn forget(&self) {
        self.slice_start.set(None);
        self.uids.set(None);
        self.added_expires.set(0);
    }

    /// What a sub-request knows of it from its beginning.
    fn of_child(&self) -> Self {
        Self {
            connected: self.connected.clone(),
            limited: self.limited.clone(),
            ..Self::default()
        }
    }
}

impl Request {
    /// What it has to remember of all this, made on first use.
    pub fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// What it has to remember of all this, if there is anything.
    #[must_use]
    pub fn rare_if_any(&self) -> Option<&Rare> {
        self.rare.get().map(|rare| &**rare)
    }

    /// As [`Request::rare`], to be changed.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_init(Box::default);
        self.rare.get_mut().expect("it was just made")
    }

    /// `$limit_rate` in bytes a second, when it was set.
    #[must_use]
    pub fn limit_rate(&self) -> Option<u64> {
        self.rare_if_any()?.limit_rate.get()
    }

    /// Where the slice begins that is asked for (`$slice_range`).
    #[must_use]
    pub fn slice_start(&self) -> Option<u64> {
        self.rare_if_any()?.slice_start.get()
    }

    /// Tells a new sub-request of this one.
    pub(super) fn share_rare(&self, child: &mut Self) {
        if self.settings().limits.is_any() {
            // Whoever of them is asked first is asked for all.
            self.limited();
        }
        if let Some(shared) = self.rare_if_any().map(Rare::of_child) {
            *child.rare_mut() = shared;
        }
    }
}
