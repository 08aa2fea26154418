"""Tables, targets and the end of a measurement."""

import json
import statistics
import sys

from . import circumstances


def median(values):
    return statistics.median(values)


def quantile(ordered, share):
    """Of values in their order; infinite where there are none."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("inf")


def table(head, rows):
    """Prints rows under a head, columns aligned."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


class Verdict:
    """Targets, each met or missed. What was not measured is said, and is not met."""

    def __init__(self):
        self.missed = 0
        self.lines = []

    def judge(self, what, is_met, figure):
        self.missed += not is_met
        self.lines.append("%s  %s: %s" % ("met   " if is_met else "MISSED", what, figure))

    def unmeasured(self, what):
        self.lines.append("not measured  %s" % what)

    def end(self, args, figures):
        """Prints the verdict, writes --json, ends the program: 0 when every target is met."""
        print()
        print("\n".join(self.lines) or "no target applies")
        if args.json:
            with open(args.json, "w") as f:
                json.dump({**circumstances.circumstances(args), "figures": figures, "verdict": self.lines}, f, indent=1)
                f.write("\n")
        sys.exit(1 if self.missed else 0)


def rounds(figures):
    """For --json: rows of what was measured, of which server, the median of the first figure, its rounds, and the medians of the others."""
    return [{"what": what, "server": name, "median": median([value[0] for value in values]), "rounds": [value[0] for value in values],
             "others": [median(column) for column in list(zip(*values))[1:]]} for (what, name), values in figures.items()]


def ratio(a, b):
    return "-" if not a or not b else "%.2f" % (a / b)
