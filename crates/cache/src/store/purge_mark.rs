//! A file in the journal's folder that is there while purges are pending. Another process that reads the directory has
//! no index, so it could not tell which entries are purged and not deleted yet: meanwhile it uses none.
//!
//! Invariant: it is made before a purge is acknowledged, and deleted after the files of the entries that it covers.

use super::{FILE_MODE, Store};
use crate::error::Error;
use crate::journal::{FOLDER, temp_ending};
use disk::{BatchStep, Local, NewFile};

/// The name of the file.
const MARK: &str = "purging";

/// The path of the file that is there while purges are pending, of a cache directory (an absolute path without a slash
/// at its end).
#[must_use]
pub fn purge_mark(directory: &[u8]) -> Vec<u8> {
    [directory, b"/", FOLDER.as_bytes(), b"/", MARK.as_bytes()].concat()
}

impl Store {
    /// Makes the file or deletes it, if that has to be.
    pub(super) async fn set_purge_mark(&self, local: &Local) -> Result<(), Error> {
        let mut is_marked = self.0.is_purge_marked.lock().await;
        // Asked under the lock: who adds a rule comes here behind it.
        let is_due = self.purges_pending() > 0;
        if *is_marked == is_due {
            return Ok(());
        }
        let settings = &self.0.settings;
        let path = purge_mark(&settings.directory).into();
        let step = match is_due {
            true => BatchStep::Create(NewFile {
                path,
                ending: temp_ending(0),
                is_watched: false,
                from: None,
                mode: FILE_MODE,
                contents: Vec::new(),
            }),
            false => BatchStep::Unlink(path),
        };
        // The directory is not given up before the job has ended.
        let held = self.0.journal.hold()?;
        local
            .change_holding(vec![step], &settings.pool, held)
            .await?;
        *is_marked = is_due;
        Ok(())
    }
}
