"""python3 -m unittest discover -s bench -p '*_test.py': what the bridge makes of HTTP/1, and of a server's frames."""

import socket
import struct
import threading
import unittest

from rig import http2_bridge as bridge
from rig import http2_frames as h2

OK = h2.block([(b":status", b"200"), (b"x-origin", b"1")])


def fields(text):
    return bridge.request_of(text)[0].fields


def body(coded, is_eof=False):
    chunks = bridge.Chunks()
    return chunks.read(coded, is_eof), chunks.is_end, chunks.trailers


class Translation(unittest.TestCase):
    def test_nothing_is_made_better(self):
        text = (b"G\0T /a b\r HTTP/1.1\r\nHost: h\nx\r\nX-A: \t1 \r\nx-a:2\r\nX\xc3\x89 : a\rb\0c\r\nfold: a\r\n b\r\n: none\r\nConnection: x-a\r\n\r\nrest")
        self.assertEqual(fields(text), [
            (b":method", b"G\0T"), (b":scheme", b"http"), (b":authority", b"h\nx"), (b":path", b"/a b\r"), (b"x-a", b"1"), (b"x-a", b"2"),
            (b"x\xc3\x89 ", b"a\rb\0c"), (b"fold", b"a\r\n b"), (b"", b"none"), (b"connection", b"x-a")])
        self.assertEqual(bridge.request_of(text)[1], len(text) - 4)

    def test_targets_and_hosts(self):
        def control(target, hosts=b"Host: h\r\n", method=b"GET"):
            return [value for _, value in fields(method + b" " + target + b" HTTP/1.1\r\n" + hosts + b"\r\n")]

        self.assertEqual(control(b"/"), [b"GET", b"http", b"h", b"/"])
        self.assertEqual(control(b"*"), [b"GET", b"http", b"h", b"*"])
        self.assertEqual(control(b"/", b"Host: h\r\nhost: h\r\n"), [b"GET", b"http", b"h", b"/", b"h", b"h"])
        self.assertEqual(control(b"/", b""), [b"GET", b"http", b"/"])
        self.assertEqual(control(b"ftp://u@x:1/a?b#c"), [b"GET", b"ftp", b"u@x:1", b"/a?b#c", b"h"])
        self.assertEqual(control(b"http://x?b"), [b"GET", b"http", b"x", b"/?b", b"h"])
        self.assertEqual(control(b"http:///a", b""), [b"GET", b"http", b"", b"/a"])
        self.assertEqual(control(b"/a", method=b"CONNECT"), [b"CONNECT", b"/a", b"h"])

    def test_framing(self):
        def framing(lines, version=b"HTTP/1.1"):
            request = bridge.request_of(b"POST / " + version + b"\r\nHost: h\r\n" + lines + b"\r\n")[0]
            return type(request.body), [name for name, _ in request.fields[4:]]

        self.assertEqual(framing(b""), (bridge.NoBody, []))
        self.assertEqual(framing(b"Content-Length: 005\r\n"), (bridge.Length, [b"content-length"]))
        self.assertEqual(framing(b"Transfer-Encoding: CHUNKED\r\n"), (bridge.Chunks, []))
        self.assertEqual(framing(b"Transfer-Encoding: chunked\r\nConnection: close\r\n", b"HTTP/1.0"), (bridge.Rest, [b"transfer-encoding"]))
        self.assertEqual(framing(b"Transfer-Encoding: chunked, chunked\r\n"), (bridge.Rest, [b"transfer-encoding"]))
        self.assertEqual(framing(b"Content-Length: 5, 5\r\n"), (bridge.Rest, [b"content-length"]))
        self.assertEqual(framing(b"Content-Length: 5\r\nContent-Length: 5\r\n"), (bridge.Rest, [b"content-length"] * 2))
        self.assertEqual(framing(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), (bridge.Length, [b"transfer-encoding", b"content-length"]))

    def test_persistence(self):
        def closes(lines, version=b"HTTP/1.1"):
            request = bridge.request_of(b"GET / " + version + b"\r\nHost: h\r\n" + lines + b"\r\n")[0]
            return request.closes, (b"connection" in dict(request.fields))

        self.assertEqual(closes(b""), (False, False))
        self.assertEqual(closes(b"Connection: Close\r\n"), (True, False))
        self.assertEqual(closes(b"Connection: keep-alive\r\n", b"HTTP/1.0"), (False, False))
        self.assertEqual(closes(b"", b"HTTP/1.0"), (True, False))
        self.assertEqual(closes(b"Connection: close, x\r\n"), (False, True))

    def test_chunks(self):
        self.assertEqual(body(b"3\r\nabc\r\n002\r\nde\r\n0\r\n\r\nnext"), ((b"abcde", 22), True, []))
        self.assertEqual(body(b"1\r\na\r\n0\r\nX-T: 1\r\nHost: x\r\n\r\n"), ((b"a", 28), True, [(b"x-t", b"1"), (b"host", b"x")]))
        chunks, out = bridge.Chunks(), b""
        left = b""
        for byte in b"5\r\nhello\r\n0\r\n\r\n":
            left += bytes([byte])
            part, used = chunks.read(left, False)
            out, left = out + part, left[used:]
        self.assertEqual((out, left, chunks.is_end), (b"hello", b"", True))
        self.assertRaises(bridge.Cut, body, b"5\r\nhello\r\n", True)

    def test_what_cannot_be_said(self):
        def why(behind, line=b"POST / HTTP/1.1", head=b"Host: h\r\nTransfer-Encoding: chunked\r\n"):
            return bridge.cannot_say(line + b"\r\n" + head + b"\r\n" + behind)

        for wrong in (b"+5\r\n", b"0x5\r\n", b"\r\n", b"5 \r\n", b"5\rhello\r\n", b"5;a\r\n", b"10000000000000005\r\n", b"5\r\nhelloX", b"5\r\nhello\n",
                      b"5\n", b"0\r\n\n", b"0\r\nX: 1\n\r\n", b"0\r\nword\r\n\r\n"):
            self.assertIsNotNone(why(wrong), wrong)
        for line in (b"", b"GET /", b"GET / HTTP/2.0", b"GET / HTTP/1.1 ", b"GET\t/\tHTTP/1.1", b"GET / HTTP/1.1\nX: y"):
            self.assertIsNotNone(why(b"0\r\n\r\n", line), line)
        self.assertIsNotNone(why(b"", head=b"word\r\n"))
        self.assertIsNotNone(why(b"", b"GET / HTTP/1.0", b""))
        self.assertIsNotNone(bridge.cannot_say(b"GET / HTTP/1.1\r\nHost: h\r\n"))
        for said in (b"0\r\n\r\n", b"5\r\nhel", b"5\r\nhello\r\n0\r\n\r\n\0"):
            self.assertIsNone(why(said), said)


