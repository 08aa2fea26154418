//! The mounts of this process: which file systems answer from memory without waiting, and where they begin.
//!
//! Decided by an allowlist of `statfs` magics. Not here: the calls that are made on them. Invariant: an unknown mount,
//! or one that is not on the list, is only ever touched in a pool; and no loop closes a mount's directory, which may be
//! what a lazily unmounted file system still waits for (its last `close` is the unmount).

use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Lines of /proc/self/mountinfo that are read; a mount after them is unknown, so served by the pool.
pub const MOUNTS_MAX: usize = 4096;

/// How a file system behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext2/3/4, btrfs: opens, reads and proofs answer from memory or say that they cannot.
    Native,
    /// xfs: the same, but `sendfile` of a file waits for who writes to it, whatever is in memory.
    Xfs,
    /// tmpfs, ramfs: everything is in memory.
    Memory,
    /// overlayfs: opens answer from memory; RWF_NOWAIT is EOPNOTSUPP and cachestat always says 0, so that only the page map
    /// tells what may be read.
    Overlay,
    /// FUSE, NFS and all others: every call may wait.
    Foreign,
}

impl Filesystem {
    /// Whether it is one of a disk on which calls answer from memory or say that they cannot.
    #[must_use]
    pub fn is_native(self) -> bool {
        matches!(self, Filesystem::Native | Filesystem::Xfs)
    }

    /// Whether what is in memory can be read without a proof: `preadv2(RWF_NOWAIT)`, or it always is.
    pub(crate) fn reads_without_waiting(self) -> bool {
        self.is_native() || self == Filesystem::Memory
    }

    /// The kind of a file system, by the magic of statfs(2).
    #[must_use]
    pub(crate) fn from_magic(magic: u64) -> Filesystem {
        match magic {
            0xEF53 | 0x9123_683E => Filesystem::Native,
            0x5846_5342 => Filesystem::Xfs,
            0x0102_1994 | 0x8584_58F6 => Filesystem::Memory,
            0x794C_7630 => Filesystem::Overlay,
            _ => Filesystem::Foreign,
        }
    }

    /// The kind of an open file's file system. **May wait** on foreign ones.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Filesystem {
        #[expect(clippy::cast_sign_loss, reason = "the magics are 32-bit patterns")]
        rustix::fs::fstatfs(fd).map_or(Filesystem::Foreign, |stat| {
            Filesystem::from_magic(stat.f_type as u64 & 0xFFFF_FFFF)
        })
    }
}

/// One mount.
#[derive(Debug)]
pub(crate) struct Mount {
    id: u64,
    point: Box<[u8]>,
    opened: OnceLock<Option<OpenedMount>>,
    /// Was its directory asked for since [`Mounts::let_idle_go`]?
    is_used: AtomicBool,
    left: Arc<LeftDirs>,
}

/// Directories of mounts that are forgotten, to be closed by [`Mounts::take_left`]'s caller: at most as many as mounts
/// were known.
type LeftDirs = Mutex<Vec<OwnedFd>>;

#[derive(Debug)]
struct OpenedMount {
    /// None for foreign ones, of which loops ask nothing: a descriptor would keep them from being unmounted.
    dir: Option<OwnedFd>,
    filesystem: Filesystem,
    /// The device's readahead in bytes; 0 if it does not say.
    read_ahead: u64,
    /// Whether reads record on a disk when they happened.
    records_access: bool,
}

impl Mount {
    fn new(id: u64, point: Box<[u8]>, left: &Arc<LeftDirs>) -> Arc<Mount> {
        Arc::new(Mount {
            id,
            point,
            opened: OnceLock::new(),
            is_used: AtomicBool::new(true),
            left: Arc::clone(left),
        })
    }

    /// Its kind; None until a pool has opened a file on it.
    #[must_use]
    pub(crate) fn filesystem(&self) -> Option<Filesystem> {
        Some(
            self.opened
                .get()?
                .as_ref()
                .map_or(Filesystem::Foreign, |opened| opened.filesystem),
        )
    }

    /// Do open, fstat and close of small files on it never wait?
    #[must_use]
    pub(crate) fn answers_inline(&self) -> bool {
        self.filesystem()
            .is_some_and(|filesystem| filesystem != Filesystem::Foreign)
    }

    /// The readahead that is set for its device (`read_ahead_kb`), in bytes; 0: unknown.
    pub(crate) fn read_ahead(&self) -> u64 {
        self.opened
            .get()
            .and_then(Option::as_ref)
            .map_or(0, |opened| opened.read_ahead)
    }

    /// Whether reads of its files record on a disk when they happened: neither `noatime` nor read-only. (An overlay records it
    /// of files in its upper layer alone, and does not tell which these are.)
    pub(crate) fn records_access(&self) -> bool {
        let opened = self.opened.get().and_then(Option::as_ref);
        opened.is_some_and(|opened| opened.records_access)
    }

