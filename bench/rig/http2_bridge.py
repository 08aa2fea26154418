"""Raw HTTP/1 requests given on as HTTP/2 in clear (by prior knowledge), so that a suite of such requests meets a server's HTTP/2 side.

Nothing is validated: a request becomes the frames that say the same bytes. Names are put in lower case, and spaces and tabs around a value,
which are HTTP/1's syntax, are left out; all else stays, line ends and NULs within a name or value included (a folded line keeps its CR LF).
- `Host` becomes `:authority`. Of several, the first does, and all stay as fields `host`: `:authority` and one `host` of the same value are
  no fault in HTTP/2 (RFC 9113, 8.3.1), two Host lines in HTTP/1 are. An absolute target and that of CONNECT are `:authority`; Host then stays.
- A body by one Content-Length of digits becomes DATA; if the client's side ends before, END_STREAM comes early. The chunked coding alone, in
  HTTP/1.1 and without Content-Length, is decoded, trailers are a block of their own; cut off, the stream is reset. Any other framing
  stays as its fields (`transfer-encoding`, `content-length`), with all bytes that there are as DATA: it is the server's to refuse them.
- `Connection: close` and `keep-alive` are about the connection to the bridge, and are obeyed; other options stay as the field.
What HTTP/2 has no way to say is answered with 400 by the bridge, and noted in `Bridge.refused`; `cannot_say` tells it ahead.

The answer is given back as HTTP/1. RST_STREAM and GOAWAY are a refusal: 400, and the connection is closed; so it is behind any other error.

    python3 bench/rig/http2_bridge.py PORT SERVER_PORT"""

import re
import select
import socket
import struct
import sys
import threading
import time

if __package__:
    from . import http2_frames as h2
else:
    import http2_frames as h2

HEAD_MAX = 1 << 20          # bytes of a head, or of the lines of a chunk
AHEAD_MAX = 1 << 20         # bytes that are read ahead of the server
LENGTH_MAX = (1 << 63) - 1
QUIET = 0.05                # seconds without a byte behind which a body without framing is taken for whole
HALF = 0.5                  # seconds that half a head may stand still
PATIENCE = 2                # seconds for an answer when the client's side has ended
IDLE = 30                   # seconds for anything else
LINE = re.compile(rb"([^ ]*) (.*) HTTP/1\.([01])", re.S)
ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.S)
REASONS = {200: b"OK", 400: b"Bad Request"}


class NotExpressible(Exception):
    """HTTP/2 has no way to say it."""


class Cut(Exception):
    """The client's side ended within a chunked body."""


class NoBody:
    is_end, trailers = True, []

    def read(self, _data, _is_eof):
        return b"", 0


class Length:
    """`left` bytes."""

    trailers = []

    def __init__(self, left):
        self.left, self.is_end = left, left == 0

    def read(self, data, is_eof):
        """What belongs to the body, and how many bytes it took."""
        part = data[:self.left]
        self.left -= len(part)
        self.is_end = self.left == 0 or is_eof
        return part, len(part)


class Rest:
    """All that comes, until nothing does."""

    is_end, trailers = False, []

    def read(self, data, is_eof):
        self.is_end = is_eof
        return data, len(data)


class Chunks:
    """The chunked coding (RFC 9112, 7.1). Its extensions have no place in HTTP/2."""

    def __init__(self):
        self.step, self.left, self.is_end, self.trailers = self.size, 0, False, []

    def read(self, data, is_eof):
        out, at = b"", 0
        while not self.is_end:
            part, used = self.step(data[at:])
            if not used:
                break
            out, at = out + part, at + used
        if is_eof and not self.is_end:
            raise Cut()
        return out, at

    def size(self, data):
        end = data.find(b"\r\n")
        if end < 0:
            return half_lines(data)
        line = data[:end]
        if not re.fullmatch(rb"[0-9A-Fa-f]+", line):
            raise NotExpressible("a chunk extension" if b";" in line else "a chunk's size that is none")
        self.left = int(line, 16)
        if self.left > LENGTH_MAX:
            raise NotExpressible("a chunk's size above all lengths")
        self.step = self.data if self.left else self.end
        return b"", end + 2

    def data(self, data):
        part = data[:self.left]
        self.left -= len(part)
        if not self.left:
            self.step = self.behind
        return part, len(part)

    def behind(self, data):
        if data[:2] == b"\r\n":
            self.step = self.size
            return b"", 2
        if not b"\r\n".startswith(data[:2]):
            raise NotExpressible("a chunk without its line end")
        return b"", 0

    def end(self, data):
        if data[:2] == b"\r\n":
            self.is_end = True
            return b"", 2
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return half_lines(data)
        self.trailers, self.is_end = fields_of(data[:end]), True
        return b"", end + 4


