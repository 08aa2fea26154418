"""Clients that cost a server more than themselves: many that send a byte a second, and some whose bodies are refused before they have come.
Each kind is a process on the load's core."""

import multiprocessing
import os
import select
import socket
import time

STEPS = 200         # times a second that some of the slow ones send
GIVES_UP = 20       # seconds that an answer is waited for


class Drips:
    """`count` connections that have said `begun`, and then say a byte a second each. Inside the `with` block all of them stand; behind it
    `closed` is of how many the server has said something, if only that it closes them."""

    def __init__(self, core, address, count, begun):
        self.ends, self.told = multiprocessing.Event(), multiprocessing.SimpleQueue()
        self.process = multiprocessing.Process(target=_drip, args=(core, address, count, begun, self.ends, self.told))
        self.closed = None

    def __enter__(self):
        self.process.start()
        if self.told.get() != "ready":
            raise RuntimeError("they could not connect")
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.closed = self.told.get()
        self.process.join()


def _drip(core, address, count, begun, ends, told):
    os.sched_setaffinity(0, {core})
    try:
        connections = [_begin(address, begun) for _ in range(count)]
    except OSError:
        return told.put("failed")
    told.put("ready")
    step, next_at = 0, time.monotonic()
    while not ends.is_set():
        for connection in connections[step % STEPS::STEPS]:
            try:
                connection.send(b"x")
            except OSError:
                pass
        step, next_at = step + 1, next_at + 1 / STEPS
        time.sleep(max(0, next_at - time.monotonic()))
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    told.put(len(poll.poll(0)))


def _begin(address, begun):
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(begun)
    connection.setblocking(False)
    return connection


def refused(core, address, text, seconds, clients):
    """Says `text`, a request with a body that is refused, again and again over so many connections, which are kept where the server keeps them:
    how often it was answered, with which statuses, and how many connections that took."""
    told, end = multiprocessing.SimpleQueue(), time.monotonic() + seconds
    processes = [multiprocessing.Process(target=_refused, args=(core, address, text, end, told)) for _ in range(clients)]
    for process in processes:
        process.start()
    found = [told.get() for _ in processes]
    for process in processes:
        process.join()
    statuses = {}
    for one, _ in found:
        for status, count in one.items():
            statuses[status] = statuses.get(status, 0) + count
    return {"statuses": statuses, "connections": sum(count for _, count in found)}


def _refused(core, address, text, end, told):
    os.sched_setaffinity(0, {core})
    statuses, connections, connection = {}, 0, None
    while time.monotonic() < end:
        if connection is None:
            connection, connections = socket.create_connection(address, GIVES_UP), connections + 1
        status, is_kept = _ask(connection, text)
        statuses[status] = statuses.get(status, 0) + 1
        if not is_kept:
            connection.close()
            connection = None
    told.put((statuses, connections))


def _ask(connection, text):
    """The status of an answer, and whether the connection goes on. Who is told before all is said says the rest, as most clients do, and
    reads the answer then."""
    try:
        connection.sendall(text)
    except OSError:
        pass            # it is closed behind an answer that may be there
    said = b""
    try:
        while b"\r\n\r\n" not in said:
            piece = connection.recv(65536)
            if not piece:
                return "none", False
            said += piece
        head, _, body = said.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
        left = length - len(body)
        while left > 0:
            piece = connection.recv(left)
            if not piece:
                return "none", False
            left -= len(piece)
    except OSError:
        return "none", False
    return head.split(b" ", 2)[1].decode(), b"connection: close" not in lines