    /// The directory at its top, if it answers inline.
    pub(crate) fn dir(&self) -> Option<BorrowedFd<'_>> {
        let dir = self.opened.get()?.as_ref()?.dir.as_ref()?;
        // A loop that only reads it does not take it from the others' processors.
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
        Some(dir.as_fd())
    }

    /// Is its directory open, so that the kernel gives its id to no other mount?
    fn is_held(&self) -> bool {
        let opened = self.opened.get().and_then(Option::as_ref);
        opened.is_some_and(|opened| opened.dir.is_some())
    }

    /// Opens the directory at its top. **Waits.**
    fn open(&self) {
        self.opened.get_or_init(|| {
            let path = std::ffi::OsStr::from_bytes(&self.point);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
            let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
            // Another mount may cover this one.
            (mount_id(dir.as_fd()) == Some(self.id)).then_some(())?;
            let filesystem = Filesystem::of(dir.as_fd());
            let read_ahead = read_ahead_of(dir.as_fd());
            let not_recorded = StatVfsMountFlags::NOATIME | StatVfsMountFlags::RDONLY;
            let stat = rustix::fs::fstatvfs(&dir).ok()?;
            Some(OpenedMount {
                dir: (filesystem != Filesystem::Foreign).then_some(dir),
                filesystem,
                read_ahead,
                records_access: filesystem.is_native() && !stat.f_flag.intersects(not_recorded),
            })
        });
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let opened = self.opened.take().flatten();
        if let Some(dir) = opened.and_then(|opened| opened.dir)
            && !crate::pool::on_pool_thread()
        {
            self.left.lock().push(dir);
        }
    }
}

/// `read_ahead_kb` of the device below a directory, in bytes. **Waits.**
fn read_ahead_of(dir: BorrowedFd<'_>) -> u64 {
    let Ok(stat) = rustix::fs::fstat(dir) else {
        return 0;
    };
    let (major, minor) = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    #[expect(clippy::disallowed_methods, reason = "sysfs, in a pool")]
    let text = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    text.ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}

/// The id of the mount that an open file is on. **May wait** on foreign file systems.
pub(crate) fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    mount_id_by_statx(fd).or_else(|| mount_id_by_procfs(fd))
}

/// Linux 5.8 and later tell it; some profiles of containers forbid the call.
fn mount_id_by_statx(fd: BorrowedFd<'_>) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "runs in a pool, and by descriptor"
    )]
    let statx = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    (statx.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(statx.stx_mnt_id)
}

/// The same of procfs (proc_pid_fdinfo(5)).
fn mount_id_by_procfs(fd: BorrowedFd<'_>) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "procfs, in a pool")]
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id?.trim().parse().ok()
}

/// All mounts of the process, read again when they change.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// Longest mount point first.
    table: RwLock<Vec<Arc<Mount>>>,
    generation: AtomicU64,
    left: Arc<LeftDirs>,
}

impl Mounts {
    /// Changes whenever the table does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// The known mount with the longest point above an absolute path, and the path below it (never empty: `.`).
    pub(crate) fn find<'p>(&self, path: &'p [u8]) -> Option<(Arc<Mount>, &'p [u8])> {
        let table = self.table.read();
        table
            .iter()
            .find_map(|mount| Some((mount.clone(), below(&mount.point, path)?)))
    }

    /// The mount with this id.
    pub(crate) fn by_id(&self, id: u64) -> Option<Arc<Mount>> {
        self.table
            .read()
            .iter()
            .find(|mount| mount.id == id)
            .cloned()
    }

    /// Reads /proc/self/mountinfo again, and keeps the entries of mounts that are still there. (procfs needs no disk,
    /// but a lock that mount(2) holds; so this runs in a thread of its own, in a pool, or before the loops.)
    pub(crate) fn refresh(&self) {
        #[expect(
            clippy::disallowed_methods,
            reason = "procfs, in a pool or before the loops run"
        )]
        let Ok(text) = std::fs::read("/proc/self/mountinfo") else {
            return;
        };
        let mut found: Vec<Arc<Mount>> = Vec::new();
        let old = self.table.read().clone();
        for line in text.split(|byte| *byte == b'\n').take(MOUNTS_MAX) {
            let Some((id, point)) = parse_line(line) else {
                continue;
            };
            // The last mount on a point covers the others.
            found.retain(|mount| *mount.point != *point);
            let known = old
                .iter()
                .find(|mount| mount.id == id && *mount.point == *point && mount.is_held());
            found.push(
                known
                    .cloned()
                    .unwrap_or_else(|| Mount::new(id, point.into(), &self.left)),
            );
        }
        found.sort_by_key(|mount| std::cmp::Reverse(mount.point.len()));
        let same = found.len() == old.len()
            && found
                .iter()
                .zip(&old)
                .all(|(new, old)| Arc::ptr_eq(new, old));
        if !same {
            *self.table.write() = found;
            self.generation.fetch_add(1, Relaxed);
        }
    }

    /// Closes the directories of mounts on which nothing is open, and of which loops have asked for nothing since the last
    /// call, so that they can be unmounted; a pool opens them again.
    pub(crate) fn let_idle_go(&self) {
        for mount in self.table.write().iter_mut() {
            // Under the lock, a single reference stays one.
            let is_idle = Arc::strong_count(mount) == 1 && mount.is_held();
            if !mount.is_used.swap(false, Relaxed) && is_idle {
                *mount = Mount::new(mount.id, mount.point.clone(), &self.left);
            }
        }
    }

    /// The directories of mounts that are forgotten. Closing one **may wait** for a disk.
    pub(crate) fn take_left(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.left.lock())
    }

    /// The mount of an open file, with its file system known; reads the table again if the mount is new. **Waits.**
    pub(crate) fn learn(&self, fd: BorrowedFd<'_>) -> Option<Arc<Mount>> {
        let id = mount_id(fd)?;
        let mount = self.by_id(id).or_else(|| {
            self.refresh();
            self.by_id(id)
        })?;
        mount.open();
        Some(mount)
    }
}

