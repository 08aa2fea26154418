"""Other servers under test, each with a configuration of its own (`peers/`): one thread or process, as nobody, on the server's core."""

import os
import pwd
import shutil
import tempfile

from . import server

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
MEMORY = "512m"
RELAY = "bytes alone"    # the name of what passes them on and understands none: no rival
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


class Peer(server.Program):
    """Running inside the `with` block."""

    def __init__(self, name, binary, site, what, core, origin="127.0.0.1:9"):
        self.name, self.binary, self.port, self.core = name, binary, server.free_port(), core
        self.dir = tempfile.mkdtemp(prefix=name + ".", dir=site.path)
        host, _, port = origin.partition(":")
        with open(os.path.join(FOLDER, "%s.%s" % (name, what))) as f:
            text = f.read()
        for key, value in (("%PORT%", self.port), ("%ROOT%", site.html), ("%SITE%", site.path), ("%DIR%", self.dir), ("%ORIGIN%", origin), ("%ORIGIN_HOST%", host), ("%ORIGIN_PORT%", port)):
            text = text.replace(key, str(value))
        self.file = os.path.join(self.dir, "configuration")
        with open(self.file, "w") as f:
            f.write(text)

    def __enter__(self):
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if user:
            shutil.chown(self.dir, "nobody")
        return self.start(COMMANDS[self.name](self, self.file), "said", user, {"HOME": self.dir, "GOMAXPROCS": "1"})

    def said(self):
        return server.tails(self.dir, ("said",))

    def worker_pids(self):
        """The process and those below it."""
        return [self.process.pid, *super().worker_pids()]


class Relay(server.Program):
    """Passes bytes on (bench/src/relay): what proxying costs without HTTP. Running inside the `with` block."""

    def __init__(self, binary, site, core, origin):
        self.name, self.binary, self.port, self.core = RELAY, binary, server.free_port(), core
        self.dir, self.origin = tempfile.mkdtemp(prefix="relay.", dir=site.path), origin

    def __enter__(self):
        return self.start([self.address, self.origin], "said")

    def said(self):
        return server.tails(self.dir, ("said",))

    def worker_pids(self):
        return [self.process.pid]
