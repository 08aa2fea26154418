//! freewheel with a module that does what it is told: answers with the body that it was sent, for the tests of how bodies are read, or
//! panics, for those of what a fault in the code does to others.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use config::{DirectiveTable, Error, Scope, Section, Template, directives};
use message::Body;
use server::handler::{Handler, Making, Module, Place, run_in_pool};
use server::outcome::Outcome;
use server::request_body::{self, Leaving, Pieces, RequestBody};
use server::{Request, Response};

fn main() -> ExitCode {
    server::main(&[&Told])
}

directives! {
    /// Doing what is told.
    struct Directives in Location {
        /// Answers with the body: `stored`, `twice` (read twice), `passing` (each piece behind a bar), `early` (the first piece).
        echo_body: Option<Template> = none, [LOCATION] 1, inherit never;
        /// Panics where the value says: `loop`, or `pool`.
        panic_in: Option<Template> = none, [LOCATION] 1, inherit never;
        /// Keeps the loop for so many milliseconds, at most a second.
        keep_loop: Option<Template> = none, [LOCATION] 1, inherit never;
    }
}

#[derive(Debug)]
struct Told;

impl Module for Told {
    fn tables(&self) -> Vec<&'static DirectiveTable> {
        Directives::tables()
    }

    fn configure(
        &self,
        place: &Place<'_>,
        scope: &mut Scope,
    ) -> Result<Option<Arc<dyn Handler>>, Error> {
        let settings: Directives = place.settings(scope)?;
        let echo = settings
            .echo_body
            .map(|how| -> Arc<dyn Handler> { Arc::new(Echo(how)) });
        let panic = settings
            .panic_in
            .map(|place| -> Arc<dyn Handler> { Arc::new(Panic(place)) });
        let keep = settings
            .keep_loop
            .map(|ms| -> Arc<dyn Handler> { Arc::new(Keep(ms)) });
        Ok(echo.or(panic).or(keep))
    }
}

#[derive(Debug)]
struct Keep(Template);

impl Handler for Keep {
    fn make<'a>(&'a self, request: &'a mut Request) -> Making<'a> {
        Box::pin(async move {
            let ms = request.evaluate(&self.0);
            let ms = str::from_utf8(&ms).ok().and_then(|ms| ms.parse().ok());
            #[expect(clippy::disallowed_methods, reason = "it is to be noticed")]
            std::thread::sleep(Duration::from_millis(1000.min(ms.unwrap_or(0))));
            Outcome::Answer(Box::new(Response::text(200, "text/plain", "kept")))
        })
    }
}

#[derive(Debug)]
struct Echo(Template);

impl Handler for Echo {
    fn make<'a>(&'a self, request: &'a mut Request) -> Making<'a> {
        Box::pin(async move {
            let how = request.evaluate(&self.0);
            make(request, &how).await.unwrap_or_else(|outcome| outcome)
        })
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
                _ => answer(b"calm".to_vec()),
            }
        })
    }
}

async fn make(request: &mut Request, how: &[u8]) -> Result<Outcome, Outcome> {
    if matches!(how, b"stored" | b"twice") {
        let body = request_body::store(request).await?;
        if let RequestBody::Stored(stored) = &body
            && how == b"stored"
        {
            let mut response = Box::new(Response::new(200));
            response.content_length = Some(stored.len());
            response.body = Body::Once(stored.chunk());
            return Ok(Outcome::Answer(response));
        }
        let mut text = joined(body.pieces(), b"", usize::MAX).await;
        text.extend(joined(body.pieces(), b"", usize::MAX).await);
        return Ok(answer(text));
    }
    let most = if how == b"early" { 1 } else { usize::MAX };
    let pieces = request_body::pass(request).await?.pieces();
    let work = joined(pieces, b"|", most);
    let text = request_body::alongside(request, Leaving::Ends, work).await?;
    Ok(answer(text))
}

fn answer(text: Vec<u8>) -> Outcome {
    Outcome::Answer(Box::new(Response::text(200, "text/plain", text)))
}

/// At most `most` pieces, each with `bar` before it.
async fn joined(mut pieces: Pieces, bar: &[u8], most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..most {
        match pieces.next().await {
            Ok(Some(piece)) => {
                all.extend_from_slice(bar);
                all.extend_from_slice(&piece);
            }
            Ok(None) => break,
            Err(error) => return error.to_string().into(),
        }
    }
    all
}
