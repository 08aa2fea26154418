"""A file system that waits: FUSE by its protocol (linux/fuse.h, 7.31; no library), a flat directory of files, every answer late.

Root only. The kernel keeps no name, attribute or page of it longer than an operation takes, so that each asks again."""

import ctypes
import errno
import os
import stat
import struct
import threading

MOUNTED_MS = {"nosuid": 2, "nodev": 4}
DETACH = 2
MESSAGE = (1 << 20) + 4096
IN, OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 27, 28, 29, 36, 38, 42
SILENT = {FORGET, BATCH_FORGET, INTERRUPT}
_libc = ctypes.CDLL(None, use_errno=True)


class SlowFs:
    """Mounted inside the `with` block. `files`: contents by name; every answer takes `delay` seconds from then on."""

    def __init__(self, point, files, delay):
        self.point, self.delay = point, delay
        self.names = {name.encode(): number for number, name in enumerate(files, 2)}
        self.contents = dict(enumerate(files.values(), 2))
        self.calls = 0
        self.lock = threading.Lock()    # whoever answers late must not write to what has the number of the descriptor then

    def __enter__(self):
        os.makedirs(self.point, exist_ok=True)
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions" % self.fd
        if _libc.mount(b"slowfs", self.point.encode(), b"fuse", sum(MOUNTED_MS.values()), options.encode()):
            raise OSError(ctypes.get_errno(), "mount of FUSE")
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        _libc.umount2(self.point.encode(), DETACH)

    def serve(self):
        """Reads requests until the file system is unmounted; each is answered by a thread of its own, in its time."""
        while True:
            try:
                message = os.read(self.fd, MESSAGE)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return self.close()
            code = IN.unpack_from(message)[1]
            if code not in SILENT:
                self.calls += code != INIT
                threading.Timer(0 if code == INIT else self.delay, self.answer, (message,)).start()

    def close(self):
        with self.lock:
            os.close(self.fd)
            self.fd = None

    def answer(self, message):
        _, code, unique, node, *_ = IN.unpack_from(message)
        error, body = self.carry_out(code, node, message[IN.size:])
        with self.lock:
            try:
                if self.fd is not None:
                    os.write(self.fd, OUT.pack(OUT.size + len(body), -error, unique) + body)
            except OSError:
                pass    # interrupted, or unmounted

    def carry_out(self, code, node, arguments):
        """(error, body of the answer)"""
        if code == INIT:
            return 0, struct.pack("<IIIIHHIIHHII24x", 7, 31, 65536, 0, 64, 64, 65536, 1, 0, 0, 0, 0)
        if code == LOOKUP:
            found = self.names.get(arguments.rstrip(b"\0"))
            return (0, struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + self.attributes(found)) if found else (errno.ENOENT, b"")
        if code == GETATTR:
            return 0, struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if code in (OPEN, OPENDIR):
            return 0, struct.pack("<QII", 0, 0, 0)
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", arguments)
            return 0, self.contents[node][offset:offset + size]
        if code == STATFS:
            return 0, struct.pack("<QQQQQIII28x", 1, 1, 1, 1, 1, 4096, 255, 4096)
        if code in (READDIR, RELEASE, RELEASEDIR, FLUSH, DESTROY):
            return 0, b""
        return errno.ENOSYS, b""

    def attributes(self, node):
        data = self.contents.get(node)
        mode = stat.S_IFDIR | 0o755 if data is None else stat.S_IFREG | 0o644
        size = len(data or b"")
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, -(-size // 512), 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
