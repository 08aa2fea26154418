"""What a cache under measurement is asked, and what that costs it: hits, fills."""

import time

from . import load

CONNECTIONS = 64
SIZES = {"1 KiB": 1024, "16 KiB": 16384, "64 KiB": 65536}       # of hits
ASKED_AGAIN, KEPT_SHARE = 2000, 0.99
REST, REST_MAX = 0.3, 20    # seconds


def settled(one):
    """CPU seconds once nothing is being done any more."""
    seen, until = one.cpu_seconds(), time.monotonic() + REST_MAX
    while time.monotonic() < until:
        time.sleep(REST)
        now = one.cpu_seconds()
        if now - seen <= 0.01:
            return now
        seen = now
    return seen


def closed_loop(args, one, target, size):
    """Requests per CPU second and per second of one target."""
    before = one.cpu_seconds()
    figures = load.wrk(args, "http://%s%s" % (one.address, target), CONNECTIONS, args.seconds)
    if figures["failures"] or not figures["requests"] or load.short(figures, size):
        raise RuntimeError("%s: %d failures, %d bytes in %d requests: %s" % (one.name, figures["failures"], figures["bytes"], figures["requests"], one.said()))
    return figures["requests"] / (one.cpu_seconds() - before), figures["requests"] / args.seconds


def hits(args, one, source, site):
    """By name of the size, as `closed_loop`."""
    found = {}
    for what, size in SIZES.items():
        target = "/%d/hot" % size
        right(args, one, site, [target] * 3)
        asked = source.count(target)
        found["hits, " + what] = closed_loop(args, one, target, size)
        if source.count(target) != asked:
            raise RuntimeError("%s: hits that the origin saw: %s" % (one.name, one.said()))
    return found


def fills(args, one, source, site, size, count, label):
    """Fills per CPU second and per second, of which only those count that were kept; seconds of Freewheel's loops for each; and the share that was kept, found by asking again."""
    targets = site.targets("fills", ["/%d/fill-%s-%s-%d" % (size, one.name.replace(" ", "-"), label, i) for i in range(count)])
    before, loops, begun = settled(one), one.cpu_seconds("loop "), time.monotonic()
    figures = load.run(args, one.address, "120+5", [load.group("fill", CONNECTIONS, targets, order="turn", count=count)])["fill"]
    took = time.monotonic() - begun
    cpu, loops = settled(one) - before, one.cpu_seconds("loop ") - loops
    if load.wrong(figures):
        raise RuntimeError("%s: fills failed: %s %s %s" % (one.name, figures["statuses"], figures["failures"], one.said()))
    source.reset()
    asked = min(ASKED_AGAIN, count)
    load.run(args, one.address, "60+5", [load.group("again", 8, targets, count=asked, check=True)])
    kept = 1 - source.counts()["requests"] / asked
    return (count * kept / cpu, count * kept / took, loops / count), kept


def right(args, one, site, targets):
    """Asks with every byte compared, and goes on only when all were right."""
    file = site.targets("right", targets)
    figures = load.run(args, one.address, "20+1", [load.group("right", 1, file, order="turn", count=len(targets), check=True)])["right"]
    if load.wrong(figures):
        raise RuntimeError("%s: wrong answers: %s %s %s" % (one.name, figures["statuses"], figures["failures"], one.said()))
