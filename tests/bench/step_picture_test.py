"""bench/step_picture.py on made-up results: python3 tests/bench/step_picture_test.py"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
ROWS = [{"model": "a<b", "eager_seconds": 0.2, "torch_compile_seconds": 0.25, "ours_seconds": 0.1, "roofline": 1.25},
        {"model": "c", "eager_seconds": 0.002, "ours_seconds": 0.003, "roofline": 1.0}]


class StepPicture(unittest.TestCase):
    def draw(self, results):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "results.json", pathlib.Path(folder) / "picture.svg"
            source.write_text(json.dumps(results))
            answer = subprocess.run([sys.executable, str(BENCH / "step_picture.py"), str(source), str(target)],
                                    capture_output=True, text=True)
            return answer.returncode, tree.fromstring(target.read_text()) if target.exists() else None

    def test_bars_are_parts_of_eager(self):
        code, picture = self.draw({"bench": "step_time", "rows": ROWS})
        self.assertEqual(code, 0)
        name = "{http://www.w3.org/2000/svg}"
        widths = [float(each.get("width")) for each in picture.iter(name + "rect") if each.get("x") == "100"
                  and each.get("y") != "25"]
        self.assertEqual(len(widths), 5)
        eager, compiled, ours, other_eager, other = widths
        self.assertAlmostEqual(compiled / eager, 1.25, places=2)
        self.assertAlmostEqual(ours / eager, 0.5, places=2)
        self.assertAlmostEqual(other_eager, eager, places=1)
        self.assertAlmostEqual(other / eager, 1.5, places=2)
        bounds = [float(each.get("x1")) for each in picture.iter(name + "line")]
        self.assertAlmostEqual((bounds[0] - 100) / eager, 0.4, places=2)

    def test_other_results_are_refused(self):
        self.assertEqual(self.draw({"bench": "memory", "rows": ROWS})[0], 2)
        self.assertEqual(self.draw({"bench": "step_time", "rows": []})[0], 2)


if __name__ == "__main__":
    unittest.main()
