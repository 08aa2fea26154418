"""python3 -m unittest discover -s bench -p '*_test.py': what was left is seen, and what is as it was is not named."""

import os
import subprocess
import sys
import tempfile
import unittest

from rig import machine

MOUNTS = """21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:25 / /sys rw,nosuid - sysfs sysfs rw
"""


def write(*parts, text=""):
    path = os.path.join(*parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    return path


class Machine(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.dir = made.name

    def test_what_is_there_afterwards_is_left_and_what_is_not_is_gone(self):
        before = {"mount": {"/a", "/b"}, "file": {"/f"}}
        self.assertEqual(machine.differences(before, {"mount": {"/a", "/c"}, "file": {"/f"}}), ["mount left: /c", "mount gone: /b"])
        self.assertEqual(machine.differences(before, before), [])

    def test_a_machine_that_nobody_touches_is_as_it_was(self):
        seen = machine.snapshot([self.dir])
        self.assertEqual(set(seen), {"mount", "loop device", "control group", "file", "network setting", "memory setting", "disk setting", "limit of a group"})
        self.assertTrue(seen["mount"] and seen["network setting"] and seen["memory setting"])
        self.assertEqual(seen["memory setting"] ^ machine.settings("/proc/sys/vm"), set())

    def test_mounts(self):
        table = write(self.dir, "mountinfo", text=MOUNTS)
        before = machine.mounts(table)
        write(self.dir, "mountinfo", text=MOUNTS + "31 21 7:0 / /var/tmp/x/disk rw,noatime - ext4 /dev/loop0 rw\n")
        self.assertEqual(machine.mounts(table) - before, {"/var/tmp/x/disk (ext4, /dev/loop0, rw,noatime)"})

    def test_files_and_folders_at_any_depth(self):
        before = machine.files([self.dir, "/no/such/place"])
        path = write(self.dir, "a/b/c")
        self.assertEqual(machine.files([self.dir]) - before, {path, os.path.dirname(path), os.path.join(self.dir, "a")})

    def test_groups_and_their_limits(self):
        os.makedirs(os.path.join(self.dir, "blkio"))
        write(self.dir, "blkio", "blkio.throttle.read_iops_device")
        groups, limits = machine.control_groups(self.dir), machine.group_settings(self.dir)
        self.assertEqual(limits, set())
        file = write(self.dir, "blkio", "blkio.throttle.read_iops_device", text="7:0 600\n")
        os.mkdir(os.path.join(self.dir, "blkio/bench.1"))
        self.assertEqual(machine.control_groups(self.dir) - groups, {os.path.join(self.dir, "blkio/bench.1")})
        self.assertEqual(machine.group_settings(self.dir), {file + " = 7:0 600"})

    def test_disks_that_were_told_something(self):
        for name, value in (("strict_limit", "0"), ("max_ratio_fine", "1000000"), ("max_bytes", "12345")):
            write(self.dir, "7:0", name, text=value + "\n")
        self.assertEqual(machine.disk_settings(self.dir), set(), "a disk that came meanwhile, as the kernel makes it")
        path = write(self.dir, "7:0/strict_limit", text="1\n")
        self.assertEqual(machine.disk_settings(self.dir), {path + " = 1"})

    def test_settings_that_changed_are_both_left_and_gone(self):
        write(self.dir, "net/ipv4/tcp_rmem", text="4096\t131072 6291456\n")
        write(self.dir, "net/drop_caches", text="3\n")
        before = {"network setting": machine.settings(self.dir)}
        path = write(self.dir, "net/ipv4/tcp_rmem", text="1 2 3\n")
        after = {"network setting": machine.settings(self.dir)}
        self.assertEqual(machine.differences(before, after),
                         ["network setting left: %s = 1 2 3" % path, "network setting gone: %s = 4096 131072 6291456" % path])


class Processes(unittest.TestCase):
    def test_a_process_whose_parent_has_ended_is_still_a_child(self):
        # In a process of its own: to adopt is for good.
        program = ("import subprocess, sys; sys.path.insert(0, %r); from rig import machine; machine.adopt();"
                   "subprocess.run(['sh', '-c', 'sleep 60 >/dev/null 2>&1 &']); found = machine.children();\n"
                   "while any(said == '?' for _, said in found): found = machine.children()  # amid its exec\n"
                   "print(found);"
                   "[__import__('os').kill(pid, 9) for pid, _ in found]" % os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        self.assertIn("sleep 60", said)


if __name__ == "__main__":
    unittest.main()
