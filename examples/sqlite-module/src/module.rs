//! The module: its directives, and the handler that they make.
//!
//! Not here: SQLite ([`crate::database`]). Invariant: nothing here blocks; the loop only hands over the query and later takes its
//! answer.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use config::{
    DirectiveTable, Error, PathText, Placed, Problem, Scope, Section, Template, Value, Word,
    directives,
};
use message::Method;
use server::handler::{Handler, Making, Module, Place, run_in_pool};
use server::outcome::Outcome;
use server::request::state::State;
use server::variables::append;
use server::variables::table::VariableEntry;
use server::{Failure, Level, Request, Response};

use crate::database::Database;

/// `sqlite_query`: a statement, and a value for each `?` in it.
#[derive(Debug, Clone)]
struct Query {
    sql: Bytes,
    values: Vec<Template>,
}

impl Value for Query {
    const SYNTAX: &'static str = "statement [value …]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let values = args[1..].iter().map(|word| Template::of_word(word, scope));
        Ok(Self {
            sql: args[0].bytes().clone(),
            values: values.collect::<Result<_, _>>()?,
        })
    }
}

directives! {
    /// Answering from SQLite.
    struct Directives in Location {
        /// Names the file of the database, relative to the prefix. It is opened for reading only.
        sqlite_database: Option<PathText> = none, [HTTP | SERVER | LOCATION] 1;
        /// Names the thread pool in which queries run.
        sqlite_pool: Placed<Bytes> = "default", [HTTP | SERVER | LOCATION] 1, syntax "name";
        /// Answers with the rows of a query, as JSON. The values, which may have variables, take the places of the `?` in the
        /// statement; they are never parsed as SQL.
        sqlite_query: Option<Placed<Query>> = none, [LOCATION] 1.., inherit never;
    }
}

server::variables! {
    /// The number of rows of the answer.
    "sqlite_rows" => fresh(append_count);
}

/// The number of rows of an answer, kept with its request.
#[derive(Debug)]
struct Count(usize);

impl State for Count {}

fn append_count(request: &Request, out: &mut Vec<u8>) -> bool {
    let count: Option<&Count> = request.states.get();
    count.is_some_and(|Count(rows)| append::number(*rows as u64, out))
}

/// The module.
#[derive(Debug)]
pub struct Sqlite;

impl Module for Sqlite {
    fn tables(&self) -> Vec<&'static DirectiveTable> {
        Directives::tables()
    }

    fn variables(&self) -> &'static [VariableEntry] {
        VARIABLES
    }

    fn configure(
        &self,
        place: &Place<'_>,
        scope: &mut Scope,
    ) -> Result<Option<Arc<dyn Handler>>, Error> {
        let settings: Directives = place.settings(scope)?;
        let Some(query) = settings.sqlite_query else {
            return Ok(None);
        };
        let Some(file) = &settings.sqlite_database else {
            return Err(query.error("\"sqlite_query\" needs a \"sqlite_database\""));
        };
        place.check_pool(&settings.sqlite_pool)?;
        let sql = String::from_utf8_lossy(&query.value.sql).into_owned();
        Ok(Some(Arc::new(Rows {
            database: Arc::new(Database::new(file.resolve(place.prefix()), sql)),
            values: query.value.values,
            pool: settings.sqlite_pool.value,
        })))
    }
}

/// Answers with the rows of one query.
#[derive(Debug)]
struct Rows {
    database: Arc<Database>,
    values: Vec<Template>,
    pool: Bytes,
}

impl Handler for Rows {
    fn make<'a>(&'a self, request: &'a mut Request) -> Making<'a> {
        Box::pin(async move {
            if !matches!(request.method, Method::Get | Method::Head) {
                return Outcome::Failed(Failure::new(405));
            }
            match self.answer(request).await {
                Ok(response) => Outcome::Answer(Box::new(response)),
                Err(failure) => Outcome::Failed(failure),
            }
        })
    }
}

impl Rows {
    async fn answer(&self, request: &mut Request) -> Result<Response, Failure> {
        let text = |value| String::from_utf8_lossy(&request.evaluate(value)).into_owned();
        let values: Vec<String> = self.values.iter().map(text).collect();
        let database = Arc::clone(&self.database);
        let rows = run_in_pool(request, &self.pool, move || database.rows(&values)).await?;
        let found = rows.map_err(|error| {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(format!("SQLite: {error}").as_bytes());
            });
            Failure::new(500)
        })?;
        request.states.put(Rc::new(Count(found.count)));
        Ok(Response::text(200, "application/json", found.json))
    }
}
