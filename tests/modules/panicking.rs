//! freewheel with a module that panics when it is told to: for the tests of what a fault in the code does to others.

use std::process::ExitCode;
use std::sync::Arc;

use config::{Error, Scope, Section, Table, Template, directives};
use server::content::module::{Handler, Making, Module, Place, run_in_pool};
use server::respond::Outcome;
use server::{Request, Response};

fn main() -> ExitCode {
    server::main(&[&Panicking])
}

directives! {
    /// Failing.
    struct Directives in Location {
        /// Panics where the value says: `loop`, or `pool`.
        panic_in: Option<Template> = none, [LOCATION] 1, inherit never;
    }
}

#[derive(Debug)]
struct Panicking;

impl Module for Panicking {
    fn tables(&self) -> Vec<&'static Table> {
        Directives::tables()
    }

    fn configure(
        &self,
        place: &Place<'_>,
        scope: &mut Scope,
    ) -> Result<Option<Arc<dyn Handler>>, Error> {
        let settings: Directives = place.settings(scope)?;
        Ok(settings
            .panic_in
            .map(|place| -> Arc<dyn Handler> { Arc::new(Panic(place)) }))
    }
}

#[derive(Debug)]
struct Panic(Template);

impl Handler for Panic {
    fn make<'a>(&'a self, request: &'a mut Request) -> Making<'a> {
        Box::pin(async move {
            match &request.evaluate(&self.0)[..] {
                b"loop" => panic!("told to"),
                b"pool" => {
                    let done = run_in_pool(request, b"default", || panic!("told to")).await;
                    done.map_or_else(Outcome::Failed, |()| unreachable!("the job panics"))
                }
                _ => Outcome::Answer(Box::new(Response::text(200, "text/plain", "calm"))),
            }
        })
    }
}
