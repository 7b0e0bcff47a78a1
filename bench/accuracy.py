#!/usr/bin/env python3
"""Simulated against measured step time and memory of the example models, as pipelines, replicas and both.

    bench/accuracy.py [--graphpipe build/release/bin/graphpipe] [--rounds 3] [--steps 300] [models...]

For each model one cut into two stages, run with several micro-batch sizes and policies; models whose samples do not mix
also as one or two stages with replicas, "2+1" for two replicas of the first stage and one of the second. `wide`, which
is measured where it is named, is four square layers of --width, 1024 where it is not given, so that its all-reduce moves
16 MB (it needs `onnx`: .deps/oracle/bin/python). A round measures
the profile anew, prices the plans with it, and runs their programs at once afterwards, each process on a core of its
own: so both sides of a pair see the machine in the same state. Prints per plan the median of the measured steps, the
median ratio of simulated to measured over the rounds, and the ratio of predicted to measured peak memory per device.
Steps are timed without momentum, as plans for SGD price them; memory is measured in a short run with it, which they
leave room for. A plan with more processes than cores is marked *, compared with the
plan's `step_on_cores` where it has one, and not counted in the last line; `paced` is its simulated step over that of processes
which sleep where they would compute (docs/pace.md). --realtime (as root) keeps other programs off the cores while something is measured.
"""

import argparse
import json
import os
import pathlib
import secrets
import socket
import statistics
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = ["clip_like", "mmt", "dlrm", "resnet", "gpt2_like"]  # without `wide`, which needs another package
REPLICATED = ["dlrm", "gpt2_like", "wide"]
BATCH = 8
LAYERS = 4  # of `wide`
FEW_STEPS = 20  # in which memory reaches its peak
# Replicas of each stage, policy, micro-batch.
PIPELINES = [("1+1", "kfkb", 2), ("1+1", "kfkb", 4), ("1+1", "gpipe", 2)]
REPLICAS = [("2", "kfkb", 8), ("2", "kfkb", 4), ("3", "kfkb", 8), ("4", "kfkb", 8), ("2+1", "kfkb", 4), ("1+2", "kfkb", 4),
            ("2+2", "kfkb", 4)]


def plans_of(name: str) -> list[tuple[str, str, int]]:
    return PIPELINES + (REPLICAS if name in REPLICATED else [])


def replicas_of(layout: str) -> list[int]:
    return [int(count) for count in layout.split("+")]


def is_crowded(layout: str) -> bool:
    return sum(replicas_of(layout)) > len(os.sched_getaffinity(0))


def write_wide(folder: pathlib.Path, width: int) -> None:
    """A row of linear layers, its data, and what the other models' folders say of their losses."""
    from onnx import TensorProto, helper, save_model
    weights = [(f"w{i}", [((7 * k + i) % 13 - 6) / 200 for k in range(width * width)]) for i in range(LAYERS)]
    tensors = [helper.make_tensor(name, TensorProto.FLOAT, [width, width], values) for name, values in weights]
    nodes = []
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"], name=f"linear{i}"))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"h{i + 1}"], name=f"relu{i}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]) for name in ("h0", f"h{LAYERS}")]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], tensors)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
               folder / "model.onnx")
    (folder / "reference.json").write_text(json.dumps({"loss": f"mse:h{LAYERS},label"}))
    (folder / "data").mkdir()
    for name in ("h0", "label"):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({BATCH}, {width}), }}".ljust(117) + "\n"
        numbers = struct.pack(f"<{BATCH * width}f", *((k % 11) / 11 for k in range(BATCH * width)))
        (folder / "data" / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
                                                      + header.encode() + numbers)


