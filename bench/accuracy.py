#!/usr/bin/env python3
"""Simulated against measured step time and memory of the example models, as pipelines of two processes.

    bench/accuracy.py [--graphpipe build/release/bin/graphpipe] [--rounds 3] [--steps 300] [models...]

For each model one cut into two stages, run with several micro-batch sizes and policies. A round measures the profile
anew, prices the plans with it, and runs their programs at once afterwards, each process on a core of its own: so both
sides of a pair see the machine in the same state. Prints per plan the median of the measured steps, the median ratio of
simulated to measured over the rounds, and the ratio of predicted to measured peak memory per device (with momentum,
which a plan for SGD leaves room for). --realtime (as root) keeps other programs off the two cores while something is
measured.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = ["clip_like", "mmt", "dlrm", "resnet", "gpt2_like"]
BATCH = 8
# policy, micro-batch
PLANS = [("kfkb", 2), ("kfkb", 4), ("gpipe", 2)]


def realtime() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bench:
    def __init__(self, arguments: argparse.Namespace, folder: str, name: str) -> None:
        self.arguments = arguments
        self.source = ROOT / "tests/data/models" / name
        self.model = [str(self.source / "model.onnx"), "--batch", str(BATCH), "--loss",
                      json.loads((self.source / "reference.json").read_text())["loss"],
                      # Micro-batches that stand alone, so that every model has several of them.
                      "--contrastive", "micro-batch", "--batchnorm", "micro-batch"]
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir()

    def ask(self, words: list[str], measures: bool = False) -> dict:
        answer = subprocess.run([self.arguments.graphpipe, *words, "--json", "--quiet"], check=True,
                                stdout=subprocess.PIPE, text=True,
                                preexec_fn=realtime if measures and self.arguments.realtime else None)
        return json.loads(answer.stdout)

    def profile(self, measures: bool) -> str:
        path = str(self.folder / "profile.json")
        self.ask(["profile", *self.model, "--keep", str(self.folder / "profile"), "--data", str(self.source / "data"),
                  "-o", path], measures)
        return path

    def plan(self, cut: str, policy: str, profile: str, verb: str, output: str) -> dict:
        return self.ask([verb, *self.model, "--devices", "2", "--plan", cut, "--policy", policy, "--profile", profile,
                         "-o", output])

    def run(self, folder: str) -> dict:
        port = free_port()
        cores = sorted(os.sched_getaffinity(0))

        def start(rank: int) -> subprocess.Popen:
            def prepare() -> None:
                os.sched_setaffinity(0, {cores[rank % len(cores)]})
                if self.arguments.realtime:
                    realtime()

            return subprocess.Popen(
                [f"{folder}/build/device{rank}", "--folder", folder, "--rank", str(rank), "--world-size", "2",
                 "--master-address", "127.0.0.1", "--master-port", str(port), "--transport", "shm", "--steps",
                 str(self.arguments.steps), "--lr", "0.01", "--momentum", "0.9", "--data", str(self.source / "data"),
                 "--json"],
                stdout=subprocess.PIPE, text=True, preexec_fn=prepare)

        programs = [start(0), start(1)]
        outputs = [program.communicate()[0] for program in programs]
        if any(program.returncode for program in programs):
            raise SystemExit("a device program failed")
        return json.loads(outputs[0])


def cut_of(base: str, size: int, path: str) -> str:
    plan = json.loads(pathlib.Path(base).read_text())
    plan.pop("schedule", None)
    for stage in plan["stages"]:
        stage["micro_batch"] = size
    pathlib.Path(path).write_text(json.dumps(plan))
    return path


def measure(arguments: argparse.Namespace, folder: str, name: str) -> list[tuple]:
    bench = Bench(arguments, folder, name)
    profile = bench.profile(False)
    base = str(bench.folder / "base.json")
    bench.ask(["plan", *bench.model, "--devices", "2", "--stages", "2", "--micro-batch", "2",
               "-o", base])
    pairs: dict[tuple, list] = {plan: [] for plan in PLANS}
    for _ in range(arguments.rounds):
        profile = bench.profile(True)
        for policy, size in PLANS:
            cut = cut_of(base, size, str(bench.folder / f"cut{size}.json"))
            plan = bench.plan(cut, policy, profile, "compile", str(bench.folder / "out"))
            result = bench.run(str(bench.folder / "out"))
            step = statistics.median(result["step_seconds"][arguments.steps // 10:])
            memory = [p / m for p, m in zip(plan["peak_bytes"], result["peak_bytes"])]
            pairs[policy, size].append((plan["simulated_step"], step, memory))
    rows = []
    for (policy, size), measured in pairs.items():
        ratio = statistics.median(simulated / step for simulated, step, _ in measured)
        step = statistics.median(step for _, step, _ in measured)
        memory = measured[0][2]
        rows.append((ratio, memory))
        print(f"{name:10} {policy:6} {size:2} {1e3 * step:9.3f} ms {ratio:7.3f}   "
              + " ".join(f"{m:.3f}" for m in memory), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("models", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    print("model      policy mb  measured   simulated/measured   predicted/measured peak per device")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            rows += measure(arguments, folder, name)
    errors = sorted(abs(ratio - 1) for ratio, _ in rows)
    memory = [m for _, of_plan in rows for m in of_plan]
    print(f"{len(rows)} plans: step time off by {100 * statistics.median(errors):.1f} % (median), "
          f"{100 * errors[-1]:.1f} % (worst); peak memory {min(memory):.3f} to {max(memory):.3f} of the measured one")


if __name__ == "__main__":
    main()
