//! Reads of a whole range, repeated until it has come.

use crate::files::error::Error;
use bytes::Bytes;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;

/// Reads `len` bytes, or up to the end of the file. **Waits** if the file is on a disk.
pub(crate) fn read_fully(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Bytes, Error> {
    let mut buffer = Vec::with_capacity(len);
    while buffer.len() < len {
        let (left, at) = (len - buffer.len(), offset + buffer.len() as u64);
        match sys::pread_into(file, &mut buffer, left, at) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read()", &error)),
        }
    }
    Ok(Bytes::from(buffer))
}
