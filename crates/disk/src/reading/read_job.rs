//! Jobs that read parts of a file as they go along, and return what they computed from them.

use crate::access::Access;
use crate::files::error::Error;
use crate::files::open_file::{Handle, OpenFile};
use crate::files::pread::append_fully;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::Lane;
use crate::reading::read::read_waiting;
use bytes::Bytes;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// An open file inside a job, whose reads wait for the disk.
#[derive(Debug)]
pub struct FileReader {
    handle: Arc<Handle>,
    len: u64,
    direct: bool,
    alignment: u64,
}

impl FileReader {
    /// The file's length in bytes when it was opened.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is a file, not a collection"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reads `len` bytes at `offset`, fewer only at the end of the file. **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `read()`.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        read_waiting(&self.handle, offset, len, self.direct, self.alignment)
    }

    /// The same, behind what is in a buffer, whose memory serves many reads so. Returns the number of bytes read.
    /// **Waits.**
    ///
    /// # Errors
    /// As [`FileReader::read`].
    pub fn append(&self, buffer: &mut Vec<u8>, offset: u64, len: usize) -> Result<usize, Error> {
        if self.direct {
            let bytes = self.read(offset, len)?;
            buffer.extend_from_slice(&bytes);
            return Ok(bytes.len());
        }
        let before = buffer.len();
        let bytes = |read: &usize| *read as u64;
        call_times::timed_on(Operation::Read, self.handle.as_fd(), bytes, || {
            append_fully(self.handle.as_fd(), buffer, offset, len)?;
            Ok(buffer.len() - before)
        })
    }
}

impl Local {
    /// Runs work that reads a file, in the pool.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub async fn examine<T, F>(
        &self,
        file: &OpenFile,
        access: &Access<'_>,
        work: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&FileReader) -> T + Send + 'static,
    {
        let reader = FileReader {
            handle: file.handle.clone(),
            len: file.meta().len,
            direct: file.direct,
            alignment: file.alignment(access.directio_alignment),
        };
        if access.reads_inline(file) {
            return Ok(work(&reader));
        }
        let begun = Instant::now();
        let done = access
            .waiting_pool()?
            .run(Lane::Read, move || work(&reader))
            .await;
        match &done {
            Ok(_) => self.0.counters.offloaded(Operation::Read, begun.elapsed()),
            Err(_) => self.0.counters.overflowed(Operation::Read),
        }
        Ok(done?)
    }
}
