"""What a report shows of each experiment's figures: rows of a thing, a server and its figure, with what it is compared with.

Experiments without rows here show their targets alone."""

import dataclasses
import statistics

from . import report

MORE, LESS = "more", "less"     # which is better
PLAIN = "plain calls"           # no rival: they wait for the disk where nobody may
LARGE = 65536                   # bytes of an answer from which on a gigabyte of them is worth a figure


@dataclasses.dataclass
class Row:
    what: str
    server: str
    values: list            # of the rounds; None: no request was answered in one
    unit: str
    better: str
    baseline: str = "nginx"
    also: str = ""          # the figure in other words

    @property
    def figure(self):
        """None: nothing to measure."""
        return None if None in self.values else statistics.median(self.values)


def rows(name, figures):
    made = ROWS.get(name, lambda _: [])(figures)
    return [row for row in made if row.values]


def hot(figures):
    made = []
    for one in figures["per_cpu"]:
        is_logged, size = one["server"].endswith(" log"), figures.get("bytes", {}).get(one["what"])
        also = "%.1f µs each" % (1e6 / one["median"]) + (", %.3f CPU s per GB" % (1e9 / size / one["median"]) if size >= LARGE else "") if size else ""
        made.append(Row(one["what"] + (", access log on" if is_logged else ""), one["server"], one["rounds"], "requests/CPU s", MORE,
                        "nginx log" if is_logged else "nginx", also))
    return made


def cached(figures):
    return [Row(one["what"], one["server"], one["rounds"], "requests/CPU s", MORE) for one in figures["per_cpu"]]


def memory(figures):
    what = {"idle": "an idle connection", "slow": "a slow reader of 4 MiB"}
    return [Row(what[one["what"]], one["server"], [one["others"][0] / 1024], "KiB", LESS) for one in figures["bytes_each"]]


def mixed(figures):
    made = []
    for server, runs in figures["runs"]["mixed"].items():
        def of(kind, key):
            return [run[kind][key] for run in runs]
        made += [Row("constant load", server, of("constant", "requests_per_second"), "requests/s", MORE),
                 Row("constant load, p50", server, of("constant", "p50_ms"), "ms", LESS),
                 Row("constant load, p99", server, of("constant", "p99_ms"), "ms", LESS),
                 Row("random load", server, of("random", "megabytes_per_second"), "MB/s", MORE),
                 Row("random load, p99", server, of("random", "p99_ms"), "ms", LESS),
                 Row("both", server, [run["constant"]["megabytes_per_second"] + run["random"]["megabytes_per_second"] for run in runs], "MB/s", MORE)]
    cold = figures["runs"]["cold"]
    for server, runs in cold.items():
        made.append(Row("cold files alone, disk as it is", server, [run["random"]["megabytes_per_second"] for run in runs], "MB/s", MORE, next(iter(cold))))
    return made


