"""The server behind the caches (bench/src/origin), pinned to its core: what it serves follows from the path, and it counts."""

import json
import os
import subprocess
import urllib.request

from . import load, server


class Origin:
    """Running inside the `with` block."""

    def __init__(self, args, workers=None, send_buffer=None):
        """`workers`: requests that it answers at a time; `send_buffer`: of its connections, in bytes; unless given, whatever comes, and the kernel's."""
        self.numbers = [str(number) for number in (workers, send_buffer) if number is not None]
        self.core = args.origin_core
        self.binary = os.path.join(os.path.dirname(args.load), "origin")
        self.port = server.free_port()

    def __enter__(self):
        command = ["taskset", "-c", str(self.core), self.binary, self.address, *self.numbers]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=load._before)
        if self.process.stdout.readline() != b"ready\n":
            self.process.wait()
            raise RuntimeError("the origin does not start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def ask(self, path):
        with urllib.request.urlopen("http://%s%s" % (self.address, path), timeout=20) as answer:
            return answer.read().decode()

    def counts(self):
        """requests, bytes (of bodies), connections, not_modified, cut, held_ms, held_by_large_ms, keys, most (requests for one key) since the last reset."""
        return json.loads(self.ask("/_counts"))

    def count(self, path):
        """Requests for one path."""
        return int(self.ask("/_count" + path))

    def reset(self):
        self.ask("/_reset")
