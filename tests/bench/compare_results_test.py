"""bench/compare_results.py on made-up results: python3 tests/bench/compare_results_test.py"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import results


class CompareResults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def save(self, name, rows, bench="steps"):
        path = str(pathlib.Path(self.folder.name) / name)
        results.save(path, bench, rows, key=["model"], lower_is_better=["ratio"])
        return path

    def compare(self, *paths):
        return subprocess.run([sys.executable, str(BENCH / "compare_results.py"), *paths], capture_output=True, text=True)

    def test_ratios_and_exit_codes(self):
        before = self.save("before", [{"model": "a", "ratio": 0.5}, {"model": "b", "ratio": 1.0}])
        same = self.compare(before, before)
        self.assertEqual(same.returncode, 0)
        self.assertIn("1.000", same.stdout)
        worse = self.compare(before, self.save("after", [{"model": "a", "ratio": 0.6}, {"model": "c", "ratio": 1.0}]))
        self.assertEqual(worse.returncode, 1)
        self.assertIn("1.200  worse", worse.stdout)
        self.assertIn("only in one file: b", worse.stdout)
        self.assertIn("only in one file: c", worse.stdout)

    def test_what_was_0_or_is_no_more_is_worse(self):
        before = self.save("before", [{"model": "a", "ratio": 0.0}, {"model": "b", "ratio": 1.0}])
        for row in ({"model": "a", "ratio": 0.4}, {"model": "b", "ratio": None}):
            self.assertEqual(self.compare(before, self.save("after", [row])).returncode, 1)
        self.assertEqual(self.compare(before, before).returncode, 0)

    def test_other_files_are_refused(self):
        before = self.save("before", [])
        self.assertEqual(self.compare(before, self.save("other", [], bench="memory")).returncode, 2)
        no_results = pathlib.Path(self.folder.name) / "text"
        no_results.write_text("{}")
        self.assertEqual(self.compare(before, str(no_results)).returncode, 2)
        self.assertEqual(self.compare(before, self.folder.name + "/missing").returncode, 2)


if __name__ == "__main__":
    unittest.main()
