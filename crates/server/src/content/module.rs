//! Content made by code of one's own: the open end of an otherwise closed list.
//!
//! A module names its directives and, where a location has one of them, makes a [`Handler`] for that location. How to write
//! one: `docs/adding-a-module.md`. Invariant: a handler never blocks; what does goes through [`crate::Request::run_in_pool`].

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use config::{Directive, Error, Scope, Table};

use crate::request::Request;
use crate::respond::Outcome;

/// What a handler promises to give.
pub type Making<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// Makes the content of a location. Shared by all loops.
pub trait Handler: Debug + Send + Sync {
    /// Answers a request.
    fn make<'a>(&'a self, request: &'a mut Request) -> Making<'a>;

    /// It passes requests on, so that `/a` is sent to `/a/` where only that location exists.
    fn passes(&self) -> bool {
        false
    }
}

/// A module: directives, and what they make.
pub trait Module: Send + Sync {
    /// Its directives, all of which stand in locations.
    fn table(&self) -> &'static Table;

    /// Takes in all directives of the module that one location has; `None` where they make no content.
    ///
    /// # Errors
    /// What is wrong with them, at their place.
    fn configure(
        &self,
        directives: &[&Directive],
        scope: &mut Scope,
    ) -> Result<Option<Arc<dyn Handler>>, Error>;
}

/// Lets the location's handler answer.
pub async fn make(request: &mut Request, handler: &Arc<dyn Handler>) -> Outcome {
    handler.make(request).await
}