def spikes(figures):
    made = []
    for server, runs in figures["runs"].items():
        def row(what, part, group, key):
            made.append(Row(what, server, [run[part][group][key] for run in runs if group in run.get(part, {})], "ms", LESS))

        for group in ("hot", "all"):
            for what, key in (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p999"), ("longest", "max")):
                row("%s, %s" % (group, what), "case", group, "first_%s_ms" % key)
        row("hot, p99 without the cold tail", "floor", "hot", "first_p99_ms")
        row("cold, p50", "case", "cold", "first_p50_ms")
        row("diskless location, longest", "case", "probe", "first_max_ms")
        for what, share in (("p50", "0.5"), ("p99", "0.99"), ("p99.9", "0.999")):
            made.append(Row("event_loop_blocked, %s" % what, server, [run["blocked_ms"][share] for run in runs if "blocked_ms" in run], "ms", LESS))
    return sorted(made, key=lambda row: list(dict.fromkeys(row.what for row in made)).index(row.what))


def disks(figures):
    return [Row("%s, p99%s" % (kind, ", one disk stalled" if part == "stall" else ""), server, [run[part][kind]["p99_ms"] for run in runs], "ms", LESS)
            for server, runs in figures["runs"].items() for kind in sorted(runs[0]["alone"]) for part in ("alone", "stall")]


def filling(figures):
    made = []
    for server, runs in figures["beside"].items():
        for what, kind, key in (("hits beside fills, p50", "hits", "p50_ms"), ("hits beside fills, p99", "hits", "p99_ms"), ("fills, p50", "fills", "p50_ms")):
            made.append(Row(what, server, [run[kind][key] for run in runs], "ms", LESS))
        made.append(Row("fills", server, [run["fills"]["requests_per_second"] for run in runs], "requests/s", MORE))
    for server, runs in figures["room"].items():
        made.append(Row("the most below max_size=200m", server, [run["most"] / 2**20 for run in runs], "MiB", LESS))
    return made


def written(figures):
    made = []
    for case, runs in figures.items():
        disk, part, server = case.split(", ")
        for key, what in (("hot", "a file of another disk"), ("beside", "these files")):
            made.append(Row("%s, %s: %s, p99" % (disk, part, what), server, [run[key]["p99_ms"] for run in runs], "ms", LESS))
    return made


def far(figures):
    made = [Row("far away: " + what, server, seconds, "s", LESS) for (what, server), seconds in ((key.rsplit(", ", 1), runs) for key, runs in figures["transfers"].items())]
    return made + [Row("far away: small responses beside a large one, p50", server, [run["p50_ms"] for run in runs], "ms", LESS) for server, runs in figures["beside"].items()]


def pieces(figures):
    return [Row("in pieces: %s, p99" % what, server, [report.quantile(times, 0.99) for times in rounds], "ms", LESS) for what, server, rounds in figures["times"]]


def crowd(figures):
    made = []
    for what, server, m in figures["medians"]:
        made += [Row(what + ", first byte, p50", server, [m["first_p50_ms"]], "ms", LESS), Row(what + ", p50", server, [m["p50_ms"]], "ms", LESS),
                 Row(what + ", requests at the origin", server, [m["asked"]], "", LESS)]
    return made


def restart(figures):
    made = []
    for server, m in figures.items():
        for what, start in m["starts"].items():
            made += [Row(what + ", first hit", server, [start["first_s"]], "s", LESS), Row(what + ", asked again", server, [start["asked"]], "", LESS)]
            # nginx has none of them in memory yet: it loads them a minute later.
            made += [Row(what + ", memory of an entry", server, [start["entry_bytes"]], "bytes", LESS)] if server != "nginx" else []
        made.append(Row("after the fills, memory of an entry", server, [m["entry_bytes"]], "bytes", LESS))
    return made


def hitratio(figures):
    return [Row("%s, %s" % (what, of), server, [100 * one[of]], "%", MORE, also="" if "held" in one else "computed")
            for what, found in figures["shares"].items() for of in ("requests", "bytes") for server, one in found.items()]


def lost(figures):
    made = []
    for both, runs in figures.items():
        server, kind = both.split(", ")
        wrong = [sum(f["failures"].values()) + sum(n for status, n in f["statuses"].items() if status != "200") for f in runs]
        made += [Row(kind + ", requests lost", server, wrong, "", LESS), Row(kind + ", closed while idle", server, [f["reopened"] for f in runs], "", LESS),
                 Row(kind + ", longest", server, [f["max_ms"] for f in runs], "ms", LESS)]
    return made


def spread(figures):
    made = []
    for both, one in figures.items():
        server, kind = both.split(", ", 1)
        made += [Row(kind + ", busiest loop against the mean", server, [one["busiest"]], "", LESS), Row(kind + ", sleeps per connection", server, [one["sleeps"]], "", LESS)]
    return made


def pools(figures):
    made = []
    for one in figures["micros"]:
        baseline = "tokio spawn_blocking" if " job" in one["what"] else PLAIN
        made.append(Row(one["what"], one["server"], one["rounds"], "µs", LESS, baseline))
    return sorted(made, key=lambda row: row.what)


def fairness(figures):
    return [Row("beside %s ×%d, p99" % (case, count), server, [one["p99_ms"]], "ms", LESS) for case, count, server, one in figures["medians"] if count]


def kinds(figures):
    return [Row("%s, CPU of a request" % one["what"], one["server"], [1e6 * value for value in one["rounds"]], "µs", LESS) for one in figures["rounds"]]


def attack(figures):
    made = []
    for one in figures["rounds"]:
        is_slow = not one["what"].isdigit()
        what = "slow %s, CPU of a byte" % one["what"] if is_slow else "1 MiB refused with %s, CPU of 1000" % one["what"]
        made.append(Row(what, one["server"], one["rounds"], "µs" if is_slow else "s", LESS, also="" if is_slow else "%.0f requests/s" % one["others"][0]))
    return made


LARGE_FIGURES = {"start_mib": ("memory at the start", "MiB"), "last_mib": ("memory after reloads", "MiB"), "reload_s": ("a reload", "s"),
                 "beside_max_ms": ("longest wait of a hot request meanwhile", "ms")}


def large(figures):
    return [Row("many %s: %s" % (kind, what), name, [one[figure] for one in rounds], unit, LESS)
            for figure, (what, unit) in LARGE_FIGURES.items() for (kind, name), rounds in ((key.split(", "), found) for key, found in figures.items())]


ROWS = {"hot": hot, "cached": cached, "stores": cached, "wide": cached, "memory": memory, "mixed": mixed, "spikes": spikes, "disks": disks,
        "filling": filling, "crowd": crowd, "written": written, "far": far, "pieces": pieces,
        "fairness": fairness, "kinds": kinds, "hitratio": hitratio, "attack": attack, "restart": restart, "reload": lost, "large": large, "article": lost, "spread": spread, "pools": pools}
WIDE = {"spikes"}       # so many servers that a row for each figure of each would be unreadable


def article_of_2018(figures):
    return ["What the 2018 article tried, one after the other: p99 with it, as a share of p99 without it.", "",
            "| | hot | all | the article |", "|---|---:|---:|---:|", *("| %s |" % " | ".join(line) for line in figures["ratios"])]


NOTES = {"spikes": article_of_2018}