def half_lines(data):
    """Nothing yet, if these lines of the chunked coding may go on."""
    if len(data) > HEAD_MAX:
        raise NotExpressible("lines of chunks without an end")
    if b"\n" in data.replace(b"\r\n", b""):
        raise NotExpressible("a line of chunks that ends with LF alone")
    return b"", 0


class Request:
    """What becomes HEADERS, and how its body is read."""

    def __init__(self, head):
        line, _, lines = head.partition(b"\r\n")
        match = LINE.fullmatch(line)
        if not match:
            raise NotExpressible("no request line of HTTP/1.0 or 1.1")
        method, target, minor = match.groups()
        self.is_head = method == b"HEAD"
        self.fields = fields_of(lines)
        self.take_connection(minor)
        self.body = self.take_body(minor)
        self.fields = self.control(method, target, minor) + self.fields

    def values(self, name):
        return [value for other, value in self.fields if other == name]

    def drop(self, name):
        self.fields = [field for field in self.fields if field[0] != name]

    def take_connection(self, minor):
        options = [value.lower() for value in self.values(b"connection")]
        if options in ([b"close"], [b"keep-alive"]):
            self.drop(b"connection")
        self.closes = options == [b"close"] or (minor == b"0" and options != [b"keep-alive"])

    def take_body(self, minor):
        codings, lengths = self.values(b"transfer-encoding"), self.values(b"content-length")
        if [coding.lower() for coding in codings] == [b"chunked"] and not lengths and minor == b"1":
            self.drop(b"transfer-encoding")
            return Chunks()
        if len(lengths) == 1 and re.fullmatch(rb"[0-9]+", lengths[0]):
            return Length(int(lengths[0]))
        return Rest() if codings or lengths else NoBody()

    def control(self, method, target, minor):
        """The pseudo-headers (RFC 9113, 8.3.1)."""
        if method == b"CONNECT":
            return [(b":method", method), (b":authority", target)]
        absolute = ABSOLUTE.fullmatch(target)
        if absolute:
            scheme, authority, path = absolute.groups()
            if not path.startswith(b"/"):
                path = b"*" if method == b"OPTIONS" and not path else b"/" + path
            return [(b":method", method), (b":scheme", scheme), (b":authority", authority), (b":path", path)]
        hosts = self.values(b"host")
        if not hosts and minor == b"0":
            raise NotExpressible("no host, as HTTP/1.0 may")
        if len(hosts) == 1:
            self.drop(b"host")
        return [(b":method", method), (b":scheme", b"http"), *((b":authority", host) for host in hosts[:1]), (b":path", target)]


def fields_of(lines):
    """The names and values of lines; folded ones are one."""
    found = []
    for line in re.split(rb"\r\n(?![ \t])", lines) if lines else []:
        name, colon, value = line.partition(b":")
        if not colon:
            raise NotExpressible("a line without a colon")
        found.append((name.lower(), value.strip(b" \t")))
    return found


def request_of(data):
    """The request whose head the bytes begin with, and the length of that; None: the head is not whole."""
    end = data.find(b"\r\n\r\n")
    return None if end < 0 else (Request(data[:end]), end + 4)


def cannot_say(data, is_eof=False):
    """Why HTTP/2 cannot say the first request of these bytes, all that a client sends; None: it can."""
    try:
        found = request_of(data)
        if not found:
            raise NotExpressible("no whole head")
        found[0].body.read(data[found[1]:], is_eof)
    except Cut:
        pass
    except NotExpressible as why:
        return str(why)
    return None