class Codes(unittest.TestCase):
    def test_fields(self):
        # RFC 7541, C.4.1 and C.6.1.
        self.assertEqual(h2.unhuffman(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")), b"www.example.com")
        text = bytes.fromhex("488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3")
        self.assertEqual(h2.Block(text).fields(), [(b":status", b"302"), (b"cache-control", b"private"), (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
                                                   (b"location", b"https://www.example.com")])
        sent = [(b"", b"\0"), (b"A\r\n", b"x" * 300)]
        self.assertEqual(h2.Block(h2.block(sent)).fields(), sent)

    def test_a_large_block_is_continued(self):
        found = list(h2.Frames().take(h2.headers(1, [(b"a", b"x" * 40000)], True)))
        self.assertEqual([(kind, flags) for kind, flags, _, _ in found], [(h2.HEADERS, h2.END_STREAM), (h2.CONTINUATION, 0), (h2.CONTINUATION, h2.END_HEADERS)])


class Passing(unittest.TestCase):
    """Against a server of one connection that answers each stream with what `answer` makes of its number, once the stream has ended."""

    def passed(self, sent, answer, is_ended=True):
        listener = socket.create_server(("127.0.0.1", 0))
        seen = []

        def serve():
            peer = listener.accept()[0]
            frames, opened = h2.Frames(), peer.recv(24)
            self.assertEqual(opened, h2.PREFACE)
            peer.sendall(h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 4)))
            while True:
                data = peer.recv(65536)
                for kind, flags, stream, payload in frames.take(data):
                    if stream:
                        seen.append((kind, flags, stream, h2.Block(payload).fields() if kind == h2.HEADERS else payload))
                    if stream and kind == h2.DATA and payload:
                        peer.sendall(h2.frame(h2.WINDOW_UPDATE, 0, stream, struct.pack(">I", len(payload))))
                    if stream and flags & h2.END_STREAM and kind in (h2.HEADERS, h2.DATA):
                        peer.sendall(answer(stream))
                if not data:
                    peer.close()
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        with bridge.Bridge(listener.getsockname()[1]) as passing:
            with socket.create_connection(("127.0.0.1", passing.port)) as client:
                client.sendall(sent)
                if is_ended:
                    client.shutdown(socket.SHUT_WR)
                said = b"".join(iter(lambda: client.recv(65536), b""))
        thread.join(10)
        listener.close()
        return said, seen, passing.refused

    @staticmethod
    def whole(stream):
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, OK) + h2.frame(h2.DATA, h2.END_STREAM, stream, b"ok")

    def test_requests_one_after_the_other(self):
        sent = (b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nsome datsGET /b HTTP/1.1\r\nHost: h\r\n\r\n"
                b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\nT: 1\r\n\r\nGET /no HTTP/1.1\r\nHost: h\r\n\r\n")
        said, seen, refused = self.passed(sent, self.whole)
        self.assertEqual(said.count(b"HTTP/1.1 200 OK\r\nx-origin: 1\r\ncontent-length: 2\r\n"), 3)
        self.assertTrue(said.endswith(b"connection: close\r\n\r\nok"), said)
        self.assertEqual([dict(value)[b":path"] for kind, _, _, value in seen if kind == h2.HEADERS and b":path" in dict(value)], [b"/a", b"/b", b"/c"])
        self.assertEqual(b"".join(value for kind, _, stream, value in seen if kind == h2.DATA and stream == 1), b"some dats")
        self.assertEqual(seen[-1], (h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, 5, [(b"t", b"1")]))
        self.assertEqual(refused, [])

    def test_refusals(self):
        request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
        for frame in (h2.frame(h2.RST_STREAM, 0, 1, b"\0\0\0\1"), h2.frame(h2.GOAWAY, 0, 0, struct.pack(">II", 0, 0))):
            said, seen, refused = self.passed(request * 2, lambda stream, frame=frame: frame)
            self.assertEqual((said, len(seen), refused), (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", 1, []))

    def test_the_end_of_the_client_is_that_of_the_stream(self):
        short = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nsome"
        self.assertEqual(self.passed(short, self.whole)[1][-1], (h2.DATA, h2.END_STREAM, 1, b""))
        cut = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"
        said, seen, _ = self.passed(cut, self.whole)
        self.assertEqual((said, seen[-1]), (b"", (h2.RST_STREAM, 0, 1, struct.pack(">I", h2.CANCEL))))

    def test_without_framing_all_that_came_is_the_body(self):
        text = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n"
        said, seen, _ = self.passed(text, self.whole, is_ended=False)
        self.assertEqual(b"".join(value for kind, _, _, value in seen if kind == h2.DATA), b"0\r\n\r\n")
        self.assertEqual(seen[-1][:2], (h2.DATA, h2.END_STREAM))
        self.assertIn((b"transfer-encoding", b"gzip"), seen[0][3])
        self.assertIn(b"200 OK", said)

    def test_what_cannot_be_said_is_noted(self):
        sent = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\x01garbage\r\n\r\n"
        said, _, refused = self.passed(sent, self.whole)
        self.assertEqual(refused, [("no request line of HTTP/1.0 or 1.1", False)])
        self.assertIn(b"HTTP/1.1 400 Bad Request", said)


if __name__ == "__main__":
    unittest.main()
