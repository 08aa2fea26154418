"""A cache that is killed while it fills, revalidates and evicts: what every answer was, byte by byte."""

import os
import signal

from . import load, server

RATE, CLIENTS = 1500, 48        # requests per second
ASK_MAX = 12                    # seconds in which all keys are asked for once
LARGE_EVERY = 20
COUNTED = ("right", "cut", "wrong", "hung", "other")
HTTP = """    access_log off; sendfile on; aio threads; aio_write on;
    upstream origin { server %ORIGIN%; keepalive 128; }
    proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_cache_path %CACHE% levels=1:2 keys_zone=c:64m max_size=%MAX% inactive=1h use_temp_path=off%OWN%;
    server {
        listen 127.0.0.1:%PORT%;
        location / { proxy_pass http://origin; proxy_cache c; proxy_cache_revalidate on; proxy_cache_use_stale updating error timeout;
                     proxy_cache_background_update on; proxy_cache_lock on; add_header X-Cache $upstream_cache_status; }
    }
"""


def keys(label, count):
    """Paths: some that change and expire fast, some that stay, some large, some that the origin cuts now and then."""
    found, label = [], label.replace(" ", "-")
    for i in range(count):
        size = 300_000 + i * 1000 if i % LARGE_EVERY == 0 else 500 + i * 37 % 60_000
        kind = ("age=1,tag,turn=3000", "age=1,tag", "age=3600,tag", "age=3600", "age=3600,tag,cut=3")[i % 5]
        found.append("/%d,%s/%s-%d" % (size, kind, label, i))
    return found


class Case:
    """A server with its cache, started again and again. `own`: words of proxy_cache_path; `before`: called in each new process."""

    def __init__(self, args, site, source, name, binary, cache, most, own="", before=None):
        cache = cache.replace(" ", "-")
        http = HTTP.replace("%ORIGIN%", source.address).replace("%CACHE%", cache).replace("%MAX%", most).replace("%OWN%", own)
        self.args, self.site, self.source, self.cache = args, site, source, cache
        self.one = server.Server(name, binary, site, http, core=args.server_core, before=before)
        self.figures = dict.fromkeys(COUNTED, 0)

    def note(self, figures):
        """Sums up; `closed` and `connect` are those of a server that was just killed."""
        failures = dict(figures["failures"])
        self.figures["right"] += figures["statuses"].get("200", 0)
        self.figures["wrong"] += failures.pop("wrong", 0)
        self.figures["cut"] += failures.pop("cut", 0)
        failures.pop("closed", 0), failures.pop("connect", 0)
        self.figures["hung"] += figures["left_open"]
        self.figures["other"] += sum(failures.values()) + sum(n for s, n in figures["statuses"].items() if s not in ("200", "502"))

    def kill(self):
        """All processes at once."""
        for pid in [self.one.process.pid, *self.one.worker_pids()]:
            os.kill(pid, signal.SIGKILL)
        self.one.process.wait()
        os.unlink(os.path.join(self.one.dir, "logs/nginx.pid"))

    def ask(self, targets, seconds=None, count=None):
        """Every answer compared; a load that runs while the caller does something else."""
        group = load.group("all", CLIENTS, targets, rate=RATE if count is None else None, count=count, check=True, order="random" if count is None else "turn")
        return load.start(self.args, self.one.address, "%g+1" % (seconds or ASK_MAX), [group])
