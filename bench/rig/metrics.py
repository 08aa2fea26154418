"""Freewheel's `metrics;` (Prometheus text): sums of counters; of histograms, what came between two readings, and its percentiles."""

import re
import urllib.request

LINE = re.compile(r'^(\w+)_bucket\{loop="(\d+)",le="([^"]+)"\} (\d+)$', re.MULTILINE)
WAIT = 10       # seconds for an answer


def text(address, path="/metrics", wait=WAIT):
    """The page."""
    with urllib.request.urlopen("http://%s%s" % (address, path), timeout=wait) as answer:
        return answer.read().decode()


def total(page, name, label=""):
    """The sum of a family's values with this label."""
    values = re.findall(r"^%s(?:\{([^}]*)\})? (\S+)$" % name, page, re.MULTILINE)
    return sum(int(float(value)) for labels, value in values if label in labels)


def read(address, path="/metrics"):
    """{(name, loop): [(upper bound in seconds, how many up to that)]}"""
    found = {}
    for name, loop, bound, count in LINE.findall(text(address, path)):
        found.setdefault((name, loop), []).append((float(bound), int(count)))
    return found


def between(before, after, name):
    """Of each loop: the same, counted since `before` was read."""
    return [[(bound, count - earlier) for (bound, count), (_, earlier) in zip(buckets, before[key])]
            for key, buckets in after.items() if key[0] == name]


def percentile(buckets, share):
    """Seconds, between a bucket's bounds by how far the share reaches into it, as Prometheus has it; none of nothing."""
    total = buckets[-1][1]
    if total == 0:
        return None
    below, start = 0, 0.0
    for bound, count in buckets:
        if count >= share * total and count > below:
            return start if bound == float("inf") else start + (bound - start) * (share * total - below) / (count - below)
        below, start = count, bound
    return start
