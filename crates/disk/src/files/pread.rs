//! Reads of a whole range, repeated until it has come.

use crate::files::error::Error;
use bytes::Bytes;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;

/// Bytes of one read. A kernel without preemption gives its processor to no other thread meanwhile: where 6 MB came out of
/// memory in one call, a loop of that processor waited 3 to 5 ms.
const CALL_MAX: usize = 512 << 10;

/// Reads `len` bytes, or up to the end of the file. **Waits** if the file is on a disk.
pub(crate) fn read_fully(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Bytes, Error> {
    let mut buffer = Vec::with_capacity(len);
    append_fully(file, &mut buffer, offset, len)?;
    Ok(Bytes::from(buffer))
}

/// The same, into a buffer, behind what is there.
pub(crate) fn append_fully(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    offset: u64,
    len: usize,
) -> Result<(), Error> {
    let before = buffer.len();
    while buffer.len() - before < len {
        let got = buffer.len() - before;
        match sys::pread_into(file, buffer, (len - got).min(CALL_MAX), offset + got as u64) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read()", &error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_range_of_several_calls_is_read_whole_and_up_to_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        let pattern: Vec<u8> = (0u8..251).cycle().take(2 * CALL_MAX + 5).collect();
        file.write_all(&pattern).unwrap();
        let read = |offset, len| read_fully(file.as_fd(), offset, len).unwrap();
        assert_eq!(read(0, pattern.len()), pattern);
        assert_eq!(read(7, CALL_MAX + 1), pattern[7..CALL_MAX + 8]);
        assert_eq!(read(7, 3 * CALL_MAX), pattern[7..]);
    }
}
