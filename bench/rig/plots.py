"""Pictures of the figures, SVG by matplotlib. Without it there are none: `missing` says what to install."""

import os
import statistics

try:
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "freewheel", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
                                "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    from matplotlib import pyplot
except ImportError:
    pyplot = None

SIZE = (8, 4)
COLOURS = {"freewheel": "#0072b2"}      # of a palette that the colour-blind can tell apart (Okabe, Ito)
REUSEPORT = " reuseport"                # such a variant has the colour of the one without, and a broken line
OTHERS = ["#e69f00", "#d55e00", "#cc79a7", "#009e73", "#56b4e9", "#999999"]


def missing():
    return None if pyplot else "matplotlib is missing: install the package python3-matplotlib"


def over_time(runs):
    """Seconds, and requests per second of each whole slice: medians of the rounds."""
    slices = [run["over_time"] for run in runs]
    width = slices[0]["slice_seconds"]
    count = min(int(run["seconds"] / width) for run in runs)
    rates = [[one["requests"][i] / width if i < len(one["requests"]) else 0 for one in slices] for i in range(count)]
    return [i * width for i in range(count)], [statistics.median(values) for values in rates]


def curve(runs, key):
    """Shares and milliseconds: medians of the rounds, as far as all of them go; the longest wait is not among them."""
    curves = [dict(map(tuple, run[key])) for run in runs]
    shares = sorted(share for share in set.intersection(*map(set, curves)) if share < 1)
    return shares, [statistics.median(one[share] for one in curves) for share in shares]


def colours(servers):
    others = iter(OTHERS * len(servers))
    return {server: COLOURS.get(server) or next(others) for server in servers}


def figure(title, x, y, count=1):
    drawn, axes = pyplot.subplots(1, count, figsize=SIZE, sharey=True, squeeze=False)
    drawn.suptitle(title, fontsize=10)
    for one in axes[0]:
        one.set_xlabel(x)
    axes[0][0].set_ylabel(y)
    return drawn, axes[0]


def write(drawn, path):
    drawn.tight_layout()
    drawn.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(drawn)
    # matplotlib ends lines with blanks.
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write("".join(line.rstrip() + "\n" for line in text.splitlines()))


def mixed_over_time(figures, title, path):
    drawn, (axes,) = figure(title, "seconds", "requests/s")
    sides = figures["runs"]["mixed"]
    for server, colour in colours(sides).items():
        axes.plot(*over_time([run["constant"] for run in sides[server]]), label=server, color=colour)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.legend()
    write(drawn, path)


