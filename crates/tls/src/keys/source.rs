//! Where certificates, keys and revocations come from: a file, `data:` in the configuration, or a key store.
//!
//! Not here: opening files; whoever may wait gives a function that reads them.
//! Invariant: what an error names is what the configuration says.

use crate::error::{Error, Fault, Kind};
use std::borrow::Cow;
use std::io;

/// Reads a file whole. The master's reads from the disk, a worker's looks into what the master has sent.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<Vec<u8>>;

/// The bytes that `name` stands for.
pub(crate) fn read<'a>(
    kind: Kind,
    name: &'a str,
    file: ReadFile<'_>,
) -> Result<Cow<'a, [u8]>, Error> {
    let faulty = |fault| Error::Load {
        kind,
        name: name.to_owned(),
        fault,
    };
    if kind != Kind::Crl
        && let Some(data) = name.strip_prefix("data:")
    {
        return Ok(Cow::Borrowed(data.as_bytes()));
    }
    for store in ["engine:", "store:"] {
        if kind == Kind::Key && name.starts_with(store) {
            return Err(faulty(Fault::Unsupported(store)));
        }
    }
    match file(name) {
        Ok(bytes) => Ok(Cow::Owned(bytes)),
        Err(error) => Err(faulty(Fault::open(name, &error))),
    }
}

/// The path that has to be read for `name`; `None` for what lies in the configuration, or in a store.
#[must_use]
pub fn path(name: &str) -> Option<&str> {
    let is_path = ["data:", "engine:", "store:"]
        .iter()
        .all(|prefix| !name.starts_with(prefix));
    is_path.then_some(name)
}
