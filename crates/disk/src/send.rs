//! Sending a range of a file to a socket, window by window.

use crate::access::Access;
use crate::error::Error;
use crate::file::OpenFile;
use crate::local::Local;
use crate::sink::Sink;
use std::io::ErrorKind;
use std::rc::Rc;

impl Local {
    /// Sends bytes `*offset .. end` of a file to a socket; `*offset` moves on with what the socket has taken.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file ends before `end`, [`Error::Socket`], [`Error::System`], [`Error::Overflow`].
    pub async fn send<S: Sink>(
        &self,
        file: &Rc<OpenFile>,
        offset: &mut u64,
        end: u64,
        sink: &S,
        access: &Access<'_>,
    ) -> Result<(), Error> {
        while *offset < end {
            let len = usize::try_from(end - *offset)
                .unwrap_or(usize::MAX)
                .min(access.output_buffer.max(4096));
            let bytes = self.read(file, *offset, len, access).await?;
            if bytes.is_empty() {
                return Err(Error::Truncated { len: *offset });
            }
            let mut left = &bytes[..];
            while !left.is_empty() {
                match sink.try_write(left) {
                    Ok(sent) => {
                        left = &left[sent..];
                        *offset += sent as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        sink.writable().await.map_err(Error::Socket)?;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::Socket(error)),
                }
            }
        }
        Ok(())
    }
}
