#!/usr/bin/env python3
"""How asynchronous schedules converge: one model, one stream of samples, one size of update, one learning rate.

    python3 bench/convergence.py [--graphpipe build/release/bin/graphpipe] [--updates 640] [--svg docs/convergence.svg]
    python3 bench/convergence.py --data text --updates 1280 --svg text.svg
    python3 bench/convergence.py --replicated [--data text]

clicks: tests/data/models/dlrm on clicks that a random teacher draws (seeded; no sample comes twice, so the loss of an
update is that of samples not seen before). text: tests/data/models/gpt2_like on the reference documentation of Python
that runs this (pydoc_data.topics), windows of eight characters in an order drawn with a seed, none twice. Every policy makes one
update from 32 samples, in the order of the data; they differ in the age of the weights that a gradient is computed at.
Prints a table, then how long each takes to a loss by the simulator, and draws the curves.

--replicated: three stages, one of them with two replicas that take turns, with and without `run --lr-by-replicas`. That stage makes
one update from 64 samples where the others make two, and an update here is 32 samples of any. Nothing is drawn.
"""

import argparse
import array
import dataclasses
import json
import math
import pathlib
import pydoc_data.topics
import random
import struct
import subprocess
import tempfile
from typing import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
UPDATE, WINDOW = 32, 1024  # samples of an update; samples between two points of a curve, and of an asynchronous step
DIVERGED = 1  # the exit code of a run whose loss is no number
LENGTH, CLASSES = 8, 48  # of a window of text: characters, and how many of them are told apart
FEATURES, ROWS, BAG, TABLES = 13, 50, 4, ("site", "user", "item")
# Four devices each. The synchronous batch is an update; the others make many in one call, and drain at its end.
POLICIES = {
    "kfkb": ["--policy", "kfkb", "--batch", str(UPDATE), "--micro-batch", "8"],
    "pipedream": ["--policy", "pipedream", "--batch", str(WINDOW), "--drain-every", "1", "--micro-batch", str(UPDATE)],
    "pipedream --vertical-sync": ["--policy", "pipedream", "--vertical-sync", "--batch", str(WINDOW), "--drain-every", "1",
                                  "--micro-batch", str(UPDATE)],
    "2bw": ["--policy", "2bw", "--update", str(UPDATE), "--batch", str(WINDOW), "--drain-every", "1", "--micro-batch", "8"],
    "parameter-server": ["--policy", "parameter-server", "--batch", str(WINDOW), "--drain-every", "1", "--micro-batch",
                         str(UPDATE)],
}

# Of replicated plans: what `run` takes beside the learning rate stands after the flags of the plan.
BY_REPLICAS = "--lr-by-replicas"


def in_turns(replicated: int, *of_run: str) -> list:
    return ["--policy", "pipedream-rr", "--stages", "3", "--replicas", f"{replicated}=2", "--batch", str(WINDOW), "--drain-every", "1",
            "--micro-batch", str(UPDATE), *of_run]


REPLICATED = {
    "kfkb": POLICIES["kfkb"],
    "pipedream-rr 2+1+1": in_turns(0),
    f"pipedream-rr 2+1+1 {BY_REPLICAS}": in_turns(0, BY_REPLICAS),
    "pipedream-rr 1+1+2": in_turns(2),
    f"pipedream-rr 1+1+2 {BY_REPLICAS}": in_turns(2, BY_REPLICAS),
}
COLORS = ("#1b1b1b", "#d1495b", "#edae49", "#00798c", "#7a5195")


def write_npy(path: pathlib.Path, kind: str, shape: tuple, values: array.array) -> None:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


def write_clicks(folder: pathlib.Path, samples: int) -> None:
    """Clicks with the odds that a linear teacher of features and table rows gives."""
    draw = random.Random(7)
    slope = [draw.gauss(0, 1) for _ in range(FEATURES)]
    taste = {table: [draw.gauss(0, 1) for _ in range(ROWS)] for table in TABLES}
    features, clicks = array.array("f"), array.array("f")
    rows = {table: array.array("q") for table in TABLES}
    for _ in range(samples):
        x = [draw.gauss(0, 1) for _ in range(FEATURES)]
        bags = {table: [draw.randrange(ROWS) for _ in range(BAG)] for table in TABLES}
        logit = sum(a * b for a, b in zip(slope, x)) + sum(taste[t][i] for t in TABLES for i in bags[t])
        features.extend(x)
        for table in TABLES:
            rows[table].extend(bags[table])
        clicks.append(float(draw.random() < 1 / (1 + math.exp(-logit))))
    write_npy(folder / "features.npy", "<f4", (samples, FEATURES), features)
    write_npy(folder / "click.npy", "<f4", (samples,), clicks)
    for table in TABLES:
        write_npy(folder / f"{table}.npy", "<i8", (samples, BAG), rows[table])


