//! The rest of a response whose file cannot be read to its end, from elsewhere.
//!
//! A module whose files are copies of what another server has says so by its state ([`State::successor`]). Not here:
//! when a file is given up (`connection`, `body_filter`), and where the rest comes from (the module). Invariant: what
//! does not fail costs nothing of this.
//!
//! [`State::successor`]: super::state::State::successor

use std::pin::Pin;
use std::rc::Rc;

use disk::OpenFile;
use message::{Body, FileRange};

use super::Request;

/// The rest of a range of a file, if it can be had; why not is logged by it. Takes a stand-in of the request, the part
/// of the file that was not sent, and the reason for a log.
pub type Successor =
    fn(Box<Request>, FileRange<Rc<OpenFile>>, String) -> Pin<Box<dyn Future<Output = Rest>>>;

/// A body of exactly the bytes that were asked for, or an error in their midst.
pub type Rest = Option<Body<Rc<OpenFile>>>;

impl Request {
    /// What has the rest of this file, if there is something.
    #[must_use]
    pub fn successor(&self, file: &Rc<OpenFile>) -> Option<Successor> {
        self.states.find(|state| state.successor(file))
    }

    /// Stands in for this request where a module asks for the rest of its body, which may outlive the borrow.
    #[must_use]
    pub fn understudy(&self) -> Box<Self> {
        let mut understudy = self.twin();
        self.share_states(&mut understudy);
        understudy
    }
}
