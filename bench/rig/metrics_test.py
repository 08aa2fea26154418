"""python3 -m unittest discover -s bench -p '*_test.py': what is made of histograms in Prometheus text."""

import http.server
import threading
import unittest

from rig import metrics

TEXT = """# TYPE a_seconds histogram
a_seconds_bucket{loop="0",le="0.001"} %d
a_seconds_bucket{loop="0",le="0.01"} %d
a_seconds_bucket{loop="0",le="+Inf"} %d
a_seconds_count{loop="0"} 7
b_seconds_bucket{pool="x",le="+Inf"} 7
"""


class Answer(http.server.BaseHTTPRequestHandler):
    counts = []

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write((TEXT % self.counts.pop(0)).encode())

    def log_message(self, *_):
        pass


class Metrics(unittest.TestCase):
    def test_only_what_came_between_counts(self):
        Answer.counts = [(100, 100, 100), (190, 199, 200)]
        with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
            threading.Thread(target=lambda: [server.handle_request() for _ in range(2)], daemon=True).start()
            address = "127.0.0.1:%d" % server.server_port
            loops = metrics.between(metrics.read(address), metrics.read(address), "a_seconds")
        self.assertEqual(loops, [[(0.001, 90), (0.01, 99), (float("inf"), 100)]])
        self.assertAlmostEqual(metrics.percentile(loops[0], 0.45), 0.0005)
        self.assertAlmostEqual(metrics.percentile(loops[0], 0.99), 0.01)
        self.assertEqual(metrics.percentile(loops[0], 1), 0.01, "of the open end only where it begins is known")
        self.assertIsNone(metrics.percentile([(1.0, 0)], 0.5))


if __name__ == "__main__":
    unittest.main()
