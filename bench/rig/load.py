"""The load: wrk for plain closed loops of small answers, our own program (bench/src) for the rest. Pinned to its core."""

import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys

from . import over

NOFILE = min(100_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


PR_SET_PDEATHSIG = 1    # prctl(2)
_libc = ctypes.CDLL(None)


def _before():
    resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, NOFILE))
    # A load that nobody waits for any more would go on.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(args, address, seconds, groups):
    """Groups of clients at once (see `load`); the figures of each by name."""
    return finish(start(args, address, seconds, groups))


def start(args, address, seconds, groups, flags=None, gives_way=False):
    """The same, running beside what the caller does. `flags`: what it speaks, where that is not what the options say.
    `gives_way`: another load on the same core is what is measured, and must not wait for this one (nice(1))."""
    found, address = (flags, address) if flags is not None else over.command(address)
    command = ["nice", "-n", "19"] * gives_way + ["taskset", "-c", str(args.load_core), args.load, *found, "run", address, str(seconds), *groups]
    return subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=_before)


def finish(process):
    """The figures of a load that was started."""
    try:
        out, _ = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError("the load failed")
    return json.loads(out)


def group(name, connections, targets, fresh=False, opened=False, order="random", rate=None, seed=None, exact=False, check=False, count=None, within=None):
    """Text of a group."""
    text = "name=%s,connections=%d,targets=%s,order=%s" % (name, connections, targets, order)
    text += "".join(",%s=%s" % (key, value) for key, value in (("rate", rate), ("seed", seed), ("count", count)) if value is not None)
    text += ",within=" + within if within else ""
    return text + "".join("," + word for word, is_set in (("fresh", fresh), ("opened", opened), ("exact", exact), ("check", check)) if is_set)


def once(args, address, connections, target, check=False):
    """One request over each of so many connections, all at the same moment; their figures."""
    flags, address = over.command(address)
    command = ["taskset", "-c", str(args.load_core), args.load, *flags, "once", address, str(connections), target]
    return json.loads(subprocess.run(command + ["check"] * check, capture_output=True, check=True, preexec_fn=_before).stdout)


def wrong(figures):
    """Requests of a group's figures that were not answered with 200."""
    return sum(figures["failures"].values()) + figures["left_open"] + sum(n for s, n in figures["statuses"].items() if s != "200")


class Beside:
    """Another program that never stops on the load's core: inside the `with` block the load has half of it."""

    def __init__(self, args):
        self.command = ["taskset", "-c", str(args.load_core), sys.executable, "-c", "while True: pass"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, preexec_fn=_before)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Held:
    """Connections that are only held: kind is `idle` or `slow`. Inside the `with` block all of them stand."""

    def __init__(self, args, kind, address, connections, target):
        flags, address = over.command(address)
        self.command = ["taskset", "-c", str(args.load_core), args.load, *flags, kind, address, str(connections), target]
        self.report = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_before)
        if self.process.stdout.readline() != b"ready\n":
            self.process.wait()
            raise RuntimeError("the load failed")
        return self

    def __exit__(self, *_):
        out, _ = self.process.communicate()
        if self.process.returncode == 0:
            self.report = json.loads(out)


def wrk(args, url, connections, seconds, is_fresh=False, cores=None, script=None):
    """Requests answered, and failures of all kinds; fresh: a connection for each request; a thread for each of the cores; a script says what is asked."""
    cores = cores or [args.load_core]
    command = ["taskset", "-c", ",".join(map(str, cores)), "wrk", "-t%d" % len(cores), "-c%d" % connections, "-d%gs" % seconds, url]
    command += ["-H", "Connection: close"] if is_fresh else []
    command += ["-s", script] if script else []
    out = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout
    requests = int(re.search(r"(\d+) requests in", out).group(1))
    failures = sum(int(n) for n in re.findall(r"(?:connect|read|write|timeout) (\d+)", out))
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    read = re.search(r"([0-9.]+)([KMGT]?)B read", out)
    size = float(read.group(1)) * 1024 ** " KMGT".index(read.group(2) or " ")
    return {"requests": requests, "failures": failures + (int(other.group(1)) if other else 0), "bytes": size}


def short(figures, size):
    """Whether answers without a failure were not those that were asked for: too few bytes for so many (wrk rounds what it read)."""
    return figures["bytes"] < 0.98 * figures["requests"] * size
