//! [`Access`]: how a caller wants its files opened, read and sent (the settings of its location).

use crate::keeping::open_file_cache::OpenFileCache;
use crate::keeping::walk::Symlinks;
use crate::pool::Pool;

/// Whether disk work may wait on the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AioMode {
    /// Never: whatever is not in memory goes to the pool.
    #[default]
    Pool,
    /// `aio off`: everything on the loop and blocking, as nginx does it; the baseline for measurements.
    Inline,
}

/// One caller's settings. Cheap to make per request.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The pool for everything that would wait.
    pub pool: &'a Pool,
    /// Whether it may wait on the loop.
    pub mode: AioMode,
    /// `disable_symlinks`.
    pub symlinks: Symlinks,
    /// `directio SIZE`: files of at least this many bytes are read with O_DIRECT. None: off.
    pub directio: Option<u64>,
    /// `directio_alignment`, a power of two.
    pub directio_alignment: u64,
    /// `read_ahead SIZE`: fills are made at least this long, in bytes; 0: no wish. (All that nginx does for it on Linux
    /// is POSIX_FADV_SEQUENTIAL.)
    pub read_ahead: u64,
    /// `sendfile`: off means that file ranges are read into buffers.
    pub sendfile: bool,
    /// `sendfile_max_chunk` in bytes: after this many the loop's other tasks get their turn. 0: no limit.
    pub sendfile_max_chunk: u64,
    /// `output_buffers`: bytes of one buffer where ranges are read into buffers.
    pub output_buffer: usize,
    /// `open_file_cache`: its entries may be out of date for a while. None: off, every answer is exact.
    pub stale: Option<&'a OpenFileCache>,
    /// Upper bound of the request's arrival: a number that grows (say, the nanosecond of the event loop's last
    /// wake-up). A check of a kept file for one moment holds for every request of that moment or an earlier one, so
    /// that the requests of one `epoll_wait` share it. 0: unknown, check again.
    pub moment: u64,
    /// Opens with O_NOATIME where the kernel permits it (own files, or CAP_FOWNER).
    pub noatime: bool,
    /// Bytes at a file's end that are never sent (checksums, say). The copy of a small file in memory is aligned so
    /// that the part before them ends with a page, and so takes as few pages as possible.
    pub unsent: usize,
}

impl<'a> Access<'a> {
    /// nginx's defaults, with this pool.
    #[must_use]
    pub fn new(pool: &'a Pool) -> Access<'a> {
        Access {
            pool,
            mode: AioMode::Pool,
            symlinks: Symlinks::Follow,
            directio: None,
            directio_alignment: 512,
            read_ahead: 0,
            sendfile: true,
            sendfile_max_chunk: 2 << 20,
            output_buffer: 32 << 10,
            stale: None,
            moment: 0,
            noatime: false,
            unsent: 0,
        }
    }
}
