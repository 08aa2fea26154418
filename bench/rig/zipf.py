"""Traces of requests by Zipf's law, and what a cache of so many bytes could have made of one: as LRU, and at best.

Only the second half of a trace is counted; the first one fills the cache. A cache is judged by (requests, bytes) that it answers."""

import collections
import heapq
import itertools
import math
import random

SIZE_MAX = (1 << 20) - (16 << 10)       # bytes of a body: with its head it fits into a segment
BLOCK, HEAD = 4096, 512                 # bytes of a file system's blocks, and about those of a stored head
COMPUTED = ("bound", "Belady", "LRU", "LRU, 4K")    # caches that are no servers
MEDIAN, SIGMA = 4096, 1.5               # of the sizes' log-normal distribution: 12.6 KB each on average


def sizes(objects, seed):
    """Bytes of each object."""
    chance = random.Random(seed)
    return [max(1, min(SIZE_MAX, round(chance.lognormvariate(math.log(MEDIAN), SIGMA)))) for _ in range(objects)]


def trace(objects, requests, alpha, seed):
    """Objects in the order in which they are asked for: the one of rank n as often as n to the power of -alpha says."""
    weights = list(itertools.accumulate(rank ** -alpha for rank in range(1, objects + 1)))
    return random.Random(seed).choices(range(objects), cum_weights=weights, k=requests)


def counted(trace_):
    """The index of the first request that counts."""
    return len(trace_) // 2


def stored(size):
    """Bytes of a body with a file of its own."""
    return -(-(size + HEAD) // BLOCK) * BLOCK


def lru(trace_, sizes_, capacity, held=lambda size: size):
    """The least recently used leave. `held`: bytes of the cache that a body of so many takes."""
    half, kept, used, hits, hit_bytes = counted(trace_), collections.OrderedDict(), 0, 0, 0
    for at, one in enumerate(trace_):
        if one in kept:
            kept.move_to_end(one)
            if at >= half:
                hits, hit_bytes = hits + 1, hit_bytes + sizes_[one]
            continue
        kept[one] = held(sizes_[one])
        used += kept[one]
        while used > capacity:
            used -= kept.popitem(last=False)[1]
    return hits, hit_bytes


def following(trace_):
    """For each request the index of the next one for the same object; the trace's length: there is none."""
    found, seen = [len(trace_)] * len(trace_), {}
    for at in range(len(trace_) - 1, -1, -1):
        found[at] = seen.get(trace_[at], len(trace_))
        seen[trace_[at]] = at
    return found


def belady(trace_, sizes_, capacity):
    """Belady's MIN by objects: those leave (or are not stored) that are asked for latest. A cache that knows the future can do so."""
    half, next_use, kept, latest, used, hits, hit_bytes = counted(trace_), following(trace_), {}, [], 0, 0, 0
    for at, one in enumerate(trace_):
        if one not in kept:
            used += sizes_[one]
        elif at >= half:
            hits, hit_bytes = hits + 1, hit_bytes + sizes_[one]
        kept[one] = next_use[at]
        heapq.heappush(latest, (-next_use[at], one))
        while used > capacity:
            when, victim = heapq.heappop(latest)
            if kept.get(victim) == -when:
                del kept[victim]
                used -= sizes_[victim]
    return hits, hit_bytes


def bound(trace_, sizes_, capacity):
    """What no cache exceeds (PFOO-L, Berger et al. 2018): a hit holds its object's bytes since the request before; all hits together hold at
    most the capacity at all times. The cheapest are taken, for requests and for bytes apart."""
    half = counted(trace_)
    costs = [(end - max(begin, half), sizes_[trace_[begin]]) for begin, end in enumerate(following(trace_)) if half <= end < len(trace_)]
    budget = capacity * (len(trace_) - half)
    hits = _taken(((time * size, 1) for time, size in sorted(costs, key=lambda one: one[0] * one[1])), budget)
    hit_bytes = _taken(((time * size, size) for time, size in sorted(costs)), budget)
    return hits, hit_bytes


def _taken(costs, budget):
    """Sum of the values whose costs are within the budget, in this order; of the last one, a part."""
    total = 0
    for cost, value in costs:
        if cost > budget:
            return int(total + value * budget / cost)
        budget -= cost
        total += value
    return total
