"""Behind a line: python3 far_client.py PORT LARGE SMALL EACH_MS. One connection of HTTP/2 over TLS, with windows that hold nothing back: the target LARGE is
asked for as the least urgent (RFC 9218), and SMALL each so many milliseconds until that has come. Prints, as JSON, the seconds of the one, and
the milliseconds of the others in their order, those that came after it included."""

import json
import select
import ssl
import struct
import sys
import time

import farlink
import http2_frames as http2

STREAM_WINDOW, CONNECTION_WINDOW = 1 << 26, 1 << 29
FIRST_AFTER, GIVES_UP = 1, 60
READ = 1 << 18


def ask(connection, stream, target, priority):
    fields = ((b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"far"), (b":path", target.encode()), (b"priority", priority))
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    connection.sendall(http2.frame(http2.HEADERS, http2.END_STREAM | http2.END_HEADERS, stream, block))


def connect(port):
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(farlink.connect(port), server_hostname="far")


def main(port, large, small, each):
    connection = connect(port)
    settings = struct.pack(">HI", 4, STREAM_WINDOW)
    connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, settings) + http2.frame(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", CONNECTION_WINDOW)))
    began = time.monotonic()
    ask(connection, 1, large, b"u=7")
    asked, took, stream, due, held = {1: began}, {}, 3, began + FIRST_AFTER, b""
    while asked and time.monotonic() < began + GIVES_UP:
        wait = max(0, due - time.monotonic()) if 1 in asked else GIVES_UP
        ready = connection.pending() or select.select([connection], [], [], wait)[0]
        if 1 in asked and time.monotonic() >= due:
            ask(connection, stream, small, b"u=0")
            asked[stream], stream, due = time.monotonic(), stream + 2, due + each
        if not ready:
            continue
        more = connection.recv(READ)
        if not more:
            break
        held += more
        at = 0
        while len(held) - at >= 9 and len(held) - at - 9 >= int.from_bytes(held[at:at + 3], "big"):
            length, kind, flags, number = int.from_bytes(held[at:at + 3], "big"), held[at + 3], held[at + 4], int.from_bytes(held[at + 5:at + 9], "big")
            if kind == http2.SETTINGS and not flags & http2.ACK:
                connection.sendall(http2.frame(http2.SETTINGS, http2.ACK, 0, b""))
            if kind in (http2.DATA, http2.HEADERS) and flags & http2.END_STREAM:
                took[number] = time.monotonic() - asked.pop(number)
            at += 9 + length
        held = held[at:]
    print(json.dumps({"large_s": took.pop(1, None), "small_ms": [1000 * seconds for _, seconds in sorted(took.items())], "lost": len(asked)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]) / 1000)