class Passage:
    """A client's connection, and one of its own to the server."""

    def __init__(self, bridge, client):
        self.bridge, self.client, self.server = bridge, client, None
        self.ahead, self.is_eof, self.since = b"", False, time.monotonic()
        self.stream, self.request, self.is_over = -1, None, False
        self.frames, self.initial, self.room = h2.Frames(), h2.WINDOW, h2.WINDOW

    def run(self):
        try:
            while not self.is_over:
                if self.request or self.begin():
                    self.send_body()
                if not self.is_over:
                    self.wait()
        except NotExpressible as why:
            self.bridge.refused.append((str(why), self.stream < 0))
            self.give_up()
        except OSError:
            pass
        finally:
            self.close()

    def begin(self):
        """Sends the head of the next request, when it has come."""
        found = request_of(self.ahead)
        if not found:
            still = time.monotonic() - self.since > HALF
            if self.ahead and (self.is_eof or still or len(self.ahead) > HEAD_MAX):
                raise NotExpressible("no whole head")
            self.is_over = self.is_eof
            return False
        self.request, used = found
        self.ahead = self.ahead[used:]
        if not self.server:
            self.server = socket.create_connection(("127.0.0.1", self.bridge.server), PATIENCE)
            self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.server.sendall(h2.hello())
        self.stream += 2
        self.window, self.unsent, self.is_sent = self.initial, b"", self.request.body.is_end
        self.status, self.lines, self.answer, self.block = 0, [], b"", b""
        self.server.sendall(h2.headers(self.stream, self.request.fields, self.is_sent))
        return True

    def send_body(self):
        """Sends what has come of the body, as far as there is room."""
        if self.is_sent:
            return
        body = self.request.body
        try:
            part, used = body.read(self.ahead, self.is_eof)
        except Cut:
            self.reset()
            self.is_over = True
            return
        self.ahead, self.unsent = self.ahead[used:], self.unsent + part
        while self.unsent and min(self.window, self.room) > 0:
            part = self.unsent[:min(self.window, self.room, h2.FRAME_MAX)]
            self.unsent = self.unsent[len(part):]
            self.window, self.room = self.window - len(part), self.room - len(part)
            self.server.sendall(h2.frame(h2.DATA, 0, self.stream, part))
        if body.is_end and not self.unsent:
            self.is_sent = True
            end = h2.headers(self.stream, body.trailers, True) if body.trailers else h2.frame(h2.DATA, h2.END_STREAM, self.stream)
            self.server.sendall(end)

    def patience(self):
        if self.is_eof:
            return PATIENCE
        if self.request and isinstance(self.request.body, Rest) and not self.is_sent:
            return QUIET
        return HALF if self.ahead and not self.request else IDLE

    def wait(self):
        """Takes what comes from either side."""
        sides = [self.server] if self.server else []
        if not self.is_eof and len(self.ahead) < AHEAD_MAX + HEAD_MAX:
            sides.append(self.client)
        ready = select.select(sides, [], [], self.patience())[0]
        if self.client in ready:
            data = self.client.recv(65536)
            self.is_eof, self.since = not data, time.monotonic()
            self.ahead += data
        if self.server in ready:
            self.receive()
        if not ready:
            self.nothing_came()

    def nothing_came(self):
        if self.request and isinstance(self.request.body, Rest) and not self.is_sent:
            self.request.body.is_end = self.is_sent = not self.unsent
            if self.is_sent:
                self.server.sendall(h2.frame(h2.DATA, h2.END_STREAM, self.stream))
        elif self.is_eof or not self.ahead or self.request:
            self.is_over = True

    def receive(self):
        data = self.server.recv(65536)
        if not data:
            self.is_over = True
        for kind, flags, stream, payload in self.frames.take(data):
            self.take(kind, flags, stream, payload)
            if self.is_over:
                return

    def take(self, kind, flags, stream, payload):
        is_ours = stream == self.stream and self.request
        if kind == h2.SETTINGS and not flags & h2.ACK:
            self.take_settings(payload)
        elif kind == h2.PING and not flags & h2.ACK:
            self.server.sendall(h2.frame(h2.PING, h2.ACK, 0, payload))
        elif kind == h2.GOAWAY:
            last, code = struct.unpack(">II", payload[:8])
            if self.request and (code or last < self.stream):
                self.give_up()
            elif self.request:
                self.request.closes = True
            else:
                self.is_over = True
        elif kind == h2.WINDOW_UPDATE and stream == 0:
            self.room += int.from_bytes(payload, "big")
        elif is_ours and kind == h2.WINDOW_UPDATE:
            self.window += int.from_bytes(payload, "big")
        elif is_ours and kind == h2.RST_STREAM:
            self.give_up()
        elif is_ours and kind in (h2.HEADERS, h2.CONTINUATION, h2.DATA):
            self.take_answer(kind, flags, payload)

    def take_settings(self, payload):
        for at in range(0, len(payload), 6):
            setting, value = struct.unpack_from(">HI", payload, at)
            if setting == 4:
                if self.request:
                    self.window += value - self.initial
                self.initial = value
        self.server.sendall(h2.frame(h2.SETTINGS, h2.ACK, 0))

    def take_answer(self, kind, flags, payload):
        if kind == h2.HEADERS:
            self.ends = bool(flags & h2.END_STREAM)
        if kind == h2.DATA:
            self.answer += h2.unpadded(flags, payload)
            self.ends = bool(flags & h2.END_STREAM)
        else:
            self.block += h2.unpadded(flags, payload) if kind == h2.HEADERS else payload
            if not flags & h2.END_HEADERS:
                return
            fields, self.block = h2.Block(self.block).fields(), b""
            if not self.status:
                self.take_head(fields)
        if self.ends and self.status:
            self.finish()

    def take_head(self, fields):
        status = int(dict(fields)[b":status"])
        if status < 200:
            self.client.sendall(b"HTTP/1.1 %d \r\n\r\n" % status)
        else:
            self.status, self.lines = status, [field for field in fields if not field[0].startswith(b":")]

    def finish(self):
        """Gives the whole answer back."""
        lengths = [value for name, value in self.lines if name == b"content-length"]
        length = lengths[0] if self.request.is_head and lengths else b"%d" % len(self.answer)
        kept = [field for field in self.lines if field[0] not in (b"connection", b"content-length", b"transfer-encoding")]
        self.is_over = self.request.closes or self.status >= 400 or not self.is_sent
        closing = [(b"connection", b"close")] if self.is_over else []
        if not self.is_sent:
            self.reset()
        self.client.sendall(response(self.status, [*kept, (b"content-length", length), *closing], self.answer))
        self.request = None

    def reset(self):
        self.server.sendall(h2.frame(h2.RST_STREAM, 0, self.stream, struct.pack(">I", h2.CANCEL)))

    def give_up(self):
        """A refusal."""
        self.is_over, self.request = True, None
        try:
            self.client.sendall(response(400, [(b"content-length", b"0"), (b"connection", b"close")]))
        except OSError:
            pass

    def close(self):
        end(self.client)
        if self.server:
            end(self.server)


def end(peer):
    """Closes a connection in such an order that what the peer has not read yet is not lost."""
    try:
        peer.shutdown(socket.SHUT_WR)
        peer.settimeout(HALF)
        until = time.monotonic() + PATIENCE
        while peer.recv(65536) and time.monotonic() < until:
            pass
    except OSError:
        pass
    peer.close()


def response(status, fields, body=b""):
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, REASONS.get(status, b""), lines, body)


class Bridge:
    """Listens at 127.0.0.1 inside the `with` block, for the server at the port `server` there."""

    def __init__(self, server, port=0):
        self.server, self.refused = server, []      # refused: (why, whether it was the first request of its connection)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen(64)
        self.port = self.socket.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        while True:
            try:
                client = self.socket.accept()[0]
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=Passage(self, client).run, daemon=True).start()


if __name__ == "__main__":
    Bridge(int(sys.argv[2]), int(sys.argv[1])).accept()
