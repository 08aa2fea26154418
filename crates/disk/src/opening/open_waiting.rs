//! Opening and stat where that may wait: in a pool.
//!
//! Not here: who asks, and what is kept (`open`).

use crate::disk::Disk;
use crate::files::error::Error;
use crate::files::open_file::{FileKind, Meta, OpenedFile, Way};
use crate::files::pread::read_fully;
use crate::keeping::walk::{self, Symlinks};
use crate::metrics::{call_times, counters::Operation};
use crate::opening::open::{BODY_MAX, OPENS_ON_LOOPS, OpenOptions, OpenPurpose, switch_direct};
use rustix::fs::{AtFlags, CWD, FileType, Mode as FileMode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Opens in a pool (or on the loop, [`AioMode::Inline`](crate::AioMode::Inline)): the path, `fstat`, and the first bytes. **Waits.**
pub(crate) fn open_waiting(
    disk: &Arc<Disk>,
    path: &[u8],
    purpose: OpenPurpose,
    options: &OpenOptions,
) -> Result<OpenedFile, Error> {
    let operation = match purpose {
        OpenPurpose::Read => Operation::Open,
        OpenPurpose::Stat => Operation::Stat,
    };
    let device_and_bytes = |found: &OpenedFile| {
        let bytes = found.body.as_ref().map_or(0, |body| body.len() as u64);
        (found.meta.dev, bytes)
    };
    call_times::timed_open(operation, device_and_bytes, || {
        open_unseen(disk, path, purpose, options)
    })
}

/// **Waits.**
fn open_unseen(
    disk: &Arc<Disk>,
    path: &[u8],
    purpose: OpenPurpose,
    options: &OpenOptions,
) -> Result<OpenedFile, Error> {
    let fd =
        open_path(path, purpose, options).map_err(|errno| Error::system(purpose.call(), errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::system("fstat()", errno))?;
    let meta = Meta::from_stat(&stat);
    let mount = disk.mounts.learn(fd.as_fd());
    let direct = purpose == OpenPurpose::Read && switch_direct(fd.as_fd(), &meta, options);
    let way = match purpose {
        OpenPurpose::Read if !disk.has_openat2 => way_to(path, &meta),
        _ => Way::Unknown,
    };
    let mut body = None;
    let reads = purpose == OpenPurpose::Read && !OPENS_ON_LOOPS;
    if reads && meta.kind == FileKind::File && !direct {
        // Other loops must not take pages that are being read for present ones.
        let windows = &disk.windows;
        let _fill = (meta.len > BODY_MAX as u64).then(|| windows.begin_read(&meta, 0));
        // As a body, so that a small file that was not in memory needs no second job.
        let first_len = meta.len.min(BODY_MAX as u64) as usize;
        let first = read_fully(fd.as_fd(), 0, first_len)?;
        if first.len() as u64 == meta.len {
            body = Some(first);
        }
    }
    Ok(OpenedFile {
        fd,
        meta,
        mount,
        body,
        direct,
        records_access: false,
        way,
    })
}

/// How a path leads to the file that was just found there. **Waits.**
fn way_to(path: &[u8], meta: &Meta) -> Way {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::statat(CWD, OsStr::from_bytes(path), flags) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => Way::ByLink,
        Ok(stat) if (stat.st_dev, stat.st_ino) == (meta.dev, meta.ino) => Way::Direct,
        _ => Way::Unknown,
    }
}

pub(crate) fn open_path(
    path: &[u8],
    purpose: OpenPurpose,
    options: &OpenOptions,
) -> Result<OwnedFd, Errno> {
    let flags = purpose.flags(options.noatime);
    let open = |flags| match options.symlinks {
        Symlinks::Follow =>
        {
            #[expect(
                clippy::disallowed_methods,
                reason = "runs in a pool, or inline (AioMode::Inline)"
            )]
            rustix::fs::open(OsStr::from_bytes(path), flags, FileMode::empty())
        }
        Symlinks::Refuse { .. } | Symlinks::RefuseOthers { .. } => {
            let walked = walk::judge_links(path, options.symlinks)?;
            walk::open_at(walked.dir.as_fd(), &walked.name, flags | OFlags::NOFOLLOW)
        }
    };
    match open(flags) {
        Err(Errno::PERM) if options.noatime => open(flags - OFlags::NOATIME),
        result => result,
    }
}
