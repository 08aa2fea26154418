"""The machine before and after: what a measurement could leave behind, as lines of text that are compared.

Names and settings, not contents and counters. Other people's work on the machine shows, too: compare on one that is your own."""

import ctypes
import glob
import os

FILES_MAX = 200_000
CGROUPS = "/sys/fs/cgroup"
# What a disk of the kernel's own choice has: others are told. max_bytes and min_bytes change with the free memory.
DISK_SETTINGS = {"strict_limit": ("0",), "max_ratio_fine": ("1000000",), "min_ratio_fine": ("0",), "max_ratio": ("100",), "min_ratio": ("0",)}
# Told per device, or else per group.
GROUP_SETTINGS = ("blkio.throttle.*_device", "blkio.*weight*", "io.max", "io.weight", "io.latency")
NETWORK, LINKS = "/proc/sys/net", ("flags", "mtu", "tx_queue_len")
# Counters, and what only writing is good for.
NOT_SETTINGS = {"nf_conntrack_count", "flush", "drop_caches", "compact_memory", "stat_refresh"}
PR_SET_CHILD_SUBREAPER = 36     # prctl(2)


def snapshot(directories, groups=CGROUPS):
    """Lines by kind. `directories`: everything below them is looked at, other file systems apart."""
    return {"mount": mounts(), "loop device": loop_devices(), "control group": control_groups(groups), "file": files(directories),
            "network setting": network(), "memory setting": settings("/proc/sys/vm"), "disk setting": disk_settings(),
            "limit of a group": group_settings(groups)}


def differences(before, after):
    """What is there and was not, and what is gone; a setting that changed is both."""
    found = []
    for kind, lines in after.items():
        found += ["%s left: %s" % (kind, line) for line in sorted(lines - before.get(kind, set()))]
        found += ["%s gone: %s" % (kind, line) for line in sorted(before.get(kind, set()) - lines)]
    return found


def mounts(table="/proc/self/mountinfo"):
    """Fields as in proc(5), /proc/pid/mountinfo: point, options, and behind the hyphen type and source."""
    found = set()
    for line in text(table).splitlines():
        fields = line.split()
        behind = fields.index("-")
        found.add("%s (%s, %s, %s)" % (fields[4], fields[behind + 1], fields[behind + 2], fields[5]))
    return found


def loop_devices():
    """Those that have a file."""
    return {"/dev/%s (%s)" % (path.split("/")[3], text(path).strip()) for path in glob.glob("/sys/block/loop*/loop/backing_file")}


def control_groups(base=CGROUPS):
    """Of all hierarchies."""
    return {path for path, _, _ in os.walk(base)}


def files(directories):
    """Paths below the directories; an error when they are too many to be compared."""
    found = set()
    for directory in directories:
        if not os.path.isdir(directory):
            continue
        device = os.stat(directory).st_dev
        for at, below, names in os.walk(directory):
            found.update(os.path.join(at, name) for name in (*below, *names))
            below[:] = [name for name in below if is_of(device, os.path.join(at, name))]
            if len(found) > FILES_MAX:
                raise SystemExit("more than %d files below %s: name a directory of its own with --dir" % (FILES_MAX, directory))
    return found


def is_of(device, path):
    try:
        return os.lstat(path).st_dev == device
    except OSError:
        return False


def settings(base):
    """PATH = value of everything below that can be read."""
    found = set()
    for at, _, names in os.walk(base):
        for name in names:
            path = os.path.join(at, name)
            value = text(path).strip()
            if name not in NOT_SETTINGS and value:
                found.add("%s = %s" % (path, " ".join(value.split())))
    return found


def network():
    links = {"%s = %s" % (path, text(path).strip()) for name in LINKS for path in glob.glob("/sys/class/net/*/" + name)}
    routes = {"route " + " ".join(line.split()[:4]) for line in text("/proc/net/route").splitlines()[1:]}
    return settings(NETWORK) | links | routes


def disk_settings(base="/sys/class/bdi"):
    """Only what is not the kernel's own: disks come and go."""
    found = set()
    for path in glob.glob(os.path.join(base, "*/*")):
        name, value = os.path.basename(path), text(path).strip()
        if name in DISK_SETTINGS and value and value not in DISK_SETTINGS[name]:
            found.add("%s = %s" % (path, value))
    return found


def group_settings(base=CGROUPS):
    found = set()
    for at, _, _ in os.walk(base):
        for pattern in GROUP_SETTINGS:
            for path in glob.glob(os.path.join(at, pattern)):
                found.update("%s = %s" % (path, line) for line in text(path).splitlines())
    return found


def text(path):
    """Empty when it cannot be read."""
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def adopt():
    """From now on, who loses his parent below this process becomes its child: nothing that was started gets away."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    """(pid, command) of what runs below this process; what has ended is reaped."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    found, ahead = [], [os.getpid()]
    while ahead:
        pid = ahead.pop()
        below = [int(p) for path in glob.glob("/proc/%d/task/*/children" % pid) for p in text(path).split()]
        found += [(p, text("/proc/%d/cmdline" % p).replace("\0", " ").strip() or "?") for p in below]
        ahead += below
    return found
