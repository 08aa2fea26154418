"""Whether the kernel has a file's pages and name in memory, asked as root (to others mincore says "all" of a file that is not theirs)."""

import ctypes
import errno
import mmap
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.mlock.argtypes = _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_OPENAT2 = 437          # the same number on every architecture
_RESOLVE_CACHED = 0x20  # openat2(2), Linux 5.12
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def resident(path):
    """(pages in memory, pages of the file)"""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if not size:
            return 0, 0
        at = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if at in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        pages = (size + _PAGE - 1) // _PAGE
        seen = ctypes.create_string_buffer(pages)
        failed = _libc.mincore(at, size, seen)
        _libc.munmap(at, size)
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(byte & 1 for byte in seen.raw[:pages]), pages
    finally:
        os.close(fd)


def share(paths):
    """How much of the files is in memory, 0 to 1."""
    seen, whole = (sum(column) for column in zip(*(resident(path) for path in paths)))
    return seen / whole


def hold_in(path):
    """Reads the whole file and keeps its pages in memory (mlock) as long as this process lives: a host that takes memory
    back from its guests would have some of them evicted meanwhile."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        at = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if at in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        if _libc.mlock(at, size):
            raise OSError(ctypes.get_errno(), "mlock")
    finally:
        os.close(fd)


def evict(path):
    """Takes the file's pages out of memory; they must be on the disk for that."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def name_known(directory, name):
    """Whether a look-up of the name, there or not there, needs no disk."""
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    how = _OpenHow(os.O_RDONLY | os.O_CLOEXEC, 0, _RESOLVE_CACHED)
    # EAGAIN may also mean that something else changed in the tree just then.
    for _ in range(5):
        fd = _libc.syscall(_OPENAT2, at, name.encode(), ctypes.byref(how), ctypes.sizeof(how))
        error = ctypes.get_errno()
        if fd >= 0 or error != errno.EAGAIN:
            break
    os.close(at)
    if fd >= 0:
        os.close(fd)
    return fd >= 0 or error == errno.ENOENT


def all_in_memory(directory, names, missing):
    """Names of files that are not wholly in memory, and of missing ones whose absence is not known in memory."""
    faults = [n for n in names if not name_known(directory, n) or len(set(resident(os.path.join(directory, n)))) != 1]
    return faults + [n for n in missing if not name_known(directory, n)]
