"""The event loops of a running server as the kernel sees them, without asking the server: epoll sets, threads, context switches."""

import os


def count(server):
    """Event loops that take connections: threads called `loop …`, else processes (nginx: those not shutting down)."""
    loops = 0
    for pid in server.worker_pids():
        names = _thread_names(pid)
        threads = sum(name.startswith("loop") for name in names)
        loops += threads or not _is_leaving(pid)
    return loops


def connections(server):
    """How many connections of the server's port each epoll set watches, largest first; sets without any are not listed."""
    established = _established(server.port)
    sets = set()
    for pid in server.worker_pids():
        for fd in _names("/proc/%d/fd" % pid):
            if _link("/proc/%d/fd/%s" % (pid, fd)) != "anon_inode:[eventpoll]":
                continue
            watched = {_link("/proc/%d/fd/%s" % (pid, target)) for target in _watched(pid, fd)}
            # A copy of the descriptor (tokio keeps one) shows the same set again.
            sets.add(frozenset(watched & established))
    return sorted((len(s) for s in sets if s), reverse=True)


def switches(server):
    """Voluntary context switches of all threads so far: every time that one went to sleep and was woken."""
    total = 0
    for pid in server.worker_pids():
        for task in _names("/proc/%d/task" % pid):
            for line in _lines("/proc/%d/task/%s/status" % (pid, task)):
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return total


def thread_names(server):
    """Name of each thread of the workers by its id."""
    return {int(task): (_lines("/proc/%d/task/%s/comm" % (pid, task)) or ["?"])[0].strip()
            for pid in server.worker_pids() for task in _names("/proc/%d/task" % pid)}


def _thread_names(pid):
    return [(_lines("/proc/%d/task/%s/comm" % (pid, task)) or ["?"])[0].strip() for task in _names("/proc/%d/task" % pid)]


def _is_leaving(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return b"shutting down" in f.read()
    except OSError:
        return True


def _established(port):
    """Links of the sockets of the port's established connections, the server's side."""
    found = set()
    for line in _lines("/proc/net/tcp")[1:]:
        fields = line.split()
        if int(fields[1].split(":")[1], 16) == port and fields[3] == "01":
            found.add("socket:[%s]" % fields[9])
    return found


def _watched(pid, fd):
    return [line.split()[1] for line in _lines("/proc/%d/fdinfo/%s" % (pid, fd)) if line.startswith("tfd:")]


def _names(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _lines(path):
    try:
        with open(path) as f:
            return f.readlines()
    except OSError:
        return []
