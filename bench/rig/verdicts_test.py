"""python3 -m unittest discover -s bench -p '*_test.py': the judge of the syscall test finds what it must, and nothing else."""

import unittest

from rig import verdicts

FILE = {"file": "/srv/hot.bin", "inode": "1:2", "links": 1, "size": 1 << 19, "regular": True}


def event(thread, call, args=(), result=0, **more):
    return {"at": 1.0, "tid": 1, "thread": thread, "call": call, "args": (list(args) + [0] * 6)[:6], "result": result, **more}


def judged(*events):
    trace = verdicts.Trace(lambda name: name.startswith("loop"), {"hot.bin"}, since=0.5)
    for e in events:
        trace.add(e)
    return trace


def sendfile(offset, count):
    return event("loop 0", "sendfile", [5, 6, 99, count], count, offset=offset, **FILE)


def cachestat(offset, length, cached):
    return event("loop 0", "cachestat", [6], 0, range=[offset, length], cached=cached, **FILE)


MEMFD = {**FILE, "file": "/memfd:freewheel: small files (deleted)", "links": 0}
MAP = event("pool 1", "mmap", [0, 1 << 19, 1, 1, 6, 0], 0x10000000, **FILE)


def scan(start, end, regions, inverted=0):
    return event("loop 0", "ioctl", [9], len(regions), range=[0x10000000 + start, 0x10000000 + end], inverted=inverted,
                 regions=[[0x10000000 + a, 0x10000000 + b, c] for a, b, c in regions]) | {"call": "pagemap_scan"}


class Judge(unittest.TestCase):
    def faults(self, *events):
        return dict(judged(*events).faults)

    def test_what_cannot_wait_is_no_fault(self):
        self.assertEqual(self.faults(
            event("loop 0", "openat2", resolve=0x20, path="a"), event("loop 0", "preadv2", [6, 0, 1, 0, 0, 8], **FILE),
            event("loop 0", "newfstatat", path=""), event("loop 0", "close", [6], **FILE), event("loop 0", "read", file="socket:[1]"),
            event("copies", "pwrite64", **MEMFD), event("loop 0", "pread64", **MEMFD), event("loop 0", "sendfile", [5, 6, 99, 4096], 4096, **MEMFD),
            event("loop 0", "openat", path="/proc/sys/vm/overcommit_memory"),
            event("pool 1", "openat", path="a"), event("pool 1", "pread64", **FILE), event("loop 0", "munmap", [0x5000, 4096])), {})

    def test_each_that_could_wait_is(self):
        for bad in (event("loop 0", "openat2", resolve=0, path="a"), event("loop 0", "preadv2", **FILE), event("loop 0", "statx", path="a"),
                    event("loop 0", "read", **FILE), event("loop 0", "write", **FILE), event("loop 0", "openat", path="a"),
                    event("loop 0", "close", **{**FILE, "links": 0}), event("loop 0", "close", **{**FILE, "size": 2 << 20}),
                    event("loop 0", "mmap", **FILE), event("loop 0", "unlinkat", path="a"), event("loop 0", "getdents64", **FILE),
                    event("loop 0", "pwrite64", **MEMFD), event("loop 0", "fallocate", **MEMFD), event("loop 0", "madvise", [0, 0, 22])):
            self.assertEqual(sum(self.faults(bad).values()), 1, bad)

    def test_a_sendfile_needs_a_proof_of_all_its_pages(self):
        self.assertTrue(self.faults(sendfile(0, 8192)))
        self.assertFalse(self.faults(cachestat(0, 8192, 2), sendfile(0, 8192)))
        self.assertTrue(self.faults(cachestat(0, 8192, 2), sendfile(4096, 8192)))
        self.assertTrue(self.faults(cachestat(0, 8192, 1), sendfile(0, 4096)))
        self.assertFalse(self.faults(cachestat(0, 1 << 20, 128), sendfile(0, 1 << 20)), "the file ends before the range")

    def test_a_cold_answer_takes_the_proof_away(self):
        self.assertTrue(self.faults(cachestat(0, 8192, 2), cachestat(0, 4096, 0), sendfile(0, 8192)))
        self.assertTrue(self.faults(MAP, cachestat(0, 8192, 2), scan(0, 8192, [[0, 4096, 8]]), sendfile(0, 8192)))

    def test_a_scan_proves_what_is_mapped(self):
        self.assertTrue(self.faults(scan(0, 8192, [[0, 8192, 8]]), sendfile(0, 8192)), "not mapped")
        self.assertFalse(self.faults(MAP, scan(0, 8192, [[0, 8192, 8]]), sendfile(0, 8192)))
        self.assertFalse(self.faults(MAP, scan(0, 8192, [], inverted=8), sendfile(0, 8192)), "no absent page")
        self.assertTrue(self.faults(MAP, scan(0, 8192, [[4096, 8192, 0]], inverted=8), sendfile(0, 8192)))
        self.assertFalse(self.faults(MAP, event("pool 1", "madvise", [0x10000000, 8192, 22]), sendfile(0, 8192)))

    def test_work_of_the_pool_on_hot_files_is_counted(self):
        hot = [event("pool 1", "openat2", path="hot.bin"), event("pool 1", "pread64", **FILE), event("pool 1", "pread64", file="/srv/cold.bin")]
        self.assertEqual(judged(*hot, {**hot[0], "at": 0.1}).hot_in_pool, 2)


if __name__ == "__main__":
    unittest.main()