/// `path` relative to the mount point, if it lies below.
fn below<'p>(point: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let rest = if point == b"/" {
        path
    } else {
        path.strip_prefix(point)?
    };
    let rest = match rest.strip_prefix(b"/") {
        Some(rest) => rest,
        None if rest.is_empty() => rest,
        None => return None,
    };
    let start = rest
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(rest.len());
    Some(if start == rest.len() {
        b"."
    } else {
        &rest[start..]
    })
}

/// Mount id and mount point of a line of mountinfo (proc_pid_mountinfo(5)).
fn parse_line(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    Some((id, unescape(fields.nth(3)?)))
}

/// Decodes a field of mountinfo, in which space, tab, newline and backslash are written as `\040` and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if byte == b'\\' => {
                out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// Is `openat2` with RESOLVE_CACHED (Linux 5.12) supported and permitted?
pub(crate) fn openat2_works() -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
    let result = rustix::fs::openat2(rustix::fs::CWD, "/", flags, Mode::empty(), resolve);
    matches!(result, Ok(_) | Err(rustix::io::Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountinfo_line_gives_id_and_unescaped_point() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(parse_line(line), Some((36, b"/mnt 2".to_vec())));
        assert_eq!(parse_line(b""), None);
    }

    #[test]
    fn a_path_is_below_a_mount_point_only_at_a_slash() {
        assert_eq!(below(b"/", b"/a/b"), Some(&b"a/b"[..]));
        assert_eq!(below(b"/srv", b"/srv//a"), Some(&b"a"[..]));
        assert_eq!(below(b"/srv", b"/srv"), Some(&b"."[..]));
        assert_eq!(below(b"/srv", b"/srv2/a"), None);
        assert_eq!(below(b"/", b"/"), Some(&b"."[..]));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "procfs, in a test")]
    fn statx_and_procfs_tell_the_same_mount() {
        let dir = std::fs::File::open("/proc/self").unwrap();
        let by_procfs = mount_id_by_procfs(dir.as_fd());
        assert!(by_procfs.is_some());
        // None before Linux 5.8.
        if let Some(id) = mount_id_by_statx(dir.as_fd()) {
            assert_eq!(by_procfs, Some(id));
        }
    }

    #[test]
    fn the_root_directory_is_on_a_known_mount() {
        let mounts = Mounts::default();
        mounts.refresh();
        let (mount, rest) = mounts.find(b"/proc/self/stat").unwrap();
        assert_eq!((&*mount.point, rest), (&b"/proc"[..], &b"self/stat"[..]));
        mount.open();
        assert_eq!(mount.filesystem(), Some(Filesystem::Foreign));
        assert!(!mount.is_held(), "it could not be unmounted");
    }

    /// The mount of the directory for temporary files, opened; None: it is a foreign one.
    fn own_mount(mounts: &Mounts) -> Option<Arc<Mount>> {
        mounts.refresh();
        let dir = tempfile::tempfile().unwrap();
        let mount = mounts.learn(dir.as_fd()).unwrap();
        mount.is_held().then_some(mount)
    }

    #[test]
    fn an_idle_mount_is_let_go_and_one_in_use_is_not() {
        let mounts = Mounts::default();
        let Some(mount) = own_mount(&mounts) else {
            return;
        };
        let id = mount.id;
        let is_held = || mounts.by_id(id).unwrap().is_held();
        for _ in 0..2 {
            mounts.let_idle_go();
            assert!(is_held(), "a file may be open on it");
        }
        drop(mount);
        assert!(mounts.by_id(id).unwrap().dir().is_some());
        mounts.let_idle_go();
        assert!(is_held(), "it was asked for");
        mounts.let_idle_go();
        assert!(!is_held());
        assert_eq!(mounts.take_left().len(), 1);
    }

    #[test]
    fn the_last_user_of_a_mount_that_is_gone_does_not_close_its_directory() {
        let mounts = Mounts::default();
        let Some(mount) = own_mount(&mounts) else {
            return;
        };
        mounts.table.write().clear();
        assert!(mounts.take_left().is_empty());
        drop(mount);
        assert_eq!(mounts.take_left().len(), 1);
    }
}
