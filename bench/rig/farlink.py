"""A line with a rate, a delay and a queue: clients in a network namespace of their own, and a process that carries every packet between two TUN
devices when its time has come. Needs root and no more of the kernel than these (no netem)."""

import collections
import contextlib
import fcntl
import multiprocessing
import os
import select
import signal
import socket
import struct
import subprocess
import time

# Of a range that is kept for benchmarks of networks (RFC 2544).
HERE, THERE = "198.18.203.1", "198.18.203.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
PACKETS_AT_ONCE, PACKET_MAX, DEVICE_QUEUE = 64, 65536, 5000


class FarLink:
    """`rate`: bits a second, each way; `round_trip_ms` without a queue; `queue_ms`: what the queue before the line holds, at that rate; what does
    not fit is dropped. Inside the `with` block, commands of `there()` run behind the line and reach this machine as HERE."""

    def __init__(self, core, rate, round_trip_ms, queue_ms):
        self.core, self.rate, self.delay, self.queue = core, rate / 8, round_trip_ms / 2000, queue_ms / 1000
        self.name = "freewheel-%d" % os.getpid()
        self.devices = ["fw%d%s" % (os.getpid(), end) for end in "ab"]
        self.process = None

    def __enter__(self):
        near, far = (_device(name) for name in self.devices)
        try:
            _run("ip", "netns", "add", self.name)
            _run("ip", "link", "set", self.devices[1], "netns", self.name)
            for prefix, name, own, other in (((), self.devices[0], HERE, THERE), (self.there(), self.devices[1], THERE, HERE)):
                _run(*prefix, "ip", "address", "add", own, "peer", other, "dev", name)
                _run(*prefix, "ip", "link", "set", name, "up", "txqueuelen", str(DEVICE_QUEUE))
            self.process = multiprocessing.Process(target=self._carry, args=(near, far))
            self.process.start()
        except BaseException:
            self.__exit__()
            raise
        finally:
            # The devices last as long as the process that carries.
            os.close(near)
            os.close(far)
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.join()
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    def there(self, *command):
        """A command as it is run behind the line."""
        return ("ip", "netns", "exec", self.name, *command)

    def _carry(self, near, far):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.sched_setaffinity(0, {self.core})
        # Late packets would be a slower line.
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        other, is_busy_until = {near: far, far: near}, {near: 0.0, far: 0.0}
        waiting = {near: collections.deque(), far: collections.deque()}
        while True:
            due = min((packets[0][0] for packets in waiting.values() if packets), default=None)
            ready = select.select([near, far], [], [], None if due is None else max(0, due - time.monotonic()))[0]
            for end in ready:
                for packet in _packets(end):
                    now = time.monotonic()
                    begins = max(now, is_busy_until[end])
                    if begins - now <= self.queue:
                        is_busy_until[end] = begins + len(packet) / self.rate
                        waiting[end].append((is_busy_until[end] + self.delay, packet))
            now = time.monotonic()
            for end, packets in waiting.items():
                while packets and packets[0][0] <= now:
                    # A device whose queue is full drops it, as a line may.
                    with contextlib.suppress(OSError):
                        os.write(other[end], packets.popleft()[1])


def missing():
    """What stands in the way, or nothing."""
    return None if os.path.exists("/dev/net/tun") else "/dev/net/tun is missing: needs TUN devices (CONFIG_TUN)"


def _packets(end):
    """What has come, as far as it does not keep the other way waiting."""
    for _ in range(PACKETS_AT_ONCE):
        try:
            yield os.read(end, PACKET_MAX)
        except BlockingIOError:
            return


def _device(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def _run(*command):
    subprocess.run(command, check=True)


def connect(port):
    """A connection over the line, of who is behind it."""
    connection = socket.create_connection((HERE, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
