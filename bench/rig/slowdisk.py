"""A disk that stalls, fails or is gone: a file served by FUSE (bench/src/slowdisk) below a loop device; to the server it is a disk like others."""

import os
import subprocess
import tempfile

from . import disk

MEMORY = "/dev/shm"     # what lies below must not wait by itself


class SlowDisk(disk.Disk):
    """`with` gives the mounted disk; nothing waits until it is told to."""

    def __init__(self, args, site, name, size, core=None):
        super().__init__(site, name, size, file=os.path.join(site.path, name + ".file"))
        self.binary, self.core, self.process = os.path.join(os.path.dirname(args.load), "slowdisk"), core, None
        self.backing = None

    def __enter__(self):
        try:
            return self.make()
        except BaseException:
            self.__exit__()
            raise

    def make(self):
        handle, self.backing = tempfile.mkstemp(prefix="freewheel-bench.", dir=MEMORY)
        os.ftruncate(handle, self.size)
        os.close(handle)
        open(self.file, "w").close()
        pin = ["taskset", "-c", str(self.core)] if self.core is not None else []
        self.process = subprocess.Popen([*pin, self.binary, self.file, self.backing], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("cannot serve a file by FUSE")
        return super().__enter__()

    def tell(self, command):
        """See bench/src/slowdisk; its answer."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def spikes(self, seed):
        """One read in a thousand waits up to a second."""
        self.tell("spikes %d" % seed)

    def hold(self):
        """Every read and write waits."""
        self.tell("hold")

    def fail(self, one_in):
        """One read in so many fails."""
        self.tell("fail %d" % one_in)

    def gone(self):
        """Every read and write fails."""
        self.tell("gone")

    def forgetful(self):
        """From now on it has a cache of writes, which a sync empties."""
        self.tell("forgetful")

    def cut(self, seed):
        """The power fails: about every second block of that cache is lost (seed 0: all), and every read and write fails. Number of blocks lost."""
        return int(self.tell("cut %d" % seed))

    def go(self):
        """Nothing waits, and nothing fails."""
        self.tell("go")

    def reads(self):
        """Reads since the last command."""
        return self.counts()[0]

    def counts(self):
        """(reads, waits) since the last command."""
        return tuple(int(n) for n in self.tell("counts").split())

    def __exit__(self, *_):
        try:
            if self.process and self.process.poll() is None:
                self.go()
            super().__exit__()
        finally:
            subprocess.run(["umount", self.file], check=False)
            if self.process:
                self.process.stdin.close()
                self.process.wait()
            if self.backing:
                os.unlink(self.backing)
                self.backing = None
