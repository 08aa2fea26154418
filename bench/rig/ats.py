"""Apache Traffic Server as a peer: one process, its cache one file on the disk given. Found by the path of traffic_server; a package
that was only unpacked does (its libraries are looked for beside it)."""

import glob
import os
import resource
import shutil
import socket
import subprocess
import tempfile
import time

from . import server

RECORDS = """
CONFIG proxy.config.http.server_ports STRING %(port)d:ip-in=127.0.0.1
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT %(workers)d
CONFIG proxy.config.accept_threads INT 0
CONFIG proxy.config.cache.ram_cache.size INT 512M
CONFIG proxy.config.cache.ram_cache.algorithm INT 1
CONFIG proxy.config.http.cache.required_headers INT 0
CONFIG proxy.config.http.keep_alive_no_activity_timeout_in INT 300
CONFIG proxy.config.http.insert_response_via_str INT 0
CONFIG proxy.config.http.insert_age_in_response INT 0
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.diags.debug.enabled INT 0
CONFIG proxy.config.admin.user_id STRING nobody
CONFIG proxy.config.body_factory.template_sets_dir STRING %(dir)s/etc/body_factory
CONFIG proxy.config.cache.dir.sync_frequency INT %(sync)d
CONFIG proxy.config.core_limit INT 0
"""


class Ats:
    """Running inside the `with` block; `store` is a directory, made when it is not there, and kept."""

    def __init__(self, binary, site, origin, store, size, workers=1, core=None, sync=3600):
        self.name, self.binary, self.port, self.core = "ats", binary, server.free_port(), core
        self.dir = tempfile.mkdtemp(prefix="ats.", dir=site.path)
        os.chmod(self.dir, 0o755)
        os.makedirs(store, exist_ok=True)
        for part in ("etc", "run", "log", "cache"):
            os.mkdir(os.path.join(self.dir, part))
        found = os.path.realpath(os.path.join(os.path.dirname(binary), "../../etc/trafficserver"))
        shutil.copytree(found, os.path.join(self.dir, "etc"), dirs_exist_ok=True)
        self.write("etc/records.config", RECORDS % {"port": self.port, "workers": workers, "dir": self.dir, "sync": sync})
        self.write("etc/remap.config", "map / http://%s/\n" % origin)
        self.write("etc/storage.config", "%s %d\n" % (store, size))
        self.write("etc/cache.config", "dest_domain=. ttl-in-cache=1d\n")
        self.write("etc/plugin.config", "")
        layout = {"prefix": self.dir, "exec_prefix": self.dir, "bindir": os.path.dirname(binary), "sbindir": os.path.dirname(binary),
                  "sysconfdir": "etc", "datadir": "cache", "localstatedir": "run", "runtimedir": "run", "logdir": "log", "cachedir": "cache"}
        self.write("runroot.yaml", "".join("%s: %s\n" % (key, os.path.join(self.dir, value)) for key, value in layout.items()))
        for path in (self.dir, store, *(os.path.join(self.dir, part) for part in ("run", "log", "cache"))):
            shutil.chown(path, "nobody")
        self.process = None

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(text)

    def __enter__(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(self.binary)))
        libraries = [os.path.join(root, "usr/lib/trafficserver"), *glob.glob(os.path.join(root, "usr/lib/*-linux-gnu")),
                     *glob.glob(os.path.join(root, "lib/*-linux-gnu"))]

        def before():
            resource.setrlimit(resource.RLIMIT_NOFILE, (server.NOFILE, server.NOFILE))
            if self.core is not None:
                os.sched_setaffinity(0, {self.core})

        self.process = subprocess.Popen(
            [self.binary, "--run-root=" + os.path.join(self.dir, "runroot.yaml")], preexec_fn=before, stdin=subprocess.DEVNULL,
            stdout=open(os.path.join(self.dir, "said"), "w"), stderr=subprocess.STDOUT,
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)})
        until = time.monotonic() + server.PATIENCE
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            if self.process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise RuntimeError("ats did not start: %s" % self.said())
            time.sleep(0.05)
        time.sleep(1)
        return self

    def keep(self):
        """Waits until the directory of the cache is on the disk: it is written every `sync` seconds, and not at the end."""
        time.sleep(10)

    def __exit__(self, *_):
        server.end(self.process, lambda: self.process.kill())

    def said(self):
        """What it printed."""
        return server.tails(self.dir, ("said", "log/diags.log", "log/error.log"))

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def worker_pids(self):
        """One process."""
        return [self.process.pid]

    cpu_seconds = server.Server.cpu_seconds
    resident_bytes = server.Server.resident_bytes
