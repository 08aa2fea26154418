//! A file in the journal's folder that is there while purges are pending. Another process that reads the directory has
//! no index, so it could not tell which entries are purged and not deleted yet: meanwhile it uses none. It is there,
//! too, while what no index knows counts as purged.
//!
//! Invariant: it is made before a purge is acknowledged, and deleted after the files of the entries that it covers.

use crate::journal::FOLDER;

/// The name of the file.
const MARK: &str = "purging";

/// The path of the file that is there while purges are pending, of a cache directory (an absolute path without a slash
/// at its end).
#[must_use]
pub fn purge_mark(directory: &[u8]) -> Vec<u8> {
    [directory, b"/", FOLDER.as_bytes(), b"/", MARK.as_bytes()].concat()
}
