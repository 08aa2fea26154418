"""python3 -m unittest discover -s bench -p '*_test.py': the list of experiments is that of the folder, and each takes what `run` gives."""

import argparse
import os
import unittest

from rig import experiments

SHARED = {"freewheel": "f", "nginx": "n", "dir": "/d", "server_core": 0, "load_core": 1, "origin_core": 2, "ats": None, "also": None, "quick": True}


def text(name):
    with open(experiments.script(name)) as f:
        return f.read()


class Experiments(unittest.TestCase):
    def test_the_list_is_that_of_the_folder(self):
        scripts = [name for name in os.listdir(experiments.FOLDER) if os.access(experiments.script(name), os.X_OK) and os.path.isfile(experiments.script(name))]
        self.assertEqual(sorted(scripts), sorted([*experiments.ALL, *experiments.APART, "run", "report"]))

    def test_each_says_what_it_is_and_has_a_quick_mode(self):
        for name in experiments.ALL:
            self.assertTrue(20 < len(experiments.about(name)) < 250, name)
            self.assertRegex(text(name), r"options\.parse\(.+(rounds|seconds|entries|kills|objects)=", name)

    def test_options_go_to_those_that_have_them(self):
        for name in experiments.ALL:
            command = experiments.command(name, argparse.Namespace(**{**SHARED, "ats": "/t", "also": [("haproxy", "/h")]}), "/out.json")
            self.assertEqual("--origin-core" in command, "options.add_origin" in text(name), name)
            self.assertEqual("--ats" in command, '"--ats"' in text(name), name)
            self.assertEqual("haproxy=/h" in command, "add_peers" in text(name), name)
            self.assertEqual((command[0], command[-1], "/out.json" in command), (experiments.script(name), "--quick", True))

    def test_names_are_chosen_once_and_in_order(self):
        self.assertEqual(experiments.chosen(["all"]), experiments.ALL)
        self.assertEqual(experiments.chosen(["mixed", "hot", "mixed"]), ["hot", "mixed"])
        with self.assertRaisesRegex(SystemExit, "no such experiment: nothing"):
            experiments.chosen(["hot", "nothing"])


if __name__ == "__main__":
    unittest.main()
