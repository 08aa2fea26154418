//! How a caller wants its files touched: the settings of its location, in this crate's words.

use crate::keeping::open_file_cache::OpenFileCache;
use crate::pool::Pool;

/// Whether disk work may wait on the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Never: what is not in memory goes to the pool.
    #[default]
    Pool,
    /// `aio off`: everything inline and blocking, as nginx does it; the baseline for measurements.
    Inline,
}

/// `disable_symlinks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Followed.
    #[default]
    Follow,
    /// Refused (ELOOP) behind the first `from` bytes of the path.
    Refuse {
        /// Length of the part of the path, up to and with a slash, in which symlinks are followed.
        from: usize,
    },
    /// Refused (ELOOP) behind the first `from` bytes of the path if link and target have different owners.
    RefuseOthers {
        /// As above.
        from: usize,
    },
}

/// One caller's wishes. Cheap to make per request.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Where what would wait is done.
    pub pool: &'a Pool,
    /// May it wait on the loop?
    pub mode: Mode,
    /// `disable_symlinks`.
    pub symlinks: Symlinks,
    /// `directio SIZE`: files of at least so many bytes are read with O_DIRECT. None: off.
    pub directio: Option<u64>,
    /// `directio_alignment`, a power of two.
    pub directio_alignment: u64,
    /// `read_ahead SIZE`: the kernel's readahead is wished for from this size on; 0: its default. (nginx's only use on
    /// Linux is POSIX_FADV_SEQUENTIAL; here it makes fills as long as this.)
    pub read_ahead: u64,
    /// `sendfile`: off means that file ranges are read into buffers.
    pub sendfile: bool,
    /// `sendfile_max_chunk` in bytes: after so many the loop's other tasks get their turn. 0: no limit.
    pub sendfile_max_chunk: u64,
    /// Bytes of one buffer where ranges are read into buffers (`output_buffers`).
    pub output_buffer: usize,
    /// `open_file_cache`: what may be out of date for a while. None: off, every answer is exact.
    pub stale: Option<&'a OpenFileCache>,
    /// When the request had come, at the latest: a number that grows (say, the nanosecond of the event loop's last wake). A
    /// look at a kept file that was made for one moment is good for every request of that moment or an earlier one, so that
    /// the requests that one `epoll_wait` brought share it. 0: unknown, look anew.
    pub moment: u64,
    /// Open with O_NOATIME where the kernel permits it (own files, or CAP_FOWNER).
    pub noatime: bool,
    /// Bytes at a file's end that nobody is sent (checksums, say). A small file's copy in memory lies so that what comes before them ends
    /// with a page, and is as few pages as it can be.
    pub unsent: usize,
}

impl<'a> Access<'a> {
    /// nginx's defaults, with this pool.
    #[must_use]
    pub fn new(pool: &'a Pool) -> Access<'a> {
        Access {
            pool,
            mode: Mode::Pool,
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
