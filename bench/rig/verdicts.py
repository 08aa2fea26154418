"""Judges a trace (see `trace`): which calls of the loop threads could have waited for a disk.

A range of a `sendfile` counts as proven when, since the last cold answer about it, cachestat or PAGEMAP_SCAN said that its pages are in
memory, or the pool brought it into its mapping (MADV_POPULATE_READ). A memfd is memory, not a file on a disk; but who makes its pages waits,
where the control group has no room, for those that are on their way to a disk."""

import collections
import os

PAGE = 4096
RESOLVE_CACHED, RWF_NOWAIT = 0x20, 0x8
PRESENT = 1 << 3                                       # PAGE_IS_PRESENT
POPULATE_READ, POPULATE_WRITE, WILLNEED = 22, 23, 3    # madvise(2); posix_fadvise(2) has the same WILLNEED
CLOSE_MAX = 1 << 20

BY_PATH = {"open", "openat", "creat", "stat", "lstat", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs", "chmod",
           "chown", "truncate", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "linkat",
           "symlink", "symlinkat", "fchmod", "fchmodat", "utimensat", "inotify_add_watch", "getdents", "getdents64", "fsync", "fdatasync",
           "ftruncate", "fallocate", "sync_file_range", "copy_file_range"}
OF_FILES = {"read", "readv", "pread64", "preadv", "write", "writev", "pwrite64", "pwritev", "pwritev2", "splice"}
MAKES_PAGES = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "fallocate", "ftruncate"}
POOL_WORK = {"open", "openat", "openat2", "pread64", "preadv", "preadv2", "read", "madvise", "stat", "statx", "newfstatat"}


class Trace:
    """Goes through the calls in order. `is_loop(thread name)`; `hot`: base names of hot files."""

    def __init__(self, is_loop, hot, since):
        self.is_loop, self.hot, self.since = is_loop, hot, since
        self.maps = []                                       # (start, end, inode, offset, path)
        self.proven = collections.defaultdict(set)           # inode -> pages
        self.faults = collections.Counter()
        self.examples = {}
        self.calls = collections.Counter()                   # (loop or pool, call)
        self.hot_in_pool = 0
        self.sendfile_pages = 0

    def add(self, e):
        loop = self.is_loop(e["thread"])
        self.calls["loop" if loop else "pool", e["call"]] += 1
        if loop:
            fault = self.fault(e)
            if fault:
                self.faults[fault] += 1
                self.examples.setdefault(fault, e)
        elif e["at"] >= self.since and e["call"] in POOL_WORK and self.is_hot(e):
            self.hot_in_pool += 1
        self.learn(e)

    def is_hot(self, e):
        path = e.get("path") or e.get("file") or ""
        if e["call"] == "madvise":
            path = next((m[4] for m in self.maps if m[0] <= e["args"][0] < m[1]), "")
        return os.path.basename(path) in self.hot

    def fault(self, e):
        """What is wrong with a loop's call, or nothing."""
        call, args = e["call"], e["args"]
        # /proc is no disk: the allocator reads vm/overcommit_memory when it gives memory back.
        if (e.get("path") or "").startswith("/proc/"):
            return None
        if e.get("file", "").startswith("/memfd:"):
            return "%s of a memfd" % call if call in MAKES_PAGES else None
        regular = e.get("regular") and not e.get("file", "").startswith(("/proc/", "/sys/", "/dev/"))
        if call in BY_PATH:
            return call
        if call in ("newfstatat", "statx") and e.get("path"):
            return "%s by path" % call
        if call in OF_FILES and regular:
            return "%s of a regular file" % call
        if call == "openat2" and not (e.get("resolve") or 0) & RESOLVE_CACHED:
            return "openat2 without RESOLVE_CACHED"
        if call == "preadv2" and not args[5] & RWF_NOWAIT:
            return "preadv2 without RWF_NOWAIT"
        if call == "close" and regular and (e["links"] == 0 or e["size"] > CLOSE_MAX):
            return "close of a file with no link" if e["links"] == 0 else "close of a file over 1 MiB"
        if call == "mmap" and regular or call == "munmap" and any(a < args[0] + args[1] and args[0] < b for a, b, *_ in self.maps):
            return "%s of a file" % call
        if call == "madvise" and args[2] in (POPULATE_READ, POPULATE_WRITE, WILLNEED) or call == "fadvise64" and args[3] == WILLNEED:
            return "%s that reads" % call
        if call == "sendfile" and not self.covered(e):
            return "sendfile of a range without a proof"
        return None

    def covered(self, e):
        """Whether all that the call might touch is proven."""
        end = min((e.get("offset") or 0) + e["args"][3], e.get("size", 0))
        pages = _pages(e.get("offset") or 0, end)
        self.sendfile_pages += len(pages)
        return self.proven[e.get("inode")].issuperset(pages)

    def learn(self, e):
        """What a call, of whatever thread, says about pages in memory."""
        call, args, result = e["call"], e["args"], e["result"]
        if call == "mmap" and e.get("regular") and result > 0:
            self.maps.append((result, result + args[1], e["inode"], args[5], e.get("file", "")))
        elif call == "munmap" and result == 0:
            self.maps = [m for m in self.maps if not (m[0] < args[0] + args[1] and args[0] < m[1])]
        elif call == "cachestat" and result == 0 and e.get("range"):
            offset, length = e["range"]
            pages = _pages(offset, min(offset + length, e["size"]) if length else e["size"])
            self.told(e["inode"], pages, pages if (e.get("cached") or 0) >= len(pages) else ())
        elif call == "pagemap_scan" and e.get("regions") is not None:
            self.scanned(e)
        elif call == "madvise" and args[2] == POPULATE_READ:
            for inode, pages in self.mapped(args[0], args[0] + args[1]):
                self.told(inode, pages, pages if result == 0 else ())
        elif call == "preadv2" and result == -11 and e.get("inode"):
            self.told(e["inode"], _pages(args[3], args[3] + PAGE), ())

    def scanned(self, e):
        start, end = e["range"]
        inverted = (e.get("inverted") or 0) & PRESENT
        for inode, pages in self.mapped(start, end):
            seen = set()
            for a, b, categories in e["regions"]:
                if inverted or categories & PRESENT:
                    for other, part in self.mapped(max(a, start), min(b, end)):
                        seen.update(part if other == inode else ())
            self.told(inode, pages, set(pages) - seen if inverted else seen)

    def told(self, inode, asked, present):
        self.proven[inode].difference_update(asked)
        self.proven[inode].update(present)

    def mapped(self, start, end):
        """(inode, pages) of the files that are mapped in a range of addresses."""
        return [(inode, _pages(offset + max(a, start) - a, offset + min(b, end) - a))
                for a, b, inode, offset, _ in self.maps if a < end and start < b]


def _pages(start, end):
    return range(start // PAGE, -(-end // PAGE)) if end > start else range(0)
