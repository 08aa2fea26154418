"""A server as installed: master as root, worker as nobody, its own directory, pinned to cores. Ends with the `with` block, also when
the measurement is interrupted."""

import glob
import grp
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import over

NOFILE = min(100_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
PATIENCE = 20


class Site:
    """A directory 0755 with html/ and logs/, and the files of a measurement, root:root 0644."""

    def __init__(self, parent, overlay=False):
        self.path = tempfile.mkdtemp(prefix="freewheel-bench.", dir=parent)
        os.chmod(self.path, 0o755)
        self.html = os.path.join(self.path, "html")
        os.mkdir(self.html, 0o755)
        self.overlay = overlay
        if overlay:
            parts = [os.path.join(self.path, name) for name in ("lower", "upper", "work")]
            for part in parts:
                os.mkdir(part, 0o755)
            what = "lowerdir=%s,upperdir=%s,workdir=%s" % tuple(parts)
            subprocess.run(["mount", "-t", "overlay", "overlay", "-o", what, self.html], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.overlay:
            # Lazily: pages that are held in memory (pages.hold_in) are in use until this process ends.
            subprocess.run(["umount", "--lazy", self.html], check=False)
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name, size, seed=0):
        """Makes html/NAME of that many bytes, which differ by seed and are not all equal (no holes, nothing to compress away)."""
        path = os.path.join(self.html, name)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        block = bytes((i * 131 + seed * 29 + (i >> 8)) & 255 for i in range(min(size, 65536)))
        with open(path, "wb") as f:
            left = size
            while left > 0:
                f.write(block[:left])
                left -= 65536
        os.chmod(path, 0o644)
        return path

    def remove(self, name):
        """Removes a directory of it."""
        shutil.rmtree(os.path.join(self.path, name))

    def targets(self, name, lines):
        """A list of request targets for the load."""
        path = os.path.join(self.path, name)
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        return path


def free_port():
    """A port below the range that clients get; each process looks in another place first, since a killed server's port is free for a moment."""
    first = 18000 + os.getpid() % 110 * 100
    for port in (*range(first, 30000), *range(18000, first)):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port")


def tails(directory, names, size=4000):
    """The ends of files, as far as they are there."""
    text = ""
    for name in names:
        try:
            with open(os.path.join(directory, name), errors="replace") as f:
                text += f.read()[-size:]
        except OSError:
            pass
    return text


class Program:
    """A server that runs inside the `with` block, in a group of processes of its own; one that does not get ready is ended, too."""

    SETTLE = 0.5        # seconds that it gets when it is ready
    process = None

    def start(self, command, output, user=None, environment=None, before=None):
        """Returns when it is ready. `command`: what follows the program; `output`: a file; `user`: its entry, for who shall not start as root; `before`: called in the new process."""
        def prepare():
            os.setpgrp()
            resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, NOFILE))
            if self.core is not None:
                os.sched_setaffinity(0, self.core if isinstance(self.core, (set, list)) else {self.core})
            if before:
                before()
            if user:
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)

        with open(os.path.join(self.dir, output), "w") as said:
            self.process = subprocess.Popen([os.path.abspath(self.binary), *command], preexec_fn=prepare, cwd=self.dir, env={**os.environ, **(environment or {})},
                                            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        until = time.monotonic() + PATIENCE
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("%s did not start: %s" % (self.name, self.said()))
            time.sleep(0.02)
        time.sleep(self.SETTLE)

    def is_ready(self):
        """Whether it takes connections."""
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def worker_pids(self):
        """All processes below the first."""
        found, ahead = [], [self.process.pid]
        while ahead:
            pid = ahead.pop()
            children = []
            for path in glob.glob("/proc/%d/task/*/children" % pid):
                try:
                    with open(path) as f:
                        children += [int(p) for p in f.read().split()]
                except OSError:
                    pass
            found += children
            ahead += children
        return found

    def cpu_seconds(self, threads=""):
        """Time on a processor of all threads of the workers that run now, or of those whose names begin so (schedstat counts nanoseconds,
        /proc/PID/stat only ticks)."""
        spent = 0
        for path in (path for pid in self.worker_pids() for path in glob.glob("/proc/%d/task/*" % pid)):
            try:
                with open(path + "/comm") as name, open(path + "/schedstat") as f:
                    spent += int(f.read().split()[0]) if name.read().startswith(threads) else 0
            except OSError:
                pass
        return spent / 1e9

    def resident_bytes(self):
        """Anonymous memory of all workers: RSS without the pages of files, which are the page cache's."""
        return self.memory(("RssAnon:", "RssShmem:"))

    def resident_all_bytes(self):
        """VmRSS of all workers, mapped files included."""
        return self.memory(("VmRSS:",))

    def memory(self, fields):
        """Bytes of these lines of /proc/PID/status of all workers."""
        total = 0
        for pid in self.worker_pids():
            with open("/proc/%d/status" % pid) as f:
                total += sum(int(line.split()[1]) * 1024 for line in f if line.startswith(fields))
        return total


class Server(Program):
    """A running master with its workers. `http` is the content of the http block, `main` stands outside of it."""

    SETTLE = 0.2

    def __init__(self, name, binary, site, http, main="", workers=1, core=None, environment=None, before=None, as_user=None, descriptors=NOFILE):
        self.name, self.binary, self.site, self.port, self.descriptors = name, binary, site, free_port(), descriptors
        self.workers, self.core, self.environment, self.before, self.as_user = workers, core, environment or {}, before, as_user
        self.dir = tempfile.mkdtemp(prefix=name.replace(" ", "-") + ".", dir=site.path)
        os.chmod(self.dir, 0o755)
        os.mkdir(os.path.join(self.dir, "logs"), 0o755)
        if as_user:
            for path in (self.dir, os.path.join(self.dir, "logs")):
                shutil.chown(path, as_user)
        self.configure(http, main)

    def configure(self, http, main="", workers=None):
        """Writes nginx.conf. %PORT% is the port."""
        workers = workers or self.workers
        group = "nobody" if any(g.gr_name == "nobody" for g in grp.getgrall()) else "nogroup"
        http = over.cover(self.site, self.port, http)
        user = "user nobody %s;\n" % group if os.geteuid() == 0 and not self.as_user else ""
        text = (
            "daemon off;\n%sworker_processes %d;\nworker_rlimit_nofile %d;\npid logs/nginx.pid;\nerror_log logs/error.log notice;\n%s\n"
            "events { worker_connections %d; }\nhttp {\n    root %s;\n    keepalive_timeout 300s; keepalive_requests 100000000;\n%s\n}\n"
            % (user, workers, self.descriptors, main, self.descriptors, self.site.html, http.replace("%PORT%", str(self.port)))
        )
        with open(os.path.join(self.dir, "nginx.conf"), "w") as f:
            f.write(text)

    def __enter__(self):
        command = ["-p", self.dir + "/", "-c", "nginx.conf", "-e", "logs/error.log"]
        user = pwd.getpwnam(self.as_user) if self.as_user else None
        return self.start(command, "stderr", user, self.environment, self.before)

    def is_ready(self):
        """Whether the pid file is there."""
        return os.path.exists(os.path.join(self.dir, "logs/nginx.pid"))

    def said(self):
        """Standard output and error, and the end of the error log."""
        return tails(self.dir, ("stderr", "logs/error.log"))

    def signal(self, number):
        """To the master."""
        self.process.send_signal(number)
