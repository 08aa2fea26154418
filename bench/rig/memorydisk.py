"""A disk in memory that packs what it holds (zram, with the kernel's own compression): room for millions of entries that are mostly padding."""

import os
import subprocess
import time

from . import disk

CONTROL = "/sys/class/zram-control"


def missing():
    """What stands in the way, or nothing."""
    return None if os.path.isdir(CONTROL) else "%s is missing: needs zram (CONFIG_ZRAM)" % CONTROL


class MemoryDisk(disk.Disk):
    """`with` gives the mounted disk; `size` is what it seems to have."""

    def __enter__(self):
        os.makedirs(self.path)
        with open(CONTROL + "/hot_add") as f:
            self.number_ = int(f.read())
        self.device = "/dev/zram%d" % self.number_
        try:
            for _ in range(100):
                if os.path.exists(self.device):
                    break
                time.sleep(0.05)
            with open("/sys/block/zram%d/disksize" % self.number_, "w") as f:
                f.write("%d" % self.size)
            self.format()
            self.mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def format(self):
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", *(["-N", "100000"]), self.device], check=True)

    def __exit__(self, *_):
        if os.path.ismount(self.path):
            self.unmount(is_last=True)
        for _ in range(100):
            try:
                with open(CONTROL + "/hot_remove", "w") as f:
                    f.write("%d" % self.number_)
                break
            except OSError:
                time.sleep(0.1)
        if os.path.isdir(self.path) and not os.path.ismount(self.path):
            os.rmdir(self.path)

    def packed_bytes(self):
        """Bytes of memory that it takes."""
        with open("/sys/block/zram%d/mm_stat" % self.number_) as f:
            return int(f.read().split()[2])
