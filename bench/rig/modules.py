"""Requests to the modules that touch a file or burn processor time, one kind after the other in a thread for each, beside the load of the
stall and the syscall test. What a server has not built is left out, and said."""

import base64
import http.client
import itertools
import os
import struct
import subprocess
import threading
import time

from . import options

MIB = 1 << 20
PATIENCE = 90           # seconds for an answer: the pool may be held meanwhile
# "secret", at a cost of about 50 ms, and as Apache writes it.
BCRYPT = "$2y$10$abcdefghijklmnopqrstuuTBKDt6ykJQ.EVZAF8yZMUgohJN3eXdq"
APR1 = "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"


class Module:
    """`lines`: of the server block; `make(site)`: its files; `requests(turn)`: (method, path, headers, body, status) of one turn."""

    def __init__(self, name, lines, make, requests):
        self.name, self.lines, self.make, self.requests = name, lines, make, requests


def _writable(site, name):
    path = os.path.join(site.html, name)
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o777)
    return path


BODY = bytes(range(256)) * (10 * MIB // 256)


def _dav(turn):
    """A file of 10 MiB, and a tree: put, copied, moved, removed."""
    at = "/dav/%d" % turn
    yield "PUT", at, {}, BODY, 201
    yield "COPY", at, {"Destination": at + ".copy"}, None, 204
    yield "MOVE", at + ".copy", {"Destination": at + ".moved"}, None, 204
    yield "MKCOL", at + ".tree/", {}, None, 201
    for i in range(20):
        yield "PUT", "%s.tree/%d" % (at, i), {}, b"x" * 1000, 201
    yield "COPY", at + ".tree/", {"Destination": at + ".tree2/"}, None, 201
    for path in (at, at + ".moved", at + ".tree/", at + ".tree2/"):
        yield "DELETE", path, {}, None, 204
    yield "DELETE", at, {}, None, 404


def _box(name, *parts):
    data = b"".join(parts)
    return struct.pack(">I4s", len(data) + 8, name) + data


def film(samples=400_000):
    """A film whose tables are 5 MB: a sample in each chunk, of 8 bytes, a millisecond long."""
    def tables(begin):
        clock = bytearray(100)
        struct.pack_into(">II", clock, 12, 1000, samples)
        head = bytearray(84)
        struct.pack_into(">I", head, 20, samples)
        places = b"".join(struct.pack(">I", begin + 8 * i) for i in range(samples))
        stbl = _box(b"stbl", _box(b"stsd", bytes(16)), _box(b"stts", struct.pack(">II", 0, samples), struct.pack(">II", 1, 1) * samples),
                    _box(b"stsc", struct.pack(">IIIII", 0, 1, 1, 1, 1)), _box(b"stsz", struct.pack(">III", 0, 0, samples), struct.pack(">I", 8) * samples),
                    _box(b"stco", struct.pack(">II", 0, samples), places))
        mdia = _box(b"mdia", _box(b"mdhd", bytes(clock[:24])), _box(b"minf", _box(b"vmhd", bytes(12)), stbl))
        return _box(b"moov", _box(b"mvhd", bytes(clock)), _box(b"trak", _box(b"tkhd", bytes(head)), mdia))
    ftyp = _box(b"ftyp", b"isom")
    begin = len(ftyp) + len(tables(0)) + 8
    return ftyp + tables(begin) + _box(b"mdat", bytes(8 * samples))


def _films(turn):
    yield "GET", "/film/film.mp4?start=%d" % (turn % 390), {}, None, 200
    yield "GET", "/film/film.mp4?start=1&end=%d" % (2 + turn % 390), {}, None, 200


def _write(site, name, content):
    path = os.path.join(site.html, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content)


def _random(site):
    for i in range(1000):
        _write(site, "random/%d.html" % i, b"%d" % i)


def _passwords(site):
    with open(os.path.join(site.path, "users"), "w") as f:
        f.write("bcrypt:%s\napr1:%s\n" % (BCRYPT, APR1))
    os.chmod(os.path.join(site.path, "users"), 0o644)
    _write(site, "door/page.html", b"open")


def _doors(turn):
    """Wrong passwords, each another: nothing that was found out before answers them."""
    for user in ("bcrypt", "apr1"):
        words = "%s:wrong-%d" % (user, turn)
        yield "GET", "/door/page.html", {"Authorization": "Basic " + base64.b64encode(words.encode()).decode()}, None, 401
    yield "GET", "/door/page.html", {}, None, 401


def _text(site):
    words = b"".join(b"%x " % (i * 2654435761 % 65521) for i in range(65521))
    _write(site, "squeezed/10m.txt", (words * 40)[:10 * MIB])


def _squeezed(_):
    yield "GET", "/squeezed/10m.txt", {"Accept-Encoding": "gzip"}, None, 200


def _includes(site):
    for i in range(20):
        _write(site, "ssi/part%d.html" % i, b"%d " % i * 10_000)
    page = "".join('<!--#set var="a" value="%d" --><!--#if expr="$a = 3" -->x<!--#endif --><!--#include virtual="/ssi/part%d.html" -->%s'
                   % (i, i, "text " * 2000) for i in range(20))
    _write(site, "ssi/page.shtml", page.encode())


ALL = [
    Module("dav", "client_max_body_size 0; client_body_temp_path bodies; location /dav/ { dav_methods PUT DELETE MKCOL COPY MOVE; }",
           lambda site: _writable(site, "dav"), _dav),
    Module("mp4", "location /film/ { mp4; }", lambda site: _write(site, "film/film.mp4", film()), _films),
    Module("random_index", "location /random/ { random_index on; }", _random,
           lambda _: [("GET", "/random/", {}, None, 200)]),
    Module("auth_basic", 'location /door/ { auth_basic door; auth_basic_user_file %s/users; }', _passwords, _doors),
    Module("gzip", "location /squeezed/ { gzip on; gzip_types text/plain; }", _text, _squeezed),
    Module("ssi", "location /ssi/ { ssi on; ssi_types *; }", _includes, lambda _: [("GET", "/ssi/page.shtml", {}, None, 200)]),
]


def built(binary, site):
    """Those that the program has."""
    found = []
    for module in ALL:
        path = os.path.join(site.path, "known.conf")
        http = "access_log off; server { listen 127.0.0.1:1; %s }" % module.lines.replace("%s", site.path)
        with open(path, "w") as f:
            f.write("pid %s/known.pid; events { } http { %s }\n" % (site.path, http))
        said = subprocess.run([os.path.abspath(binary), "-t", "-q", "-p", site.path, "-e", "/dev/null", "-c", path], capture_output=True, text=True)
        if said.returncode == 0:
            found.append(module)
        else:
            print("not built, so not measured: %s (%s)" % (module.name, said.stderr.strip().split("\n")[0]))
    return found


def lines(modules, site):
    """The locations of these modules; their files are made."""
    for module in modules:
        module.make(site)
    return " ".join(module.lines.replace("%s", site.path) for module in modules)


def spare(args):
    """A second core for the server, where there is one."""
    left = [core for core in options.CORES if core not in (args.server_core, args.load_core)]
    return left[0] if len(left) > 1 else args.server_core


class Beside:
    """Asks the modules inside the `with` block, each with a connection and a thread of its own, on the cores that nobody measures, or all. There
    these threads give way at once (SCHED_IDLE; a nicer thread keeps its slice): a client that takes 10 MiB is no part of the server's latency."""

    def __init__(self, args, one, modules, pause=0.05):
        """`pause`: seconds between two requests for content."""
        self.one, self.modules, self.pause = one, modules, pause
        self.cores = set(options.CORES) - {args.server_core, args.load_core, spare(args)} or set(options.CORES)
        self.is_over = threading.Event()
        self.count = {module.name: 0 for module in modules}
        self.wrong = []

    def __enter__(self):
        self.threads = [threading.Thread(target=self.ask, args=(module,), daemon=True) for module in self.modules]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE)

    def ask(self, module):
        thread = threading.get_native_id()
        os.sched_setaffinity(thread, self.cores)
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        host, port = self.one.address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        base = os.getpid() * 1000
        for turn in itertools.count():
            for method, path, headers, body, status in module.requests(base + turn):
                if self.is_over.is_set() and module.name != "dav":
                    # What was put is taken away first.
                    return connection.close()
                try:
                    connection.request(method, path, body, {"Host": "localhost", **headers})
                    answer = connection.getresponse()
                    answer.read()
                    self.count[module.name] += 1
                    if answer.status != status:
                        self.wrong.append("%s %s: %d" % (method, path, answer.status))
                except (OSError, http.client.HTTPException) as error:
                    self.wrong.append("%s %s: %s" % (method, path, error))
                    connection.close()
                time.sleep(self.pause if method == "GET" else self.pause / 20)
            if self.is_over.is_set():
                return connection.close()

    def judge(self, verdict):
        """Every module was asked, and answered rightly."""
        verdict.judge("modules beside: every answer is the right one", not self.wrong and all(self.count.values()),
                      self.wrong[:5] or ", ".join("%s %d" % item for item in self.count.items()))
