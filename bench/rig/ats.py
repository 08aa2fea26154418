"""Apache Traffic Server as a peer: one process, its cache one file on the disk given. Found by the path of traffic_server; a package
that was only unpacked does (its libraries are looked for beside it)."""

import glob
import os
import shutil
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
CONFIG proxy.config.cache.ram_cache.use_seen_filter INT 0
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


def environment(binary):
    """Where its libraries are."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(binary))))
    libraries = [os.path.join(root, "usr/lib/trafficserver"), *glob.glob(os.path.join(root, "usr/lib/*-linux-gnu")),
                 *glob.glob(os.path.join(root, "lib/*-linux-gnu"))]
    return {"LD_LIBRARY_PATH": ":".join(libraries)}


class Ats(server.Program):
    """Running inside the `with` block; `store` is a directory, made when it is not there, and kept. `before`: called in the new process."""

    SETTLE = 1

    def __init__(self, binary, site, origin, store, size, workers=1, core=None, sync=3600, before=None):
        self.name, self.binary, self.port, self.core, self.before = "ats", binary, server.free_port(), core, before
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

    def also_at(self, store, size):
        """A further place of its cache."""
        os.makedirs(store, exist_ok=True)
        shutil.chown(store, "nobody")
        with open(os.path.join(self.dir, "etc/storage.config"), "a") as f:
            f.write("%s %d\n" % (store, size))

    def ram_cache(self, size):
        """Bytes of it."""
        self.record("proxy.config.cache.ram_cache.size INT %d" % size)

    def record(self, text):
        """A further setting: name, type and value."""
        with open(os.path.join(self.dir, "etc/records.config"), "a") as f:
            f.write("CONFIG %s\n" % text)

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(text)

    def __enter__(self):
        return self.start(["--run-root=" + os.path.join(self.dir, "runroot.yaml")], "said", environment=environment(self.binary), before=self.before)

    def keep(self):
        """Waits until the directory of the cache is on the disk: it is written every `sync` seconds, and not at the end."""
        time.sleep(10)

    def said(self):
        """What it printed."""
        return server.tails(self.dir, ("said", "log/diags.log", "log/error.log"))

    def worker_pids(self):
        """One process."""
        return [self.process.pid]
