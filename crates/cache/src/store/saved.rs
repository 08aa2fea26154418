//! Reading an entry that is still being written, for those whose bytes left the window of the fill.

use super::{Store, Writing};
use crate::entry::Entry;
use crate::error::{Error, Fault};
use crate::key::Key;
use bytes::Bytes;
use disk::{Access, BODY_MAX, Errno, Local, OpenFile, READ_MAX};
use std::ops::Range;
use std::rc::Rc;

/// Where the bytes of a fill are: in its temp file, and after the end in the entry. Goes from loop to loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    key: Key,
    tag: u32,
    body_offset: u64,
}

impl Writing {
    /// Where its bytes can be read, those that [`Writing::written`] counts.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let known = self.known();
        Saved {
            key: known.key,
            tag: known.place.file,
            body_offset: self.body_offset(),
        }
    }
}

impl Store {
    /// Opens the file of a fill, whole or not.
    async fn open_saved(
        &self,
        local: &Local,
        access: &Access<'_>,
        saved: &Saved,
    ) -> Result<Rc<OpenFile>, Error> {
        let temp = self.temp_path(&saved.key, saved.tag);
        match local.open(&temp, access).await {
            Ok(file) => return Ok(file),
            Err(error) if error.errno() == Some(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let file = local.open(&self.path(&saved.key), access).await?;
        let head = local
            .read(&file, 0, READ_MAX.min(saved.body_offset as usize), access)
            .await?;
        let entry = Entry::decode(&head, file.meta().len)?;
        if entry.tag() != saved.tag {
            return Err(Fault::Damaged("another entry's").into());
        }
        Ok(file)
    }

    /// Reads bytes of the body that have been written, at most [`READ_MAX`] at once, and never fewer than one. `file` keeps what
    /// is open from one call to the next (None at first): it stays readable whatever becomes of its name.
    ///
    /// # Errors
    /// [`Error::Disk`]. [`Error::Fault`]: it was given up, another entry took its place, or it has not as many bytes.
    pub async fn read_saved(
        &self,
        local: &Local,
        access: &Access<'_>,
        saved: &Saved,
        file: &mut Option<Rc<OpenFile>>,
        range: &Range<u64>,
    ) -> Result<Bytes, Error> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let (at, len) = (saved.body_offset + range.start, len.min(READ_MAX));
        // A small file's contents are kept as they were when it was opened; a larger one is read as it is.
        let is_current = |file: &Rc<OpenFile>| {
            let known = file.meta().len;
            known > BODY_MAX as u64 || known >= at + len as u64
        };
        let open = match file.take().filter(is_current) {
            Some(open) => open,
            None => self.open_saved(local, access, saved).await?,
        };
        let bytes = local.read(&open, at, len, access).await?;
        *file = Some(open);
        if bytes.is_empty() {
            return Err(Fault::Damaged("length").into());
        }
        Ok(bytes)
    }
}