def draw_curves(axes, runs, key):
    """Shares on an axis where each nine is as wide as the next."""
    widest = 10
    paints = colours(dict.fromkeys(server.removesuffix(REUSEPORT) for server in runs))
    for server in runs:
        colour, line = paints[server.removesuffix(REUSEPORT)], "--" if server.endswith(REUSEPORT) else "-"
        shares, ms = curve(runs[server], key)
        if not shares:
            axes.plot([], [], line, label=server + ": no answer", color=colour)
            continue
        widest = max(widest, 1 / (1 - shares[-1]))
        axes.plot([1 / (1 - share) for share in shares], ms, line, label=server, color=colour, marker=".", markersize=4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [(1, "0"), (2, "50"), (10, "90"), (100, "99"), (1000, "99.9"), (10_000, "99.99"), (100_000, "99.999")]
    ticks = [tick for tick in ticks if tick[0] <= widest * 1.1]
    axes.set_xticks([at for at, _ in ticks], ["%s %%" % text for _, text in ticks])
    axes.minorticks_off()
    axes.legend()


def mixed_latency(figures, title, path):
    drawn, (axes,) = figure(title, "share of the requests", "ms at most")
    draw_curves(axes, {server: [run["constant"] for run in runs] for server, runs in figures["runs"]["mixed"].items()}, "curve_ms")
    write(drawn, path)


def mixed_total(figures, title, path):
    drawn, (axes,) = figure(title, "", "MB/s")
    sides = figures["runs"]["mixed"]
    below = [0] * len(sides)
    for kind, colour in (("constant", "#0072b2"), ("random", "#e69f00")):
        values = [statistics.median(run[kind]["megabytes_per_second"] for run in runs) for runs in sides.values()]
        axes.bar(list(sides), values, bottom=below, label=kind + " load", color=colour)
        below = [a + b for a, b in zip(below, values)]
    axes.legend()
    write(drawn, path)


def spikes_curve(group):
    def drawing(figures, title, path):
        drawn, (axes,) = figure(title, "share of the requests", "ms to the first byte at most")
        draw_curves(axes, {server: [run["case"][group] for run in runs] for server, runs in figures["runs"].items()}, "first_curve_ms")
        write(drawn, path)
    return drawing


def disks_over_time(figures, title, path):
    servers = list(figures["runs"])
    drawn, parts = figure(title, "seconds", "hits/s", len(servers))
    for axes, server in zip(parts, servers):
        runs = [run["stall"] for run in figures["runs"][server]]
        for disk, colour in (("1", "#d55e00"), ("2", "#0072b2"), ("3", "#009e73")):
            for kind, style in (("hot", "-"), ("cold", ":")):
                at, rates = over_time([run["%s-%s" % (kind, disk)] for run in runs])
                axes.plot(at, rates, style, color=colour, label="disk %s, %s" % (disk, "in memory" if kind == "hot" else "from the disk"))
        axes.axvspan(*figures["stalled"], color="#999999", alpha=0.2, label="disk 1 answers nothing")
        axes.set_title(server, fontsize=9)
    parts[-1].legend(fontsize=7)
    write(drawn, path)


def cpu_bars(figures, title, path):
    """CPU time per request: lower is better. Large answers have a scale of their own."""
    things = list(dict.fromkeys(one["what"] for one in figures["per_cpu"]))
    drawn, parts = pyplot.subplots(1, len(things), figsize=(max(SIZE[0], 1.7 * len(things)), SIZE[1]), squeeze=False)
    drawn.suptitle(title, fontsize=10)
    paints = colours(sorted({one["server"] for one in figures["per_cpu"]}))
    for axes, thing in zip(parts[0], things):
        sides = [one for one in figures["per_cpu"] if one["what"] == thing]
        axes.bar([one["server"] for one in sides], [1e6 / one["median"] for one in sides], color=[paints[one["server"]] for one in sides],
                 yerr=[[1e6 / one["median"] - 1e6 / max(one["rounds"]) for one in sides], [1e6 / min(one["rounds"]) - 1e6 / one["median"] for one in sides]])
        axes.set_title(thing.replace(", ", ",\n"), fontsize=9)
        axes.tick_params(axis="x", rotation=90)
    parts[0][0].set_ylabel("µs of CPU per request")
    write(drawn, path)


PLOTS = {
    "hot": [("hot-cpu.svg", "Hot files: CPU per request (less is better)", cpu_bars)],
    "cached": [("cached-cpu.svg", "Caching proxy: CPU per request (less is better)", cpu_bars)],
    "mixed": [("mixed-over-time.svg", "Mixed load: the constant load over time", mixed_over_time),
              ("mixed-latency.svg", "Mixed load: latency of the constant load", mixed_latency),
              ("mixed-total.svg", "Mixed load: both loads together", mixed_total)],
    "spikes": [("spikes-hot.svg", "A disk that stalls now and then: hot requests", spikes_curve("hot")),
               ("spikes-all.svg", "A disk that stalls now and then: all requests", spikes_curve("all"))],
    "disks": [("disks-over-time.svg", "Three disks, one of which stalls: hits over time", disks_over_time)],
}


def draw(name, figures, folder):
    """Draws those of an experiment; (file, title) of each."""
    made = []
    for file, title, function in PLOTS.get(name, []):
        function(figures, title, os.path.join(folder, file))
        made.append((file, title))
    return made
