"""What a figure is worth nothing without: machine, kernel, versions of the servers, the commit, the options, the date."""

import hashlib
import mmap
import os
import platform
import subprocess
import time

from . import ats

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SERVERS = {"freewheel": "-v", "nginx": "-v", "ats": "-V", "open_inline": "-v"}      # by the name of the option that gives the path
UNTOLD = {"json", "load", "check"}


def circumstances(args):
    """Of a measurement with these options."""
    peers = dict(getattr(args, "also", None) or [])
    found = {name: (getattr(args, name, None), flag) for name, flag in SERVERS.items()}
    found.update({name: (path, "version" if name == "caddy" else "-V" if name == "varnish" else "-v") for name, path in peers.items()})
    return {"machine": machine(), "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "disk": disk(getattr(args, "dir", "/")), "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "is_quick": bool(getattr(args, "quick", False)), "servers": {name: version(path, flag) for name, (path, flag) in found.items() if path},
            **commit(), "options": {key: value for key, value in sorted(vars(args).items()) if key not in UNTOLD}}


def machine():
    """One line about where this ran."""
    model = ""
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return "%s, %d cores, %.0f GiB, Linux %s, %s, a new page %.1f us" % (model, len(os.sched_getaffinity(0)), memory, platform.release(), congestion_control(), page_us())


def page_us(size=64 << 20):
    """Microseconds for the first use of a page of memory: ten and more in a virtual machine whose host has taken back what was free."""
    with mmap.mmap(-1, size) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        begun = time.perf_counter()
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
        return (time.perf_counter() - begun) * 1e6 / (size / mmap.PAGESIZE)


def congestion_control():
    """Of new connections: bbr sends by timers, which a virtual machine pays for where a server writes much at a time."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as f:
        return f.read().strip()


def disk(path):
    """File system and device of a directory."""
    said = subprocess.run(["findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", path], capture_output=True, text=True).stdout.split()
    return " on ".join(said) or "unknown"


def commit():
    """Of the source beside this file, and whether the tree was as committed."""
    def git(*command):
        done = subprocess.run(["git", *command], cwd=PROJECT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None
    changes = git("status", "--porcelain")
    return {"commit": git("rev-parse", "HEAD"), "is_clean": None if changes is None else not changes}


def version(path, flag):
    """What the program says it is, and the beginning of its SHA-256: the commit is that of the tree, not of a program built earlier."""
    try:
        environment = ats.environment(path) if "traffic_server" in path else {}
        done = subprocess.run([path, flag], capture_output=True, text=True, timeout=10, env={**os.environ, **environment})
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()[:12]
    except (OSError, subprocess.TimeoutExpired) as error:
        return "%s: %s" % (path, error)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "%s (%s)" % (said[0].strip() if said else path, digest)
