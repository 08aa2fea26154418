//! Reading an entry that is still being written, for those whose bytes left the window of the fill.

use super::{EntryWriter, Store};
use crate::error::{Error, Fault};
use bytes::Bytes;
use disk::{Access, BODY_MAX, Local, OpenFile, Output, READ_MAX};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Where the bytes of a fill are: in the file that it writes, whatever that is called, and whatever has its name. Goes from loop to
/// loop.
#[derive(Clone, Debug)]
pub struct WrittenBody {
    output: Arc<OnceLock<Output>>,
    body_offset: u64,
}

impl EntryWriter {
    /// Where its bytes can be read, those that [`EntryWriter::written`] counts.
    #[must_use]
    pub fn written_body(&self) -> WrittenBody {
        WrittenBody {
            output: Arc::clone(self.output()),
            body_offset: self.body_offset(),
        }
    }
}

impl Store {
    /// Reads bytes of the body that have been written, at most [`READ_MAX`] at once, and never fewer than one. `file` keeps what
    /// is open from one call to the next (None at first): it stays readable whatever becomes of its name.
    ///
    /// # Errors
    /// [`Error::Disk`]. [`Error::Fault`]: it has not as many bytes.
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
        // A small file's contents are kept as they were when it was opened; a larger one is read as it is.
        let is_current = |file: &Rc<OpenFile>| {
            let known = file.meta().len;
            known > BODY_MAX as u64 || known >= at + len as u64
        };
        let open = match file.take().filter(is_current) {
            Some(open) => open,
            None => {
                let output = written_body.output.get().ok_or(Fault::Damaged("length"))?;
                local.open_output(output, access).await?
            }
        };
        let bytes = local.read(&open, at, len, access).await?;
        *file = Some(open);
        if bytes.is_empty() {
            return Err(Fault::Damaged("length").into());
        }
        Ok(bytes)
    }
}