def realtime() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bench:
    def __init__(self, arguments: argparse.Namespace, folder: str, name: str) -> None:
        self.arguments = arguments
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir()
        self.source = self.folder if name == "wide" else ROOT / "tests/data/models" / name
        if name == "wide":
            write_wide(self.folder, arguments.width)
        loss = json.loads((self.source / "reference.json").read_text())["loss"]
        # Micro-batches that stand alone, so that every model has several of them.
        alone = ["--contrastive", "micro-batch"] if loss.startswith("contrastive") else []
        if name == "resnet":
            alone += ["--batchnorm", "micro-batch"]
        self.model = [str(self.source / "model.onnx"), "--batch", str(BATCH), "--loss", loss, *alone]

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

    def plan(self, cut: str, devices: int, policy: str, profile: str, verb: str, output: str) -> dict:
        return self.ask([verb, *self.model, "--devices", str(devices), "--plan", cut, "--policy", policy, "--profile",
                         profile, "-o", output])

    def run(self, folder: str, ranks: int, steps: int, momentum: float) -> dict:
        port = free_port()
        cores = sorted(os.sched_getaffinity(0))
        environment = os.environ | {"GRAPHPIPE_SECRET": secrets.token_hex(32)}

        def start(rank: int) -> subprocess.Popen:
            def prepare() -> None:
                os.sched_setaffinity(0, {cores[rank % len(cores)]})
                if self.arguments.realtime:
                    realtime()

            return subprocess.Popen(
                [f"{folder}/build/device", "--folder", folder, "--rank", str(rank), "--world-size", str(ranks),
                 "--master-address", "127.0.0.1", "--master-port", str(port), "--transport", "shm", "--steps",
                 str(steps), "--lr", "0.01", "--momentum", str(momentum), "--data", str(self.source / "data"),
                 "--json"],
                stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=prepare)

        programs = [start(rank) for rank in range(ranks)]
        outputs = [program.communicate()[0] for program in programs]
        if any(program.returncode for program in programs):
            raise SystemExit("a device program failed")
        return json.loads(outputs[0])

    def paced(self, folder: str) -> float:
        return self.ask(["run", folder, "--pace", "--steps", "3"], measures=True)["measured_step"]


def cut_of(base: str, layout: str, size: int, path: str) -> str:
    plan = json.loads(pathlib.Path(base).read_text())
    plan.pop("schedule", None)
    first = 0
    for stage, replicas in zip(plan["stages"], replicas_of(layout), strict=True):
        stage["micro_batch"] = size
        stage["devices"] = list(range(first, first + replicas))
        first += replicas
    pathlib.Path(path).write_text(json.dumps(plan))
    return path


def measure(arguments: argparse.Namespace, folder: str, name: str) -> list[tuple]:
    bench = Bench(arguments, folder, name)
    profile = bench.profile(False)
    bases = {}
    for stages in (1, 2):
        bases[stages] = str(bench.folder / f"base{stages}.json")
        bench.ask(["plan", *bench.model, "--devices", str(stages), "--stages", str(stages), "--micro-batch", "2",
                   "-o", bases[stages]])
    pairs: dict[tuple, list] = {plan: [] for plan in plans_of(name) if plan[0] in arguments.layouts}
    for _ in range(arguments.rounds):
        profile = bench.profile(True)
        for layout, policy, size in pairs:
            replicas = replicas_of(layout)
            cut = cut_of(bases[len(replicas)], layout, size, str(bench.folder / "cut.json"))
            plan = bench.plan(cut, sum(replicas), policy, profile, "compile", str(bench.folder / "out"))
            out = str(bench.folder / "out")
            step = statistics.median(bench.run(out, sum(replicas), arguments.steps, 0)["step_seconds"][arguments.steps // 10:])
            peaks = bench.run(out, sum(replicas), FEW_STEPS, 0.9)["peak_bytes"]
            memory = [p / m for p, m in zip(plan["peak_bytes"], peaks)]
            simulated = plan.get("step_on_cores", plan["simulated_step"])
            paced = plan["simulated_step"] / bench.paced(out) if is_crowded(layout) else None
            pairs[layout, policy, size].append((simulated, step, memory, paced))
    rows = []
    for (layout, policy, size), measured in pairs.items():
        ratio = statistics.median(simulated / step for simulated, step, *_ in measured)
        step = statistics.median(step for _, step, *_ in measured)
        memory = measured[0][2]
        crowded = is_crowded(layout)
        paced = f"{statistics.median(paced for *_, paced in measured):6.3f}" if crowded else 6 * " "
        rows.append((ratio, memory, crowded))
        print(f"{name:10} {layout:4}{'*' if crowded else ' '} {policy:6} {size:2} {1e3 * step:9.3f} ms {ratio:7.3f} {paced}   "
              + " ".join(f"{m:.3f}" for m in memory), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--width", type=int, default=1024, help="of the layers of `wide`")
    parser.add_argument("--layouts", nargs="+", default=sorted({layout for layout, _, _ in PIPELINES + REPLICAS}))
    parser.add_argument("models", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    print("model      stages policy mb  measured   simulated/measured  paced  predicted/measured peak per device")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            rows += measure(arguments, folder, name)
    errors = sorted(abs(ratio - 1) for ratio, _, crowded in rows if not crowded)
    memory = [m for _, of_plan, _ in rows for m in of_plan]
    if not errors:
        return print("no plan here has a core for each device, so that no step time is compared")
    print(f"{len(errors)} plans: step time off by {100 * statistics.median(errors):.1f} % (median), "
          f"{100 * errors[-1]:.1f} % (worst); peak memory {min(memory):.3f} to {max(memory):.3f} of the measured one")


if __name__ == "__main__":
    main()
