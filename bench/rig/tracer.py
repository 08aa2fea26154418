"""Every file system call of a server's threads, written down while the `with` block runs (bench/src/trace)."""

import json
import os
import subprocess


class Tracer:
    """`files`: one per worker process, lines of JSON."""

    def __init__(self, args, one, out):
        self.program = os.path.join(os.path.dirname(args.load), "trace")
        self.one, self.pids = one, one.worker_pids()
        self.files = ["%s.%d" % (out, i) for i in range(len(self.pids))]
        self.running = []

    def __enter__(self):
        for pid, file in zip(self.pids, self.files):
            self.running.append(subprocess.Popen([self.program, str(pid), file], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for tracer in self.running:
            if tracer.stdout.readline() != b"ready\n":
                self.__exit__()
                raise RuntimeError("cannot trace %s" % self.one.name)
        return self

    def __exit__(self, *_):
        for tracer in self.running:
            tracer.communicate()

    def calls(self):
        """Of all processes, one after the other; a line that was cut by the end is left out."""
        for name in self.files:
            with open(name) as f:
                for line in f:
                    if line.endswith("}\n"):
                        yield json.loads(line)