def write_text(folder: pathlib.Path, samples: int) -> None:
    """Each character's successor; the most frequent ones have a class each, all others share the last."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    frequent = sorted(set(text), key=lambda c: (-text.count(c), c))[:CLASSES - 1]
    class_of = {character: i for i, character in enumerate(frequent)}
    codes = [class_of.get(character, CLASSES - 1) for character in text]
    starts = list(range(0, len(codes) - LENGTH - 1, LENGTH))
    if len(starts) < samples:
        raise SystemExit(f"convergence: the text has {len(starts)} windows, {samples} are asked for; use fewer --updates")
    random.Random(7).shuffle(starts)
    for name, shift in (("tokens", 0), ("target", 1)):
        rows = array.array("q", [code for at in starts[:samples] for code in codes[at + shift:at + shift + LENGTH]])
        write_npy(folder / f"{name}.npy", "<i8", (samples, LENGTH), rows)


@dataclasses.dataclass
class Workload:
    model: str
    loss: str
    write: Callable
    rates: tuple
    # Of the drawn losses; the one that the times are to.
    low: float
    high: float
    goal: float


WORKLOADS = {"clicks": Workload("dlrm", "bce:logit,click", write_clicks, (0.1, 0.3, 1.0), 0.35, 0.75, 0.55),
             "text": Workload("gpt2_like", "cross_entropy:logits,target", write_text, (0.1, 0.2, 0.4), 2.4, 4.4, 2.95)}


def windows(losses: list, per_window: int) -> list:
    return [sum(losses[i:i + per_window]) / per_window for i in range(0, len(losses), per_window)]


def asked(graphpipe: str, verb: str, work: Workload, flags: list) -> list:
    """Four devices, the model cut in equal parts."""
    flags = [flag for flag in flags if flag != BY_REPLICAS]
    return [graphpipe, verb, str(ROOT / f"tests/data/models/{work.model}/model.onnx"), "--devices", "4", "--planner", "equal-split",
            *flags, "--loss", work.loss, "--quiet"]


def measure(graphpipe: str, work: Workload, policies: dict, folder: pathlib.Path, data: pathlib.Path, samples: int) -> dict:
    curves = {}
    for policy, flags in policies.items():
        # Stages do not depend on the policy: one folder per cut is compiled once.
        build = folder / ("whole" if policy == "parameter-server" else "three" if "--stages" in flags else "cut")
        subprocess.run([*asked(graphpipe, "compile", work, flags), "-o", str(build)], check=True, stdout=subprocess.DEVNULL)
        batch = int(flags[flags.index("--batch") + 1])
        for rate in work.rates:
            answer = subprocess.run([graphpipe, "run", str(build), "--data", str(data), "--steps",
                                     str(samples // batch), "--lr", str(rate), "--json", "--quiet",
                                     *(flag for flag in flags if flag == BY_REPLICAS)],
                                    check=False, capture_output=True, text=True)
            if answer.returncode not in (0, DIVERGED):
                raise SystemExit(f"convergence: {policy} at {rate} ended with {answer.returncode}\n{answer.stderr}")
            losses = json.loads(answer.stdout)["losses"] if answer.returncode == 0 else [math.inf] * (samples // batch)
            curves[policy, rate] = windows(losses, WINDOW // batch)
    return curves


def train(graphpipe: str, work: Workload, policies: dict, updates: int) -> dict:
    """The losses of windows by policy and learning rate, over at least so many updates."""
    samples = -(-updates * UPDATE // WINDOW) * WINDOW
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        work.write(folder / "data", samples)
        return measure(graphpipe, work, policies, folder, folder / "data", samples)


def shown(loss: float) -> str:
    return f"{loss:.4f}" if loss is not None and math.isfinite(loss) and loss < 1e4 else "diverged"


def update_seconds(graphpipe: str, work: Workload, flags: list) -> float:
    """Of an update by the simulator, on the V100s of summit: where versions flow from batch to batch in the steady state."""
    flows = [flag for i, flag in enumerate(flags) if "--drain-every" not in flags[max(0, i - 1):i + 1]]
    answer = subprocess.run([*asked(graphpipe, "plan", work, flows), "--cluster", "summit", "--json"], check=True,
                            capture_output=True, text=True)
    plan = json.loads(answer.stdout)
    return plan.get("steady_step", plan["simulated_step"]) * UPDATE / plan["batch"]


def updates_to(goal: float, curve: list) -> int | None:
    """Updates after which the loss of a window is no more than the goal."""
    return next(((i + 1) * WINDOW // UPDATE for i, loss in enumerate(curve) if loss is not None and loss <= goal), None)


def times(graphpipe: str, work: Workload, policies: dict, curves: dict) -> list:
    """Per policy the learning rate at which it comes to the goal first, after how many updates and seconds; None where it does not."""
    rows = []
    for policy, flags in policies.items():
        row = {"policy": policy, "update_seconds": update_seconds(graphpipe, work, flags), "loss": work.goal}
        reached = [(updates_to(work.goal, curves[policy, rate]), rate) for rate in work.rates]
        row["updates"], row["lr"] = min(((count, rate) for count, rate in reached if count), default=(None, None))
        row["seconds"] = row["updates"] * row["update_seconds"] if row["updates"] else None
        first = (rows or [row])[0]["seconds"]
        row["of_first"] = row["seconds"] / first if row["seconds"] and first else None
        rows.append(row)
    return rows


def table_of_times(work: Workload, rows: list) -> str:
    lines = [f"| policy | ms of an update | updates to a loss of {work.goal} | at lr | s | of `kfkb`'s |", "|---|---|---|---|---|---|"]
    for row in rows:
        head = f"| `{row['policy']}` | {1e3 * row['update_seconds']:.3f}"
        if row["updates"] is None:
            lines.append(f"{head} | not reached | - | - | - |")
            continue
        ratio = f"{row['of_first']:.2f}" if row["of_first"] else "-"
        lines.append(f"{head} | {row['updates']} | {row['lr']} | {row['seconds']:.3f} | {ratio} |")
    return "\n".join(lines)


def table(work: Workload, policies: dict, curves: dict, points: list) -> str:
    lines = ["| lr | policy | " + " | ".join(f"{(p + 1) * WINDOW // UPDATE}" for p in points) + " |",
             "|---|---|" + "---|" * len(points)]
    for rate in work.rates:
        for policy in policies:
            losses = " | ".join(shown(curves[policy, rate][point]) for point in points)
            lines.append(f"| {rate} | `{policy}` | {losses} |")
    return "\n".join(lines)


def panel(curves: dict, rate: float, left: int, low: float, high: float) -> list:
    width, height, top = 250, 240, 40
    out = [f'<text x="{left + width / 2}" y="26" text-anchor="middle">lr {rate}</text>',
           f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']
    for i in range(5):
        loss = low + (high - low) * i / 4
        y = top + height - height * i / 4
        out.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#eee"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{loss:.2f}</text>')
    for policy, color in zip(POLICIES, COLORS):
        curve = curves[policy, rate]
        points = []
        for i, loss in enumerate(curve):
            if loss is None or not math.isfinite(loss):
                break
            y = top + height - height * (min(max(loss, low), high) - low) / (high - low)
            points.append(f"{left + width * (i + 1) / len(curve):.1f},{y:.1f}")
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.6"/>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 18}" text-anchor="middle">updates, up to '
               f'{len(curves["kfkb", rate]) * WINDOW // UPDATE}</text>')
    return out


def drawing(work: Workload, curves: dict) -> str:
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 350" font-family="sans-serif" font-size="12">',
           '<rect width="960" height="350" fill="white"/>']
    for i, rate in enumerate(work.rates):
        out += panel(curves, rate, 50 + 305 * i, work.low, work.high)
    for i, (policy, color) in enumerate(zip(POLICIES, COLORS)):
        x = 50 + 185 * i
        out.append(f'<line x1="{x}" y1="326" x2="{x + 18}" y2="326" stroke="{color}" stroke-width="3"/>')
        out.append(f'<text x="{x + 24}" y="330">{policy}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--data", choices=WORKLOADS, default="clicks")
    parser.add_argument("--updates", type=int, default=640)
    parser.add_argument("--svg", default=str(ROOT / "docs/convergence.svg"))
    parser.add_argument("--replicated", action="store_true")
    arguments = parser.parse_args()
    policies = REPLICATED if arguments.replicated else POLICIES
    work = WORKLOADS[arguments.data]
    curves = train(arguments.graphpipe, work, policies, arguments.updates)
    last = len(next(iter(curves.values()))) - 1
    print(table(work, policies, curves, sorted({0, last // 8, last // 4, last // 2, last})))
    print(table_of_times(work, times(arguments.graphpipe, work, policies, curves)))
    if not arguments.replicated:
        pathlib.Path(arguments.svg).write_text(drawing(work, curves))


if __name__ == "__main__":
    main()
