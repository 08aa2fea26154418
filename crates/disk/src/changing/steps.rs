//! Work on many pages of a file in several system calls: a kernel without preemption gives the processor to no other
//! thread while a call frees pages or hands them to the disk.
//!
//! Not here: reads (`files::pread`), whose copying takes longer for a byte, and writes, within which the kernel lets other
//! threads run.

use std::os::fd::BorrowedFd;

/// Bytes of one call. With 64 MiB at once, which were written by calls of a MiB and more, another thread of the processor
/// waited 4 to 6 ms (p99); with these, 0.7 and 0.8.
const STEP_BYTES: u64 = 4 << 20;

/// Calls `work` with the offset and length of each step of a range, in order, until one fails.
pub(super) fn in_steps<E>(
    offset: u64,
    len: u64,
    mut work: impl FnMut(u64, u64) -> Result<(), E>,
) -> Result<(), E> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end {
        let step = STEP_BYTES.min(end - at);
        work(at, step)?;
        at += step;
    }
    Ok(())
}

/// Begins to write the dirty pages of the first `len` bytes of a file to the disk. **Waits** if the disk's queue is full.
/// What fails is tried again by the kernel.
pub(super) fn begin_writeback(file: BorrowedFd<'_>, len: u64) {
    let _ = in_steps(0, len, |offset, len| {
        sys::begin_writeback(file, offset, len)
    });
}

/// Waits until a file of `len` bytes is on the disk (fdatasync(2)). **Waits.**
///
/// # Errors
/// Those of fdatasync(2).
pub(super) fn sync(file: BorrowedFd<'_>, len: u64) -> rustix::io::Result<()> {
    if len > STEP_BYTES {
        begin_writeback(file, len);
    }
    rustix::fs::fdatasync(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(offset: u64, len: u64) -> Vec<(u64, u64)> {
        let mut steps = Vec::new();
        let done: Result<(), ()> = in_steps(offset, len, |offset, len| {
            steps.push((offset, len));
            Ok(())
        });
        assert_eq!(done, Ok(()));
        steps
    }

    #[test]
    fn the_steps_are_the_range() {
        assert_eq!(steps(7, 0), []);
        assert_eq!(steps(7, STEP_BYTES), [(7, STEP_BYTES)]);
        let three = steps(7, 2 * STEP_BYTES + 1);
        let last = (7 + 2 * STEP_BYTES, 1);
        assert_eq!(three, [(7, STEP_BYTES), (7 + STEP_BYTES, STEP_BYTES), last]);
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut calls = 0;
        let done = in_steps(0, 3 * STEP_BYTES, |offset, _| {
            calls += 1;
            if offset == 0 { Ok(()) } else { Err(offset) }
        });
        assert_eq!((done, calls), (Err(STEP_BYTES), 2));
    }
}
