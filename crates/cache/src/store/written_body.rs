//! Reading an entry that is still being written, for followers whose bytes have left the fill's window.

use super::{EntryWriter, Store};
use crate::error::{EntryFault, Error};
use bytes::Bytes;
use disk::{Access, BODY_MAX, Local, OpenFile, Output, READ_MAX};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// The body of a fill, as far as it is in the entry's file. It stays readable whatever the file is called, and
/// whichever file has its name. Can be sent to other loops.
#[derive(Clone, Debug)]
pub struct WrittenBody {
    output: Arc<OnceLock<Output>>,
    body_offset: u64,
}

impl EntryWriter {
    /// The part of the body that [`EntryWriter::written`] counts, for readers.
    #[must_use]
    pub fn written_body(&self) -> WrittenBody {
        WrittenBody {
            output: Arc::clone(self.output()),
            body_offset: self.body_offset(),
        }
    }
}

impl Store {
    /// Reads bytes of the written body, at least one and at most [`READ_MAX`]. `file` keeps the open file from one call
    /// to the next (None at first): it stays readable whatever becomes of its name.
    ///
    /// # Errors
    /// [`Error::Disk`]. [`Error::Fault`]: the file is shorter.
    pub async fn read_written(
        &self,
        local: &Local,
        access: &Access<'_>,
        written_body: &WrittenBody,
        file: &mut Option<Rc<OpenFile>>,
        range: &Range<u64>,
    ) -> Result<Bytes, Error> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let (at, len) = (written_body.body_offset + range.start, len.min(READ_MAX));
        // The disk layer keeps a small file's contents as of its opening; a larger file is read as it is now.
        let is_current = |file: &Rc<OpenFile>| {
            let known = file.meta().len;
            known > BODY_MAX as u64 || known >= at + len as u64
        };
        let open = match file.take().filter(is_current) {
            Some(open) => open,
            None => {
                let output = written_body
                    .output
                    .get()
                    .ok_or(EntryFault::Damaged("length"))?;
                local.open_output(output, access).await?
            }
        };
        let bytes = local.read(&open, at, len, access).await?;
        *file = Some(open);
        if bytes.is_empty() {
            return Err(EntryFault::Damaged("length").into());
        }
        Ok(bytes)
    }
}
