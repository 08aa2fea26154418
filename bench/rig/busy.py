"""Peers that never stop: clients that send, upstreams that answer, without end, as fast as they are let. Each is a process on the load's
core, until it is ended. What they say is written by hand, a large piece at a time, so that they cost little beside what they cause."""

import multiprocessing
import os
import socket
import time

PIECE = 256 << 10
PAUSE = 0.01        # seconds before another connection
GIVES_UP = 10       # seconds until who asks has waited for long enough


def _times(text):
    """About PIECE bytes of it."""
    return text * (PIECE // len(text))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n"
# What an upstream says: once, and then again and again.
ANSWERS = {
    "body": (b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\n", _times(b"x" * 1024)),
    "chunks": (CHUNKED, _times(b"1\r\nx\r\n")),
    "extensions": (CHUNKED, _times(b"1;%s\r\nx\r\n" % (b"e" * 4000))),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", _times(b"X-Trailer: some words\r\n")),
    "bad trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", _times(b"no trailer at all\r\n")),
    "interim": (b"", _times(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")),
    "head": (b"HTTP/1.1 200 OK\r\n", _times(b"X-Header: some words\r\n")),
    "tunnel": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", _times(b"x" * 1024)),
}


def _record(kind, content):
    return bytes((1, kind, 0, 1, len(content) >> 8, len(content) & 255, 0, 0)) + content


RECORDS = {
    "records": (_record(6, b"Content-Type: text/plain\r\n\r\n"), _times(_record(6, b"x"))),
    "errors": (_record(6, b"Content-Type: text/plain\r\n\r\n"), _times(_record(7, b"a complaint"))),
}
# What a client says: once, and then again and again.
UPLOAD = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n"
CHUNKS = b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUESTS = {
    "refused": (UPLOAD % b"/refused", _times(b"x" * 1024)),
    "discarded": (UPLOAD % b"/small", _times(b"x" * 1024)),
    "discarded chunks": (CHUNKS % b"/small", _times(b"1\r\nx\r\n")),
    "stored": (UPLOAD % b"/stored", _times(b"x" * 1024)),
    "passed on": (UPLOAD % b"/passing/sink", _times(b"x" * 1024)),
    "pipelined": (b"", _times(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")),
    "line ends": (b"", _times(b"\r\n")),
    "file": (b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", b""),
}


def ask(core, address, path, seconds, pause):
    """What a client waits, in ms, that asks for this on a kept connection, `pause` seconds after each answer; one that had to connect again
    waited for that, too. Of higher priority than its like on that core, where that is allowed: it is to measure the server."""
    result, end = multiprocessing.SimpleQueue(), time.monotonic() + seconds
    process = multiprocessing.Process(target=_ask, args=(core, address, path, end, pause, result))
    process.start()
    waits = result.get()
    process.join()
    return sorted(waits)


def _ask(core, address, path, end, pause, result):
    _pin(core)
    go_first()
    waits, connection, text = [], None, request(path)
    while time.monotonic() < end:
        begun = time.perf_counter()
        while True:
            try:
                connection = connection or socket.create_connection(address, GIVES_UP)
                connection.sendall(text)
                if connection.recv(65536):
                    break
            except OSError:
                pass
            connection = None
            if time.perf_counter() - begun > GIVES_UP:
                break
        waits.append(1000 * (time.perf_counter() - begun))
        time.sleep(pause)
    result.put(waits)


def go_first():
    """At once, when there is something to do: being nicer would not do, since a process of the ordinary kind that runs is left alone until the
    kernel's next tick, 4 ms later, whoever else is woken. Who asks hardly runs, and takes nothing from anybody."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pass


def _pin(core):
    os.sched_setaffinity(0, {core})


def _listener():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def _talk(connection, once, again, reads):
    """Until the other side has had enough; what it says is read if that is asked for."""
    reader = os.fork() if reads else None
    if reader == 0:
        _read(connection)
        os._exit(0)
    try:
        connection.sendall(once)
        while again:
            connection.sendall(again)
    except OSError:
        pass
    _read(connection)
    connection.close()
    if reader:
        os.kill(reader, 9)
        os.waitpid(reader, 0)


def _client(core, address, what):
    _pin(core)
    once, again = REQUESTS[what] if what in REQUESTS else (what, b"")
    while True:
        try:
            connection = socket.create_connection(address)
        except OSError:
            time.sleep(PAUSE)
            continue
        _talk(connection, once, again, what == "pipelined")
        time.sleep(PAUSE)


def _read(connection):
    place = bytearray(PIECE)
    try:
        while connection.recv_into(place):
            pass
    except OSError:
        pass


def _upstream(core, listener, answers):
    _pin(core)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            _answer(connection, answers)
            os._exit(0)
        connection.close()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _answer(connection, answers):
    asked = connection.recv(65536)
    for name, (once, again) in answers.items():
        if b"/busy-" + name.replace(" ", "-").encode() in asked:
            return _talk(connection, once, again, name == "tunnel")
    _read(connection)


class Busy:
    """Processes inside of a `with` block: an HTTP upstream, a FastCGI one, and the clients that are asked for."""

    def __init__(self, core):
        self.core, self.processes = core, []
        self.http, self.fastcgi = _listener(), _listener()
        self.http_port, self.fastcgi_port = (listener.getsockname()[1] for listener in (self.http, self.fastcgi))

    def __enter__(self):
        self._run(_upstream, self.core, self.http, ANSWERS)
        self._run(_upstream, self.core, self.fastcgi, RECORDS)
        return self

    def _run(self, target, *args):
        process = multiprocessing.Process(target=_alone, args=(target, *args))
        process.start()
        self.processes.append(process)
        return process

    def clients(self, address, what, count):
        """So many clients of one kind, until `end`."""
        return [self._run(_client, self.core, address, what) for _ in range(count)]

    def end(self, processes):
        for process in processes:
            _kill_group(process)
            self.processes.remove(process)

    def __exit__(self, *_):
        self.end(list(self.processes))


def _alone(target, *args):
    os.setpgrp()
    target(*args)


def _kill_group(process):
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        process.kill()
    process.join()


def request(path, more=b""):
    """What a client says that only reads."""
    return b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (path.encode(), more)
