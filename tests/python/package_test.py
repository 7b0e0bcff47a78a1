"""The Python package against the command: answers become typed objects, errors exceptions, batches training.

    package_test.py GRAPHPIPE          what needs neither torch nor compiled stages
    package_test.py GRAPHPIPE train    compiles, trains and verifies too
"""

import array
import dataclasses
import fractions
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import graphpipe  # noqa: E402
from graphpipe import results  # noqa: E402
import graphpipe_feed  # noqa: E402
from graphpipe.command import answer_of, call, warn_of, words_of  # noqa: E402

MODEL = ROOT / "tests/data/models/dlrm/model.onnx"
LOSS = "bce:logit,click"


def keys_of(kind):
    return {field.name for field in dataclasses.fields(kind)}


class Flags(unittest.TestCase):
    def test_keywords_are_flags(self):
        self.assertEqual(words_of({"micro_batch": 4, "json": True, "quiet": False, "loss": None, "freeze": ["a", "b"]}),
                         ["--micro-batch", "4", "--json", "--freeze", "a", "--freeze", "b"])
        for betas in ("0.9,0.99", (0.9, 0.99)):
            self.assertEqual(words_of({"save": Path("w"), "betas": betas}), ["--save", "w", "--betas", "0.9,0.99"])
        self.assertEqual(words_of({"betas": 0.9}), ["--betas", "0.9"])  # which the command refuses

    def test_numbers_of_other_libraries_are_numbers(self):
        number = SimpleNamespace(ndim=0, item=lambda: 0.5)  # as a tensor of one number
        self.assertEqual(words_of({"lr": number}), ["--lr", "0.5"])
        self.assertEqual(words_of({"batch": fractions.Fraction(8)}), ["--batch", "8"])  # as NumPy's, no int and no float

    def test_a_file_whose_name_begins_with_a_dash_is_no_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            try:
                Path("-m.onnx").symlink_to(MODEL)
                self.assertGreater(len(graphpipe.inspect("-m.onnx").inputs), 0)
            finally:
                os.chdir(before)

    def test_what_a_run_told_is_a_warning(self):
        said = "step 1 of 2\nwarning[bad-data] 'x': 1 tensor is not read\n" + "".join(f"warning[a] step {i}\n" for i in range(20))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of(said, 1)
        self.assertEqual(len(caught), 11)
        self.assertEqual(str(caught[0].message), "warning[bad-data] 'x': 1 tensor is not read")
        self.assertEqual(str(caught[10].message), "and 11 more like these")

    def test_an_error_has_what_the_programs_said(self):
        answer = '{"diagnostics": [{"severity": "error", "code": "bad-data", "origin": "", "message": "see stderr", "hint": ""}]}'
        said = "error[bad-data] step 1: row 0 is 50\nerror[bad-data] see stderr\nstep 1 of 2\nerror[bad-data] step 1: row 0 is 50\n"
        with self.assertRaises(graphpipe.InputRefused) as caught:
            answer_of("run", 3, answer, said)
        self.assertEqual(str(caught.exception).count("row 0 is 50"), 1)
        self.assertEqual(str(caught.exception).count("see stderr"), 1)
        self.assertNotIn("step 1 of 2", str(caught.exception))


