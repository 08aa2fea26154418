"""A disk of its own for a cache: ext4 (or --filesystem) on a loop device with direct I/O over a file; throttled, or with a file below it that waits.

Fresh each time: ext4 passes over inodes that were deleted lately, so that creating costs up to 1 ms of CPU each for minutes after a mass
unlink. Root only; taken away with the `with` block."""

import os
import random
import resource
import subprocess
import threading
import time

from . import cgroup

THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle.%s_device"
# The kernel's own (Linux 6.2, Documentation/ABI/testing/sysfs-class-bdi); max_bytes is told by the share of memory that it stands for.
SETTINGS = {"strict_limit": "0", "max_ratio_fine": "1000000"}
# What makes one that nothing is left to do for later.
MAKERS = {"ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"], "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
          "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"]}
filesystem = "ext4"


def choose(name):
    """The file system of all disks that are made from here on."""
    global filesystem
    filesystem = name


class Disk:
    """`path`: where it is mounted. `file`: what lies below the device, made here when it is not given. `features`: as mkfs.ext4 -O takes them, of
    which others have none."""

    features = ()

    def __init__(self, site, name, size, file=None, options="noatime"):
        self.path, self.size, self.options = os.path.join(site.path, name), size, options
        self.file = file or os.path.join(site.path, name + ".disk")
        self.device, self.throttles, self.settings = None, set(), {}
        self.is_made = False

    def __enter__(self):
        os.makedirs(self.path)
        try:
            self.attach()
            self.forget_settings()
            self.format()
            self.mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def attach(self):
        """Makes the device."""
        self.is_made = not os.path.exists(self.file)
        if self.is_made:
            with open(self.file, "wb") as f:
                f.truncate(self.size)
        self.device = _said("losetup", "--find", "--show", "--direct-io=on", self.file)

    def detach(self):
        """Takes it away."""
        subprocess.run(["losetup", "-d", self.device], check=False)

    def format(self):
        """An empty file system."""
        features = [word for feature in self.features for word in ("-O", feature)]
        if features and filesystem != "ext4":
            raise RuntimeError("%s is asked for, and features of ext4 are needed" % filesystem)
        _said(*MAKERS[filesystem], *features, self.device)

    def mount(self):
        _said("mount", "-o", self.options, self.device, self.path)
        os.chmod(self.path, 0o755)

    def unmount(self, is_last=False):
        """What the kernel has of it in memory goes, too."""
        for _ in range(100):
            if subprocess.run(["umount", self.path], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        if not is_last:
            raise RuntimeError("%s is still in use by someone" % self.path)
        subprocess.run(["umount", "--lazy", self.path], check=False)

    @property
    def number(self):
        """MAJOR:MINOR."""
        number = os.stat(self.device).st_rdev
        return "%d:%d" % (os.major(number), os.minor(number))

    def throttle(self, **limits):
        """read_bps, write_bps, read_iops, write_iops; 0: none. For everyone: the kernel's own writers are in the root group."""
        for name, value in limits.items():
            with open(THROTTLE % name, "w") as f:
                f.write("%s %d" % (self.number, value))
            self.throttles.add(name)

    def little_dirty_memory(self, size):
        """At most so many bytes wait in memory to be written."""
        for name, value in (("strict_limit", 1), ("max_bytes", size)):
            _set(self.number, name, value)

    def forget_settings(self):
        """A loop device keeps what it was told for the file that it had before."""
        for name, value in SETTINGS.items():
            if os.path.exists("/sys/class/bdi/%s/%s" % (self.number, name)):
                self.settings[name] = _setting(self.number, name)
                _set(self.number, name, value)

    def __exit__(self, *_):
        if self.device:
            self.throttle(**{name: 0 for name in self.throttles})
            for name, value in self.settings.items():
                _set(self.number, name, value)
            if os.path.ismount(self.path):
                self.unmount(is_last=True)
            self.detach()
            self.device = None
        if self.is_made:
            os.unlink(self.file)
        if os.path.isdir(self.path) and not os.path.ismount(self.path):
            os.rmdir(self.path)


def missing():
    """What stands in the way of throttling, or nothing."""
    return cgroup.missing_v1()


def forget():
    """Takes everything clean out of the kernel's memory: pages, names, inodes."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


class Forgetting:
    """Little page cache without a control group: `with` takes parts of the files below `paths` out of the kernel's memory, chosen at random and
    evenly in time, each file once in `every_s` on average. (In a full group of version 1, whoever needs memory waits for pages on their way to a disk,
    so that a disk that hangs stops the server's loops, whatever the server does. All pages at once are a burst of reads, which decides each p99.)"""

    BITES, PART = 20, 1 << 20
    SPARE = 1000    # descriptors for everything else

    def __init__(self, every_s, *paths):
        self.pause, self.paths = every_s / self.BITES, paths
        self.ends, self.thread = threading.Event(), threading.Thread(target=self.run, daemon=True)
        self.files, self.parts = [], []

    def open(self):
        """They stay open: a disk that hangs opens none. Where descriptors do not suffice, they are a part of the files, chosen at random."""
        names = [os.path.join(folder, name) for path in self.paths for folder, _, names in os.walk(path) for name in names]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, len(names) + self.SPARE)), hard))
        for name in random.sample(names, min(len(names), hard - self.SPARE)):
            try:
                self.files.append(os.open(name, os.O_RDONLY))
            except OSError:
                continue    # gone by now, or a socket
            size = os.fstat(self.files[-1]).st_size
            self.parts += [(self.files[-1], at) for at in range(0, size, self.PART)]

    def run(self):
        while not self.ends.wait(self.pause):
            for file, at in random.sample(self.parts, len(self.parts) // self.BITES):
                os.posix_fadvise(file, at, self.PART, os.POSIX_FADV_DONTNEED)

    def __enter__(self):
        self.open()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        for file in self.files:
            os.close(file)


def _setting(number, name):
    with open("/sys/class/bdi/%s/%s" % (number, name)) as f:
        return f.read().strip()


def _set(number, name, value):
    with open("/sys/class/bdi/%s/%s" % (number, name), "w") as f:
        f.write(str(value))


def _said(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout.strip()
