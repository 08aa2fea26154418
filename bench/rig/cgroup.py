"""A slow disk and little page cache for one server: control groups of version 1 (blkio and memory), made and taken away."""

import os
import signal
import time

BASE = "/sys/fs/cgroup"


def missing():
    """What stands in the way of using this, or nothing."""
    for part in ("blkio/blkio.throttle.read_iops_device", "memory/memory.limit_in_bytes"):
        if not os.path.exists(os.path.join(BASE, part)):
            return "%s/%s is missing: needs control groups of version 1 (systemd.unified_cgroup_hierarchy=0)" % (BASE, part)
    return None


def disk_of(path):
    """MAJOR:MINOR of the whole disk that holds the path."""
    number = os.stat(path).st_dev
    name = "%d:%d" % (os.major(number), os.minor(number))
    sys = os.path.join("/sys/dev/block", name)
    if not os.path.exists(sys):
        raise SystemExit("%s is on no block device (%s): name a directory on one with --dir" % (path, name))
    if os.path.exists(os.path.join(sys, "partition")):
        with open(os.path.join(os.path.realpath(sys), "../dev")) as f:
            name = f.read().strip()
    return name


class Limits:
    """Limits for the processes that call `join`. `iops` and `bytes_per_second` for reads; none: the disk as it is."""

    def __init__(self, path, cache_bytes, iops=None, bytes_per_second=None):
        self.disk, self.cache_bytes, self.iops, self.bytes_per_second = disk_of(path), cache_bytes, iops, bytes_per_second
        self.groups = [os.path.join(BASE, kind, "freewheel-bench.%d" % os.getpid()) for kind in ("memory", "blkio")]

    def __enter__(self):
        try:
            self.make(*self.groups)
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self, memory, blkio):
        for group in self.groups:
            os.makedirs(group, exist_ok=True)
        _write(memory, "memory.limit_in_bytes", self.cache_bytes)
        if self.iops:
            _write(blkio, "blkio.throttle.read_iops_device", "%s %d" % (self.disk, self.iops))
        if self.bytes_per_second:
            _write(blkio, "blkio.throttle.read_bps_device", "%s %d" % (self.disk, self.bytes_per_second))

    def read_so_far(self):
        """(bytes, reads) of the disk; nothing without a throttle, the kernel does not count then."""
        return tuple(_count(os.path.join(self.groups[1], name), self.disk) for name in ("blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"))

    def join(self):
        """The calling process and its children from now on."""
        for group in self.groups:
            _write(group, "cgroup.procs", os.getpid())

    def __exit__(self, *_):
        for group in self.groups:
            for _ in range(50):
                try:
                    with open(os.path.join(group, "cgroup.procs")) as f:
                        for pid in f.read().split():
                            os.kill(int(pid), signal.SIGKILL)
                    os.rmdir(group)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)
            else:
                print("could not remove %s" % group)


def _write(group, name, value):
    with open(os.path.join(group, name), "w") as f:
        f.write(str(value))


def _count(path, disk):
    with open(path) as f:
        return next((int(words[2]) for words in map(str.split, f) if words[:2] == [disk, "Read"]), 0)
