"""A slow disk and little page cache for one server: control groups (of version 1 memory and blkio, of version 2 memory and io), made and taken away."""

import os
import re
import signal
import time

BASE = "/sys/fs/cgroup"
IS_V2 = os.path.exists(os.path.join(BASE, "cgroup.controllers"))


def missing():
    """What stands in the way of using this, or nothing."""
    if IS_V2:
        with open(os.path.join(BASE, "cgroup.controllers")) as f:
            lacking = {"memory", "io"} - set(f.read().split())
        return "the control group's %s is missing in %s/cgroup.controllers" % (" and ".join(sorted(lacking)), BASE) if lacking else None
    return missing_v1()


def missing_v1():
    """The same, for what only version 1 can do: limits of the root group."""
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

    def __init__(self, path, cache_bytes, iops=None, bytes_per_second=None, name="bench"):
        self.disk, self.cache_bytes, self.iops, self.bytes_per_second = disk_of(path), cache_bytes, iops, bytes_per_second
        kinds = ("",) if IS_V2 else ("memory", "blkio")
        self.groups = [os.path.join(BASE, kind, "freewheel-%s.%d" % (name, os.getpid())) for kind in kinds]

    @property
    def memory(self):
        """The group that limits memory."""
        return self.groups[0]

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        if IS_V2:
            _write(BASE, "cgroup.subtree_control", "+memory +io")
        for group in self.groups:
            os.makedirs(group, exist_ok=True)
        _write(self.memory, "memory.max" if IS_V2 else "memory.limit_in_bytes", self.cache_bytes)
        for value, v1, v2 in ((self.iops, "read_iops", "riops"), (self.bytes_per_second, "read_bps", "rbps")):
            if value:
                name, limit = ("io.max", "%s=%d" % (v2, value)) if IS_V2 else ("blkio.throttle.%s_device" % v1, str(value))
                _write(self.groups[-1], name, "%s %s" % (self.disk, limit))

    def read_so_far(self):
        """(bytes, reads) of the disk; nothing without a throttle, version 1 does not count then."""
        if IS_V2:
            return _io_stat(os.path.join(self.groups[-1], "io.stat"), self.disk)
        return tuple(_count(os.path.join(self.groups[-1], name), self.disk) for name in ("blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"))

    def oom_kills(self):
        """How often the kernel killed in the group."""
        with open(os.path.join(self.memory, "memory.events" if IS_V2 else "memory.oom_control")) as f:
            return int(re.search(r"^oom_kill (\d+)", f.read(), re.M).group(1))

    def memory_use(self):
        """Bytes by what they are: cache, rss, shmem, mapped_file, dirty (version 1's words)."""
        names = {"cache": "file", "rss": "anon", "shmem": "shmem", "mapped_file": "file_mapped", "dirty": "file_dirty"}
        with open(os.path.join(self.memory, "memory.stat")) as f:
            stat = dict(line.split() for line in f)
        return {v1: int(stat[v2 if IS_V2 else "total_" + v1]) for v1, v2 in names.items()}

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


def _io_stat(path, disk):
    with open(path) as f:
        line = next((line for line in f if line.startswith(disk + " ")), "")
    figures = dict(word.split("=") for word in line.split()[1:])
    return int(figures.get("rbytes", 0)), int(figures.get("rios", 0))
