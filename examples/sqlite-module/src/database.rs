//! One query of one database: connections, and rows as JSON.
//!
//! Everything here blocks and is called in a pool only. Invariant: a connection is used by one thread at a time; those not in use
//! are kept, at most [`IDLE_MAX`].

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use serde_json::{Map, Value};

/// Maximum number of rows in one answer.
const ROWS_MAX: usize = 10_000;
/// Maximum number of idle connections that are kept open.
const IDLE_MAX: usize = 64;
/// Maximum time that a query waits for a writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time of `sleep()`, in milliseconds.
const SLEEP_MAX_MS: u64 = 60_000;

/// A query that failed.
#[derive(Debug)]
pub enum Error {
    /// SQLite says so.
    Sqlite(rusqlite::Error),
    /// The answer is too long.
    TooManyRows,
}

/// The rows of one answer.
#[derive(Debug)]
pub struct Found {
    /// As JSON: an array of objects.
    pub json: Vec<u8>,
    /// Their number.
    pub count: usize,
}

/// A query of a database.
#[derive(Debug)]
pub struct Database {
    file: PathBuf,
    sql: String,
    idle: Mutex<Vec<Connection>>,
}

impl Database {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(file: PathBuf, sql: String) -> Self {
        Self {
            file,
            sql,
            idle: Mutex::default(),
        }
    }

    /// The rows of the query with these values. **Blocks.**
    ///
    /// # Errors
    /// An error of SQLite, or more than [`ROWS_MAX`] rows.
    pub fn rows(&self, values: &[String]) -> Result<Found, Error> {
        let kept = self.idle().pop();
        let connection = kept.map_or_else(|| self.open(), Ok)?;
        let rows = self.ask(&connection, values);
        let mut idle = self.idle();
        if rows.is_ok() && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        rows
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<Connection, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        add_sleep(&connection)?;
        Ok(connection)
    }

    fn ask(&self, connection: &Connection, values: &[String]) -> Result<Found, Error> {
        let mut statement = connection.prepare_cached(&self.sql)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            if found.len() == ROWS_MAX {
                return Err(Error::TooManyRows);
            }
            let mut object = Map::new();
            for (column, name) in names.iter().enumerate() {
                object.insert(name.clone(), json(row.get_ref(column)?));
            }
            found.push(Value::Object(object));
        }
        let count = found.len();
        let json = (Value::Array(found).to_string() + "\n").into_bytes();
        Ok(Found { json, count })
    }
}

/// `sleep(milliseconds)` in SQL: so that one can watch what a query that takes long does to others (nothing).
fn add_sleep(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.create_scalar_function("sleep", 1, FunctionFlags::SQLITE_UTF8, |context| {
        let asked: i64 = context.get(0)?;
        let ms = u64::try_from(asked).unwrap_or(0).min(SLEEP_MAX_MS);
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread of a pool: what it is there for"
        )]
        std::thread::sleep(Duration::from_millis(ms));
        Ok(asked)
    })
}

/// JSON has no bytes: a blob becomes hexadecimal digits.
fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into(),
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(error) => write!(out, "{error}"),
            Self::TooManyRows => write!(out, "the query has more than {ROWS_MAX} rows"),
        }
    }
}
