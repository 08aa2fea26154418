"""Command line and tools of a measurement. Says at start what is missing and which package has it."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys

from . import disk, over, peer

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORES = sorted(os.sched_getaffinity(0))  # those that this process may use: a control group may leave it fewer than the machine has
PACKAGES = {"wrk": "wrk", "h2load": "nghttp2-client", "nghttpd": "nghttp2-server", "strace": "strace", "taskset": "util-linux", "cargo": "rustup", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
            "mkfs.btrfs": "btrfs-progs",
            "losetup": "mount", "mount": "mount", "umount": "mount", "findmnt": "util-linux", "git": "git", "curl": "curl", "openssl": "openssl", "ip": "iproute2"}


def parser(description):
    """Options that every measurement has."""
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_servers(ap)
    ap.add_argument("--only", choices=["freewheel", "nginx"], help="measure one of the two; ratios are then not given")
    ap.add_argument("--rounds", type=int, default=3, help="interleaved rounds; figures are medians (default: %(default)s)")
    ap.add_argument("--seconds", type=float, default=5, help="of one measurement (default: %(default)s)")
    ap.add_argument("--json", help="write the figures here")
    ap.add_argument("--filesystem", choices=disk.MAKERS, help="of the disks that it makes (default: ext4)")
    return ap


def parse(ap, **quick):
    """The options; `quick`: defaults of those that --quick makes smaller."""
    end_in_order()
    args = ap.parse_args()
    if args.quick:
        ap.set_defaults(**quick)
        args = ap.parse_args()
    over.choose(getattr(args, "tls", False), getattr(args, "http2", False))
    disk.choose(args.filesystem or disk.filesystem)
    return args


def end_in_order():
    """A measurement that is told to end takes away what it made; told twice, it goes on with that."""
    def told(*_):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, told)


def add_servers(ap):
    """Options of `run`, too."""
    ap.add_argument("--freewheel", default=os.path.join(PROJECT, "target/release/freewheel"), help="the program (default: %(default)s)")
    ap.add_argument("--nginx", default=shutil.which("nginx"), help="the peer, by path (default: the one in PATH)")
    ap.add_argument("--server-core", type=int, default=CORES[0], help="core of the server (default: %(default)s)")
    ap.add_argument("--load-core", type=int, default=CORES[1 % len(CORES)], help="core of the load (default: %(default)s)")
    ap.add_argument("--dir", default="/var/tmp", help="where files are made: a directory on the file system to be measured (default: %(default)s)")
    ap.add_argument("--quick", action="store_true", help="fewer rounds, less time, smaller sets: shows that it works, gives no figures to rely on")
    ap.add_argument("--check", action="store_true", help="only say what is missing")


def add_origin(ap):
    """Options of what measures a proxy."""
    ap.add_argument("--origin-core", type=int, default=CORES[2] if len(CORES) > 2 else CORES[-1], help="core of the origin (default: %(default)s)")


def add_protocols(ap):
    """For what holds over TLS and HTTP/2, too."""
    ap.add_argument("--tls", action="store_true", help="the load speaks TLS to the servers, with a full handshake for each connection")
    ap.add_argument("--http2", action="store_true", help="the load speaks HTTP/2 to the servers, a stream at a time over each connection")


def add_peers(ap):
    """For what other servers can do, too."""
    ap.add_argument("--also", type=peer.named, action="append", default=[], metavar="NAME=PATH",
                    help="a further server, by the path of its program: %s" % ", ".join(sorted(peer.COMMANDS)))


def add_places(ap):
    """Options for the Shows that run once more elsewhere: as an ordinary user, on overlayfs."""
    ap.add_argument("--as-user", help="start the server as this ordinary user instead of root (nobody)")
    ap.add_argument("--overlay", action="store_true", help="files on overlayfs, as in a container")


def check(args, tools=(), root=False, freewheel_only=False):
    """Ends the program with a message when something needed is not there; builds the load."""
    missing = []
    if args.filesystem and "mkfs.ext4" not in tools:
        missing.append("--filesystem: no disk is made here")
    tools = [disk.MAKERS[disk.filesystem][0] if tool == "mkfs.ext4" else tool for tool in tools]
    for tool in ("taskset", "cargo", *(("mount", "umount") if root else ()), *tools):
        if not shutil.which(tool):
            missing.append("%s is missing: install the package %s" % (tool, PACKAGES.get(tool, tool)))
    if root and os.geteuid() != 0:
        missing.append("needs root (%s)" % root)
    if args.only != "freewheel" and not freewheel_only and not (args.nginx and os.access(args.nginx, os.X_OK)):
        missing.append("no nginx: name one with --nginx PATH (Debian: the package nginx), or say --only freewheel")
    if args.only != "nginx" and not os.access(args.freewheel, os.X_OK):
        missing.append("no freewheel at %s: cargo build --release, or name it with --freewheel PATH" % args.freewheel)
    if len(CORES) < 2:
        missing.append("one core only: server and load need one each")
    if missing:
        sys.exit("\n".join(missing))
    if args.check:
        sys.exit(0)
    args.load = build_load()


def build_load():
    """Path of the load program, up to date."""
    subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "bench"], cwd=PROJECT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target"))
    return os.path.join(target, "release/load")


def build_open_inline():
    """Path of a freewheel whose open() and stat() wait on the loops (the cargo feature open_inline), up to date, in a folder of its own."""
    target = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target")), "open_inline")
    subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "freewheel", "--features", "open_inline", "--target-dir", target], cwd=PROJECT, check=True)
    return os.path.join(target, "release/freewheel")


def build_pools():
    """Path of the micro-benchmarks of crates/disk, up to date."""
    said = subprocess.run(["cargo", "bench", "--quiet", "--package", "disk", "--bench", "disk", "--no-run", "--message-format=json"], cwd=PROJECT,
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    made = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return next(one["executable"] for one in made if one.get("executable") and one["target"]["kind"] == ["bench"])


def contenders(args):
    """(name, binary) of those to be measured."""
    both = [("nginx", args.nginx), ("freewheel", args.freewheel)]
    return [(name, path) for name, path in both if args.only in (None, name)]


# Kinds of caches: their names, and the words of proxy_cache_path that make them.
CACHES = {"nginx": {"nginx": ""}, "freewheel": {"freewheel files": "", "freewheel segments": " store=segments"}}


def caches(args):
    """(name, binary, words of proxy_cache_path) of each kind of cache of those to be measured."""
    return [(kind, binary, words) for name, binary in contenders(args) for kind, words in CACHES[name].items()]
