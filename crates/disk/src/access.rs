//! [`Access`]: how a caller wants its files opened, read and sent (its settings).

use crate::files::error::WouldBlock;
use crate::files::open_file::OpenFile;
use crate::keeping::open_file_cache::OpenFileCache;
use crate::keeping::walk::Symlinks;
use crate::pool::Pool;

/// Whether disk work may wait on the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AioMode {
    /// Never: whatever is not in memory goes to the pool.
    #[default]
    Pool,
    /// Never, and nothing goes to the pool either: what is not in memory is
    /// [`Error::NotInMemory`](crate::Error::NotInMemory).
    Memory,
    /// It may: everything is done on the loop, and blocks it. The baseline for measurements.
    Inline,
}

/// One caller's settings. Cheap to make per request.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The pool for everything that would wait.
    pub pool: &'a Pool,
    /// Whether it may wait on the loop.
    pub mode: AioMode,
    /// Whether symbolic links are followed, and whose.
    pub symlinks: Symlinks,
    /// Files of at least this many bytes are read with O_DIRECT. None: off.
    pub directio: Option<u64>,
    /// The alignment of reads with O_DIRECT in bytes, a power of two.
    pub directio_alignment: u64,
    /// Minimum length of a read ahead of what is missing, in bytes; 0: no wish.
    pub read_ahead: u64,
    /// Whether ranges of files are sent by sendfile(2) and not by buffers that they are read into.
    pub sendfile: bool,
    /// Bytes after which the loop's other tasks get their turn. 0: no limit.
    pub sendfile_max_chunk: u64,
    /// Bytes of one buffer where ranges are read into buffers.
    pub output_buffer: usize,
    /// A cache whose entries may be out of date for a while. None: off, every answer is exact.
    pub stale: Option<&'a OpenFileCache>,
    /// Upper bound of the request's arrival: a number that grows (say, the nanosecond of the event loop's last
    /// wake-up). A check of a kept file for one moment holds for every request of that moment or an earlier one, so
    /// that the requests of one `epoll_wait` share it. 0: unknown, check again.
    pub moment: u64,
    /// Opens with O_NOATIME where the kernel permits it (own files, or CAP_FOWNER).
    pub noatime: bool,
    /// Whether the file is this server's own, which no other one puts another in the place of: to leave it open, its
    /// metadata is looked at, and not its path. (The way to it has changed where a directory above was moved away; but the
    /// bytes are the same.)
    pub is_own: bool,
    /// Bytes at a file's end that are never sent (checksums, say). The copy of a small file in memory is aligned so
    /// that the part before them ends with a page, and so takes as few pages as possible.
    pub unsent: usize,
}

impl<'a> Access<'a> {
    /// The pool, for what would wait.
    pub(crate) fn waiting_pool(&self) -> Result<&'a Pool, WouldBlock> {
        match self.mode {
            AioMode::Memory => Err(WouldBlock),
            AioMode::Pool | AioMode::Inline => Ok(self.pool),
        }
    }

    /// Does a loop read this file itself, and wait (`aio off`)? Never a device, of which nothing is in the kernel's memory.
    pub(crate) fn reads_inline(&self, file: &OpenFile) -> bool {
        self.mode == AioMode::Inline && !file.is_on_device
    }

    /// This access, for what is in memory alone.
    #[must_use]
    pub fn in_memory(self) -> Access<'a> {
        Access {
            mode: AioMode::Memory,
            ..self
        }
    }

    /// The defaults, with this pool.
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
            is_own: false,
            unsent: 0,
        }
    }
}
