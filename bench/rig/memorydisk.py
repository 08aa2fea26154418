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

    def attach(self):
        with open(CONTROL + "/hot_add") as f:
            self.zram = int(f.read().split()[0])
        self.device = "/dev/zram%d" % self.zram
        for _ in range(100):
            if os.path.exists(self.device):
                break
            time.sleep(0.05)
        with open("/sys/block/zram%d/disksize" % self.zram, "w") as f:
            f.write("%d" % self.size)

    def detach(self):
        for _ in range(100):
            try:
                with open(CONTROL + "/hot_remove", "w") as f:
                    f.write("%d" % self.zram)
                return
            except OSError:
                time.sleep(0.1)

    def format(self):
        if disk.filesystem == "ext4":
            subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-N", "100000", self.device], check=True)
        else:
            super().format()

    def packed_bytes(self):
        """Bytes of memory that it takes."""
        with open("/sys/block/zram%d/mm_stat" % self.zram) as f:
            return int(f.read().split()[2])
