"""python3 -m unittest discover -s bench -p '*_test.py': traces, and what caches make of them."""

import unittest

from rig import zipf

ONES = [1] * 10


class Zipf(unittest.TestCase):
    def test_a_trace_is_the_same_for_the_same_seed_and_falls_with_the_rank(self):
        trace = zipf.trace(1000, 20_000, 1.0, 1)
        self.assertEqual(trace, zipf.trace(1000, 20_000, 1.0, 1))
        self.assertNotEqual(trace, zipf.trace(1000, 20_000, 1.0, 2))
        self.assertAlmostEqual(trace.count(0) / trace.count(9), 10, delta=3)

    def test_sizes_have_a_median_and_a_most(self):
        sizes = sorted(zipf.sizes(20_000, 1))
        self.assertAlmostEqual(sizes[10_000] / zipf.MEDIAN, 1, delta=0.1)
        self.assertLessEqual(sizes[-1], zipf.SIZE_MAX)
        self.assertGreater(sum(sizes) / len(sizes), 2 * zipf.MEDIAN)
        self.assertEqual([zipf.stored(size) for size in (1, 3584, 3585)], [4096, 4096, 8192])

    def test_the_second_half_counts(self):
        self.assertEqual(zipf.lru([1, 1, 1, 1], ONES, 1), (2, 2))

    def test_lru_loses_a_loop_and_a_cache_that_knows_the_future_does_not(self):
        loop = [0, 1, 2] * 20
        self.assertEqual(zipf.lru(loop, ONES, 2), (0, 0))
        self.assertEqual(zipf.lru(loop, ONES, 3), (30, 30))
        hits, _ = zipf.belady(loop, ONES, 2)
        self.assertEqual(hits, 20, "two of the three stay")

    def test_what_is_asked_for_no_more_displaces_nothing(self):
        trace = [0, 1, 0, 2, 0, 3, 0, 4, 0, 5]
        self.assertEqual(zipf.belady(trace, ONES, 1), (2, 2))
        self.assertEqual(zipf.lru(trace, ONES, 1), (0, 0))

    def test_nothing_is_above_the_bound(self):
        sizes = zipf.sizes(500, 3)
        for alpha in (0.8, 1.0):
            trace = zipf.trace(500, 5000, alpha, 4)
            for share in (0.02, 0.1, 0.5):
                capacity = int(sum(sizes) * share)
                best = zipf.bound(trace, sizes, capacity)
                least, known = zipf.lru(trace, sizes, capacity), zipf.belady(trace, sizes, capacity)
                self.assertTrue(all(a <= b for a, b in zip(known, best)), (alpha, share))
                self.assertTrue(least[0] < known[0], (alpha, share))
            everything = zipf.bound(trace, sizes, sum(sizes))
            self.assertEqual(everything, zipf.lru(trace, sizes, sum(sizes)))


if __name__ == "__main__":
    unittest.main()