class Padding(unittest.TestCase):
    """What fills up smaller arrays has the declared type, whatever a buffer calls it."""

    def padded(self, kind, numbers, declared, fill):
        view = memoryview(array.array(kind, numbers)).cast("B").cast(kind, [2, len(numbers) // 2])
        return bytes(graphpipe_feed._bytes_of("x", view, graphpipe_feed.Input(declared, (2, 4)), fill))

    def test_integers(self):
        for kind in "lq":  # NumPy's and torch's int64 are "l"
            self.assertEqual(list(array.array("q", self.padded(kind, [1, 2, 3, 4, 5, 6], "int64", -100))),
                             [1, 2, 3, -100, 4, 5, 6, -100])
        self.assertEqual(list(self.padded("B", [1, 2, 3, 4], "uint8", 255)), [1, 2, 255, 255, 3, 4, 255, 255])
        for wrong in (0.5, 1 << 63):
            with self.assertRaises(graphpipe.FeedError):
                self.padded("q", [1, 2], "int64", wrong)
        for kind, declared in (("q", "int64"), ("f", "float32"), ("h", "bfloat16")):
            with self.assertRaisesRegex(graphpipe.FeedError, "cannot be filled up with 'a'"):
                self.padded(kind, [1, 2], declared, "a")

    def test_what_does_not_fit_is_named_as_the_run_names_types(self):
        view = memoryview(array.array("d", [1, 2]))
        with self.assertRaisesRegex(graphpipe.FeedError, r"the batch has float64\[2\] for 'x'; the run takes float32\[2\]: make it float32 first"):
            graphpipe_feed._bytes_of("x", view, graphpipe_feed.Input("float32", (2,)))
        with self.assertRaisesRegex(graphpipe.FeedError, r"takes float64\[3\]: every batch has the plan's 3 samples"):
            graphpipe_feed._bytes_of("x", view, graphpipe_feed.Input("float64", (3,)))

    def test_bfloat16_is_the_upper_half_of_a_float32(self):
        self.assertEqual(list(array.array("h", self.padded("h", [1, 2], "bfloat16", 1.0))),
                         [1, 0x3F80, 0x3F80, 0x3F80, 2, 0x3F80, 0x3F80, 0x3F80])


class Sockets(unittest.TestCase):
    def test_a_temporary_folder_whose_path_is_too_long_is_named_before_a_run_starts(self):
        before = tempfile.tempdir
        with tempfile.TemporaryDirectory() as folder:
            try:
                tempfile.tempdir = str(Path(folder) / ("long" * 30))
                os.mkdir(tempfile.tempdir)
                with self.assertRaisesRegex(ValueError, "107 bytes at most; set TMPDIR"):
                    graphpipe.Trainer("no folder").fit([{}])
            finally:
                tempfile.tempdir = before


class EndedEarly(unittest.TestCase):
    def test_the_best_plan_so_far_is_an_answer(self):
        answer = {"complete": False, "stages": [], "diagnostics": []}
        self.assertEqual(answer_of("plan", 7, json.dumps(answer), ""), answer)
        answer["diagnostics"] = [{"severity": "error", "code": "interrupted", "message": "no plan", "hint": "wait"}]
        with self.assertRaises(graphpipe.Interrupted):
            answer_of("plan", 7, json.dumps(answer), "")


class Answers(unittest.TestCase):
    """Every key that a verb answers is a field of its type: nothing is lost."""

    def check(self, kind, answer):
        self.assertEqual(set(answer) - keys_of(kind), set())
        return results.parsed(kind, answer)

    def test_inspect_and_lint(self):
        answer = call("inspect", MODEL)
        inspection = self.check(results.Inspection, answer)
        self.assertEqual(set(answer["parameters"][0]), keys_of(results.Parameter))
        self.assertTrue(all(parameter.trained for parameter in inspection.parameters))
        self.assertTrue(self.check(results.Lint, call("lint", MODEL, loss=LOSS)).passed)

    def test_plan_and_simulate(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.json"
            answer = call("plan", MODEL, devices=2, batch=8, loss=LOSS, planner="sequential", output=path)
            summary = self.check(results.PlanSummary, answer)
            self.assertEqual(set(answer["stages"][0]), keys_of(results.Stage))
            self.assertEqual(set(answer["machine"]), keys_of(results.Machine))
            simulation = self.check(results.Simulation, call("simulate", path))
            self.assertEqual(simulation.plan_digest, summary.plan_digest)
            self.assertEqual(len(simulation.memory), 2)

    def test_compare(self):
        answer = call("compare", MODEL, devices=2, batch=8, loss=LOSS, planners="graphpipe,sequential", policies="kfkb")
        comparison = self.check(results.Comparison, answer)
        self.assertEqual(sum(plan.best for plan in comparison.plans), 1)
        for plan in answer["plans"]:
            self.assertEqual(set(plan) - keys_of(results.ComparedPlan), set())

    def test_an_asynchronous_plan_and_a_planner_without_one(self):
        self.check(results.PlanSummary, call("plan", MODEL, devices=2, batch=8, loss=LOSS, planner="sequential", policy="2bw"))
        answer = call("compare", MODEL, devices=2, batch=8, loss=LOSS, planners="sequential,equal-split", policies="2bw,zb-v", stages=2)
        for plan in answer["plans"]:
            self.assertEqual(set(plan) - keys_of(results.ComparedPlan), set())
        plans = self.check(results.Comparison, answer).plans
        self.assertTrue(any(plan.steady_step for plan in plans))
        self.assertTrue(any(plan.error for plan in plans))

    def test_a_plan_shows_its_picture(self):
        plan = graphpipe.plan(MODEL, devices=2, batch=8, loss=LOSS, planner="sequential")
        self.assertTrue(plan._repr_svg_().lstrip().startswith("<svg"))
        self.assertRegex(repr(plan), r"^Plan\(2 stages of sequential under ")
        self.assertEqual(sum(len(stage.nodes) for stage in plan.stages),
                         sum(len(stage.nodes) for stage in plan.summary.stages))


class Errors(unittest.TestCase):
    def test_exit_codes_are_exceptions_with_all_problems(self):
        with self.assertRaises(graphpipe.InputRefused) as refused:
            graphpipe.plan("nowhere.onnx", devices=2, batch=8, loss=LOSS)
        self.assertEqual(refused.exception.exit_code, 3)
        self.assertIn("nowhere.onnx", str(refused.exception))
        with self.assertRaises(graphpipe.UsageError) as usage:
            graphpipe.plan(MODEL, devicse=2)
        self.assertIn("--devicse", str(usage.exception))
        with self.assertRaises(graphpipe.GraphPipeError):
            graphpipe.plan(MODEL, devices=2, batch=8, loss="bce:nothing,click")

    def test_lint_answers_instead(self):
        self.assertFalse(graphpipe.lint(MODEL, loss="bce:nothing,click").passed)


def write_facts(model, **facts):
    facts = {"schema": "graphpipe.module/1", "model": hashlib.sha256(model.read_bytes()).hexdigest(), **facts}
    Path(f"{model}.module.json").write_text(json.dumps(facts))
    return facts


class Modules(unittest.TestCase):
    def test_a_stage_has_the_outermost_modules_that_are_its_alone(self):
        flags = {"devices": 2, "stages": 2, "batch": 8, "loss": LOSS, "planner": "sequential"}
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model.onnx"
            model.write_bytes(MODEL.read_bytes())
            first, second = [stage.nodes for stage in graphpipe.plan(model, **flags).stages]
            paths = {first[0]: "a.0.x", first[1]: "a.0.y", second[0]: "a.1", second[1]: "b.c", second[2]: "b.d"}
            write_facts(model, modules=[{"node": node, "path": path} for node, path in paths.items()])
            plan = graphpipe.plan(model, **flags)
            self.assertEqual([stage.modules for stage in plan.stages], [["a.0"], ["a.1", "b"]])
            self.assertEqual([stage.modules for stage in graphpipe.Plan(plan.path).stages], [["a.0"], ["a.1", "b"]])

    def test_facts_beside_a_model_freeze_and_must_be_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model.onnx"
            model.write_bytes(MODEL.read_bytes())
            before = graphpipe.inspect(model)
            name = before.parameters[0].name
            facts = write_facts(model, frozen=[name])
            after = {parameter.name: parameter for parameter in graphpipe.inspect(model).parameters}
            self.assertTrue(before.parameters[0].trained)
            self.assertFalse(after[name].trained)
            facts["model"] = "0" * 64
            Path(f"{model}.module.json").write_text(json.dumps(facts))
            with self.assertRaises(graphpipe.InputRefused) as refused:
                graphpipe.inspect(model)
            self.assertIn("another model file", str(refused.exception))


class Paced:
    """Batches that come slowly enough for a run to be seen, and how often they were begun."""

    def __init__(self, batches):
        self.batches, self.begun = batches, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.begun += 1
        for batch in self.batches:
            time.sleep(0.05)
            yield batch


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = graphpipe.compile(MODEL, Path(cls.folder.name) / "out", devices=2, stages=2, batch=4, loss=LOSS,
                                        planner="sequential")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def batches(self, count):
        inputs = [line.split() for line in (Path(self.program.folder) / "data.txt").read_text().split("\n")
                  if line.startswith("input ")]
        names = [words[1] for words in inputs]
        width = [json.loads(words[5]) for words in inputs]
        out = []
        for step in range(count):
            batch = {}
            for name, shape, words in zip(names, width, inputs):
                size = 4
                for dim in shape[1:]:
                    size *= dim
                integers = words[2] == "int64"
                flat = array.array("q" if integers else "f", [(step + i) % 2 if integers else (i % 7) / 7 for i in range(size)])
                batch[name] = memoryview(flat).cast("B").cast(flat.typecode, [4] + shape[1:])
            out.append(batch)
        return out

    def test_a_loader_trains_and_each_step_is_told_once(self):
        seen = []
        batches = self.batches(3)
        run = graphpipe.Trainer(self.program, lr=0.1).fit(batches, epochs=2, on_step=seen.append)
        self.assertEqual([step.step for step in seen], [1, 2, 3, 4, 5, 6])
        self.assertEqual(run.steps, 6)
        self.assertLess(run.losses[3], run.losses[0])
        for step, loss in zip(seen, run.losses):
            self.assertAlmostEqual(step.loss, loss, places=5)
        with tempfile.TemporaryDirectory() as folder:
            weights, log = Path(folder) / "w.safetensors", Path(folder) / "run.jsonl"
            graphpipe.Trainer(self.program, lr=0.1, save=weights, log=log).fit(batches)
            self.assertTrue(weights.exists() and log.exists())
            with self.assertRaises(ValueError):
                graphpipe.Trainer(self.program, log=log).fit(batches, on_step=seen.append)
        # A loader that can be read once, with more than is asked for.
        once = graphpipe.Trainer(self.program, lr=0.1).fit((b for b in batches + [{"nothing": 0}]), steps=3)
        self.assertEqual(once.losses, run.losses[:3])
        as_tuples = graphpipe.Trainer(self.program, names=list(batches[0]), lr=0.1)
        self.assertEqual(as_tuples.fit([tuple(b.values()) for b in batches], epochs=2).losses, run.losses)

    def test_smaller_batches_are_filled_up(self):
        batches = self.batches(2)
        name = next(name for name, view in batches[0].items() if view.format == "f" and view.ndim == 2)
        def cut(view, fill):
            rows = [view.tolist()[i][:-1] + fill for i in range(view.shape[0])]
            flat = array.array("f", [number for row in rows for number in row])
            return memoryview(flat).cast("B").cast("f", [len(rows), len(rows[0])])
        trainer = graphpipe.Trainer(self.program, lr=0.1)
        by_hand = trainer.fit([{**batch, name: cut(batch[name], [0.5])} for batch in batches])
        smaller = [{**batch, name: cut(batch[name], [])} for batch in batches]
        self.assertEqual(trainer.fit(smaller, pad={name: 0.5}).losses, by_hand.losses)
        with self.assertRaisesRegex(graphpipe.FeedError, "pad names .'other'., which the run does not take"):
            trainer.fit(smaller, pad={name: 0.5, "other": 0})
        with self.assertRaises(graphpipe.FeedError):
            trainer.fit(smaller)

    def test_what_does_not_fit_is_raised_here(self):
        with self.assertRaises(graphpipe.FeedError):
            graphpipe.Trainer(self.program).fit([{"nothing": array.array("f", [1])}], steps=1)
        with self.assertRaises(graphpipe.UsageError):
            graphpipe.Trainer(self.program, betas="0.9,0.9").fit(self.batches(1))
        with self.assertRaises(ZeroDivisionError):
            graphpipe.Trainer(self.program).fit((1 // 0 for _ in range(1)), steps=1)
        with self.assertRaises(ValueError):
            graphpipe.Trainer(self.program).fit(iter(()))
        for nothing in ({"loader": []}, {"loader": self.batches(1), "epochs": 0}, {"loader": self.batches(1), "steps": 0}):
            with self.assertRaisesRegex(ValueError, "nothing to train on"):
                graphpipe.Trainer(self.program).fit(**nothing)
        with self.assertRaisesRegex(graphpipe.FeedError, "a list for"):
            graphpipe.Trainer(self.program).fit([{**self.batches(1)[0], next(iter(self.batches(1)[0])): [1, 2]}])

    def test_what_a_batch_has_too_much_or_too_little_of_is_named_with_the_cure(self):
        batches = self.batches(1)
        more = [{**batches[0], "mask": batches[0][next(iter(batches[0]))]}]
        with self.assertRaisesRegex(graphpipe.FeedError, "'mask'.* beyond what the program takes: Trainer\\(names="):
            graphpipe.Trainer(self.program).fit(more)
        run = graphpipe.Trainer(self.program, names=list(batches[0])).fit(more)
        self.assertEqual(run.losses, graphpipe.Trainer(self.program).fit(batches).losses)
        half = {name: view.cast("B")[:view.nbytes // 2].cast(view.format, [view.shape[0] // 2, *view.shape[1:]])
                for name, view in batches[0].items()}
        with self.assertRaisesRegex(graphpipe.FeedError, r"drop_last=True"):
            graphpipe.Trainer(self.program).fit([*batches, half])
        with self.assertRaisesRegex(ValueError, "shuffle is for data in files"):
            graphpipe.Trainer(self.program, shuffle=True).fit(batches)

    def test_a_loader_may_take_its_time(self):
        """Longer than ranks wait for each other without a word."""
        def slow():
            time.sleep(6)
            yield from batches

        batches = self.batches(2)
        self.assertEqual(graphpipe.Trainer(self.program, lr=0.1).fit(slow(), steps=2).steps, 2)

    def test_a_compiled_folder_is_reported_with_its_run_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            log, page = Path(folder) / "run.jsonl", Path(folder) / "report.html"
            self.program.run(steps=3, log=log)
            call("report", self.program.folder, output=page)
            alone = page.read_text(encoding="utf-8")
            call("report", self.program.folder, output=page, measured=log)
            beside = page.read_text(encoding="utf-8")
        for stage in range(len(self.program.plan.stages)):
            self.assertIn(f"stage {stage}", alone)
        self.assertNotIn(">measured<", alone)
        self.assertIn(">measured<", beside)

    def test_a_run_whose_device_dies_starts_again_and_is_fed_from_its_checkpoint(self):
        batches = self.batches(40)
        seen = []

        def kill_a_device(step):
            seen.append(step.step)
            if step.step == 20:
                os.kill(self.device_processes()[0], signal.SIGKILL)

        with tempfile.TemporaryDirectory() as folder:
            flags = {"restarts": 1, "checkpoint": Path(folder) / "checkpoints", "checkpoint_every": 5}
            trainer = graphpipe.Trainer(self.program, lr=0.1)
            paced = Paced(batches)
            run = trainer.fit(paced, on_step=kill_a_device, **flags)
            self.assertEqual(seen, list(range(1, 41)))
            with self.assertRaisesRegex(ValueError, "read only once"):
                trainer.fit(iter(batches), steps=40, **flags)
        self.assertEqual(paced.begun, 2)
        self.assertEqual(run.losses, trainer.fit(batches).losses[-len(run.losses):])

    def device_processes(self):
        found = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                program = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode()
            except OSError:
                continue  # it has ended
            if program.startswith(str(Path(self.program.folder) / "build/device")):
                found.append(int(process))
        return found

    def test_a_run_that_keeps_what_random_numbers_taught_it_warns(self):
        with tempfile.TemporaryDirectory() as folder, self.assertWarnsRegex(UserWarning, "trains on random numbers"):
            self.program.run(steps=1, save=Path(folder) / "w.safetensors")

    def test_it_verifies(self):
        answer = call("verify", self.program.folder, steps=2)
        self.assertEqual(set(answer) - keys_of(results.Verification), set())
        self.assertTrue(results.parsed(results.Verification, answer).passed)
        # What asynchronous schedules are not compared by is no failure.
        self.assertIsNone(results.parsed(results.Verification, {"bitwise": True, "passed": True, "asynchronous": True}).by_tolerance)


if __name__ == "__main__":
    os.environ["GRAPHPIPE_BINARY"] = sys.argv[1]
    os.environ.setdefault("GRAPHPIPE_CALIBRATION", "default")
    suite = [Flags, Padding, Sockets, EndedEarly, Answers, Errors, Modules] + ([Training] if sys.argv[2:] == ["train"] else [])
    loader = unittest.defaultTestLoader
    result = unittest.TextTestRunner().run(unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in suite))
    sys.exit(not result.wasSuccessful())
