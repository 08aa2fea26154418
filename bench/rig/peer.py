"""Other servers under test, each with a configuration of its own (`peers/`): one thread or process, as nobody, on the server's core."""

import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import server

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
MEMORY = "512m"
# How each is started in the foreground.
COMMANDS = {
    "h2o": lambda one, file: ["-m", "worker", "-c", file],
    "caddy": lambda one, file: ["run", "--adapter", "caddyfile", "--config", file],
    "haproxy": lambda one, file: ["-db", "-f", file],
    "varnish": lambda one, file: ["-F", "-n", one.dir, "-a", one.address, "-f", file, "-s", "malloc," + MEMORY, "-T", "none", "-p", "thread_pools=1"],
}


def named(text):
    """NAME=PATH of an option."""
    name, _, path = text.partition("=")
    if name not in COMMANDS or not os.access(path, os.X_OK):
        raise ValueError(text)
    return name, path


def does(name, what):
    """Whether there is a configuration for this: files, proxy, cache."""
    return os.path.exists(os.path.join(FOLDER, "%s.%s" % (name, what)))


class Peer:
    """Running inside the `with` block."""

    def __init__(self, name, binary, site, what, core, origin="127.0.0.1:9"):
        self.name, self.binary, self.port, self.core, self.process = name, binary, server.free_port(), core, None
        self.dir = tempfile.mkdtemp(prefix=name + ".", dir=site.path)
        host, _, port = origin.partition(":")
        with open(os.path.join(FOLDER, "%s.%s" % (name, what))) as f:
            text = f.read()
        for key, value in (("%PORT%", self.port), ("%ROOT%", site.html), ("%DIR%", self.dir), ("%ORIGIN%", origin), ("%ORIGIN_HOST%", host), ("%ORIGIN_PORT%", port)):
            text = text.replace(key, str(value))
        self.file = os.path.join(self.dir, "configuration")
        with open(self.file, "w") as f:
            f.write(text)

    def __enter__(self):
        nobody = pwd.getpwnam("nobody")
        is_root = os.geteuid() == 0
        if is_root:
            shutil.chown(self.dir, "nobody")

        def before():
            os.setpgrp()
            resource.setrlimit(resource.RLIMIT_NOFILE, (server.NOFILE, server.NOFILE))
            os.sched_setaffinity(0, {self.core})
            if is_root:
                os.setgroups([])
                os.setgid(nobody.pw_gid)
                os.setuid(nobody.pw_uid)

        with open(os.path.join(self.dir, "said"), "w") as said:
            self.process = subprocess.Popen([self.binary, *COMMANDS[self.name](self, self.file)], preexec_fn=before, stdin=subprocess.DEVNULL, stdout=said,
                                            stderr=subprocess.STDOUT, cwd=self.dir, env={**os.environ, "HOME": self.dir, "GOMAXPROCS": "1"})
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        until = time.monotonic() + server.PATIENCE
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("%s did not start: %s" % (self.name, self.said()))
            time.sleep(0.05)
        time.sleep(0.5)

    def __exit__(self, *_):
        server.end(self.process, lambda: os.killpg(self.process.pid, signal.SIGKILL))

    def said(self):
        return server.tails(self.dir, ("said",))

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def worker_pids(self):
        """The process and those below it."""
        return [self.process.pid, *server.Server.worker_pids(self)]

    cpu_seconds = server.Server.cpu_seconds
