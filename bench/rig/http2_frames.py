"""HTTP/2 as a client speaks it, without any check of what is sent: frames (RFC 9113, 4) and HPACK (RFC 7541), so that bytes which no
library lets through reach a server. Fields go out as literals without Huffman's code and without the table; blocks that come may use both
codes, but not the dynamic table, for which the client leaves no room."""

import struct

DATA, HEADERS, _, RST_STREAM, SETTINGS, _, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK, PADDED = 1, 4, 1, 8
CANCEL = 8
FRAME_MAX = 16384
WINDOW = 65535
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# No dynamic table, no push, and a window for each answer that none of these answers fills.
HELLO = {1: 0, 2: 0, 4: 1 << 24}

STATIC = [tuple(entry.partition(b"=")[::2]) for entry in (
    b":authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200|:status=204|:status=206|"
    b":status=304|:status=400|:status=404|:status=500|accept-charset|accept-encoding=gzip, deflate|accept-language|accept-ranges|accept|"
    b"access-control-allow-origin|age|allow|authorization|cache-control|content-disposition|content-encoding|content-language|"
    b"content-length|content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|"
    b"if-none-match|if-range|if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|"
    b"referer|refresh|retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
).split(b"|")]
# Bits of the code of each byte; the codes follow from them, and the end of a string is ones.
BITS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
)


def huffman_codes():
    """(length, code) -> byte."""
    codes, code = {}, 0
    for length in range(1, 31):
        for byte, bits in enumerate(BITS):
            if bits == length:
                codes[length, code] = byte
                code += 1
        code <<= 1
    return codes


CODES = huffman_codes()


def unhuffman(data):
    out, code, length = bytearray(), 0, 0
    for byte in data:
        for place in range(7, -1, -1):
            code, length = code << 1 | byte >> place & 1, length + 1
            if (length, code) in CODES:
                out.append(CODES[length, code])
                code = length = 0
    return bytes(out)


def integer(value, bits, pattern=0):
    """RFC 7541, 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([pattern | value])
    out, value = bytearray([pattern | most]), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def block(fields):
    """Each (name, value) as it is."""
    return b"".join(b"\0" + integer(len(name), 7) + name + integer(len(value), 7) + value for name, value in fields)


class Block:
    """A block of fields that came, read from its start."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def integer(self, bits):
        most = (1 << bits) - 1
        value, shift = self.data[self.at] & most, 0
        self.at += 1
        while value >= most:
            byte = self.data[self.at]
            self.at += 1
            value, shift = value + ((byte & 127) << shift), shift + 7
            if byte < 128:
                break
        return value

    def string(self):
        is_coded = self.data[self.at] & 128
        length = self.integer(7)
        text = self.data[self.at:self.at + length]
        self.at += length
        return unhuffman(text) if is_coded else text

    def fields(self):
        found = []
        while self.at < len(self.data):
            first = self.data[self.at]
            if first & 0x80:
                found.append(STATIC[self.integer(7) - 1])
            elif first & 0xE0 == 0x20:
                self.integer(5)
            else:
                index = self.integer(6 if first & 0x40 else 4)
                name = STATIC[index - 1][0] if index else self.string()
                found.append((name, self.string()))
        return found


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def hello():
    """What a client begins with."""
    settings = b"".join(struct.pack(">HI", *setting) for setting in HELLO.items())
    return PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 24))


def headers(stream, fields, is_end=False):
    """HEADERS, and as many CONTINUATION frames as the block takes."""
    left, kind, out = block(fields), HEADERS, b""
    flags = END_STREAM if is_end else 0
    while True:
        part, left = left[:FRAME_MAX], left[FRAME_MAX:]
        out += frame(kind, flags | (0 if left else END_HEADERS), stream, part)
        kind, flags = CONTINUATION, 0
        if not left:
            return out


class Frames:
    """Splits what came into (kind, flags, stream, payload)."""

    def __init__(self):
        self.unread = b""

    def take(self, data):
        self.unread += data
        while len(self.unread) >= 9:
            length = int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < 9 + length:
                return
            head, payload, self.unread = self.unread[:9], self.unread[9:9 + length], self.unread[9 + length:]
            yield head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload


def unpadded(flags, payload):
    """The payload of DATA or HEADERS without padding."""
    if flags & PADDED:
        payload = payload[1:len(payload) - payload[0]]
    return payload
