"""python3 -m unittest discover -s bench -p '*_test.py': what a report says of figures, by made-up ones."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from rig import experiments, plots, rows

ABOUT = {"machine": "a machine", "cores": 4, "kernel": "6", "disk": "ext4 on /dev/x", "date": "2026-01-01 00:00:00 UTC", "is_quick": False, "commit": "0123456789abcdef",
         "is_clean": True, "servers": {"nginx": "nginx/1", "freewheel": "freewheel/1"}, "options": {}}
CPU = {"per_cpu": [{"what": what, "server": server, "median": sorted(rounds)[1], "rounds": rounds, "others": [1]} for what, server, rounds in (
    ("1 KiB", "nginx", [50, 40, 60]), ("1 KiB", "freewheel", [100, 90, 110]), ("4 MiB", "nginx", [8, 8, 8]), ("4 MiB", "freewheel", [4, 4, 4]),
    ("1 KiB", "nginx log", [30, 30, 30]), ("1 KiB", "freewheel log", [60, 60, 60]))]}


def one(requests, curve):
    return {"requests_per_second": requests, "megabytes_per_second": requests, "p50_ms": 1.0 if requests else None, "p99_ms": 2.0 if requests else None,
            "max_ms": 3.0, "seconds": 2.0, "curve_ms": curve, "over_time": {"slice_seconds": 0.5, "requests": [requests] * 5, "bytes": [1] * 5, "max_ms": [1] * 5}}


def mixed():
    answering, dead = one(8, [[0, 0.5], [0.9, 2], [1, 9]]), one(0, [])
    return {"runs": {"mixed": {"nginx": [{"constant": dead, "random": answering}], "freewheel": [{"constant": answering, "random": answering}]}, "cold": {}}}


def spikes():
    def run(p99, **more):
        seen = {"first_%s_ms" % key: p99 for key in ("p50", "p90", "p99", "p999", "max")} | {"first_curve_ms": [[0, 0.5], [0.9, p99], [1, p99]]}
        return {"case": {"hot": seen, "all": seen, "cold": seen}, **more}
    return {"runs": {"nginx": [run(500.0), run(600.0)], "nginx reuseport": [run(400.0)], "freewheel open inline": [run(0.5)], "freewheel": [run(1.0, blocked_ms={"0.5": 2.0, "0.99": 3.0, "0.999": 4.0})],
                     "ats": [run(0.75)]}, "ratios": [["reuseport", "0.73", "0.73", "0.67"]]}


class Report(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.dir = made.name

    def report(self, is_quick=False, *more, **results):
        for name, figures in results.items():
            with open(os.path.join(self.dir, name + ".json"), "w") as f:
                json.dump({**ABOUT, "is_quick": is_quick, "figures": figures, "verdict": ["met     a: 1", "MISSED  b: 2", "not measured  c"]}, f)
        done = subprocess.run([sys.executable, experiments.script("report"), self.dir, *(more or ["--out", os.path.join(self.dir, "out")])],
                              capture_output=True, text=True)
        if done.returncode:
            return done.stderr
        with open(os.path.join(self.dir, "out/README.md")) as f:
            return f.read()

    def test_figures_are_medians_with_their_spread_as_ratios_to_nginx(self):
        text = self.report(hot=CPU)
        self.assertIn("| 1 KiB | freewheel | **100 requests/CPU s** | 90.0 to 110 | 2.00 × |", text)
        self.assertIn("| 1 KiB, access log on | freewheel log | **60.0 requests/CPU s** | 60.0 to 60.0 | 2.00 × |", text)
        self.assertIn("| 1 KiB | nginx | 50.0 requests/CPU s | 40.0 to 60.0 |  |", text)

    def test_what_a_request_and_a_gigabyte_cost_is_said_where_the_size_is_known(self):
        text = self.report(hot={**CPU, "bytes": {"1 KiB": 1024, "4 MiB": 4 << 20}})
        self.assertIn("| 1 KiB | freewheel | **100 requests/CPU s** (10000.0 µs each) | 90.0 to 110 | 2.00 × |", text)
        self.assertIn("| 4 MiB | nginx | **8.00 requests/CPU s** (125000.0 µs each, 29.802 CPU s per GB) |", text)

    def test_where_another_is_ahead_is_said_first(self):
        text = self.report(hot=CPU)
        ahead = text[text.index("## Where another is ahead"):text.index("## hot")]
        self.assertIn("* `hot`, 4 MiB: nginx 8.00, freewheel 4.00 requests/CPU s", ahead)
        self.assertNotIn("1 KiB", ahead)

    def test_what_is_beside_our_pool_is_compared_and_plain_calls_are_no_rival(self):
        text = self.report(pools={"micros": [{"what": what, "server": server, "median": one, "rounds": [one], "others": []} for what, server, one in (
            ("a job alone, CPU", "freewheel", 8), ("a job alone, CPU", "tokio spawn_blocking", 16), ("open, hot, CPU", "freewheel", 2), ("open, hot, CPU", "plain calls", 1))]})
        self.assertIn("| a job alone, CPU | freewheel | **8.00 µs** |  | 0.50 × |", text)
        self.assertIn("| open, hot, CPU | freewheel | 2.00 µs |  | 2.00 × |", text)
        self.assertIn("of that of tokio spawn_blocking / plain calls", text)
        self.assertIn("Nowhere in this run.", text)

    def test_targets_and_what_is_not_there_are_said(self):
        text = self.report(hot=CPU)
        for line in ("* met: a: 1", "* **missed**: b: 2", "* not measured: c", "Not measured in this run: memory, mixed,", "**No real network.**", "**Few cores.**", "**A virtual disk"):
            self.assertIn(line, text)

    def test_a_server_that_answers_nothing_has_no_figure(self):
        text = self.report(mixed=mixed())
        self.assertIn("| constant load, p99 | nginx | no answer |  |  |", text)
        self.assertIn("| constant load, p99 | freewheel | **2.00 ms** |  |  |", text)

    def test_many_servers_have_a_row_each(self):
        text = self.report(spikes=spikes())
        self.assertIn("| nginx | 550 ms<br>500 to 600 |", text)
        self.assertIn("| freewheel | 1.00 ms<br>0.0018 × |", text)
        self.assertIn("| freewheel | 2.00 ms | 3.00 ms | 4.00 ms |", text)
        self.assertIn("| reuseport | 0.73 | 0.73 | 0.67 |", text)
        ahead = text[text.index("## Where another is ahead"):text.index("## spikes")]
        self.assertIn("* `spikes`, hot, p99: ats 0.75, freewheel 1.00 ms", ahead, "and not freewheel as it is not")

    def test_plots_are_drawn_or_said_to_be_missing(self):
        text = self.report(hot=CPU, mixed=mixed())
        files = os.listdir(os.path.join(self.dir, "out"))
        if plots.missing():
            self.assertEqual((files, text.count("python3-matplotlib; its plots are left out.")), (["README.md"], 2))
        else:
            self.assertEqual(sorted(files), ["README.md", "hot-cpu.svg", "mixed-latency.svg", "mixed-over-time.svg", "mixed-total.svg"])
            self.assertIn("(mixed-over-time.svg)", text)

    def test_a_quick_run_is_not_for_the_documents(self):
        self.assertIn("A quick run", self.report(True, hot=CPU))
        self.assertIn("a quick run is not for", self.report(True, "--out", os.path.join(experiments.FOLDER, "../docs/benchmarks"), hot=CPU))

    def test_curves_and_times_are_medians_of_the_rounds(self):
        runs = [one(n, [[0, n], [0.5, 2 * n], [0.9, 9], [1, 100]]) for n in (1, 2, 30)]
        del runs[0]["curve_ms"][2]
        self.assertEqual(plots.curve(runs, "curve_ms"), ([0, 0.5], [2, 4]))
        self.assertEqual(plots.over_time(runs), ([0, 0.5, 1, 1.5], [4, 4, 4, 4]), "whole slices only")

    def test_experiments_without_rows_are_those_with_targets_alone(self):
        self.assertEqual(sorted(set(experiments.ALL) - set(rows.ROWS)), ["cachecalls", "cachecosts", "chaos", "floods", "foreign", "http2", "killed", "millions", "powercut", "sickdisks", "slowclients", "small", "stall", "syscalls", "tight", "tls"])


if __name__ == "__main__":
    unittest.main()
