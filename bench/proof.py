#!/usr/bin/env python3
"""Two trainings of 2,000 steps, by pipelines and by PyTorch: the loss of every step, side by side.

    .deps/oracle/bin/python bench/proof.py [--steps 2000] [--save proof.json] [--svg docs/proof.svg] [gpt2] [clip]

gpt2: the decoder of examples/models/gpt2_like.py, larger, on the characters of Python's own reference documentation
(the module pydoc_data.topics of the standard library). clip: the two encoders of examples/models/clip_like.py, larger, on
pictures and sentences that say the same, drawn with a seed. Shuffled epochs, AdamW in groups, a warm-up and a cosine,
clipping by norm. In the middle of the pipeline's training a device is killed, the training goes on from its last
checkpoint, and later another plan goes on from there. Needs what scripts/oracle installs.

PyTorch trains a second time in float64: how far float32 is from that says what rounding alone does to such a curve. With
--precision bf16 the pipelines are compiled so, PyTorch trains under torch.autocast, and its second training is float32.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import pydoc_data.topics
import signal
import subprocess
import sys
import tempfile
import time

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import export
import models
import models.clip_like
import models.gpt2_like
from proof_picture import drawing

SEED, MASK = 11, (1 << 64) - 1
LR, DECAY, BETAS, CLIP, WARMUP_PART, END = 1e-3, 0.1, (0.9, 0.95), 1.0, 20, 0.1
POSITIONS_LR = 5e-4
KILL_PART, CHANGE_PART, CHECKPOINT_PART = 0.36, 0.65, 0.05


# --- the models and their data ---

def gpt2() -> models.Example:
    """Windows of 32 characters that do not overlap; each predicts its next character."""
    module = models.gpt2_like
    module.VOCABULARY, module.LENGTH, module.WIDTH, module.HEADS, module.LAYERS = 128, 32, 64, 4, 4
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    print(f"gpt2: {len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}", file=sys.stderr)
    codes = torch.tensor([min(ord(c), 127) for c in text])
    count = (len(codes) - 1) // module.LENGTH
    tokens = codes[:count * module.LENGTH].reshape(count, module.LENGTH).contiguous()
    label = codes[1:count * module.LENGTH + 1].reshape(count, module.LENGTH).contiguous()
    torch.manual_seed(SEED)
    net = module.Gpt2Like()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02)
    return models.Example(net, {"tokens": tokens}, {"label": label}, ["logits"], "cross_entropy:logits,label", module.loss)


def clip() -> models.Example:
    """A sentence names a shape, its shade and its place with words of its own; the picture shows them, with noise."""
    module = models.clip_like
    module.WIDTH, module.HEADS, module.LAYERS, module.SIZE = 32, 4, 2, 16
    draw = torch.Generator().manual_seed(SEED)
    count, kinds = 4096, 12
    what = torch.randint(0, kinds, (count, 3), generator=draw)
    words = torch.randint(36, module.VOCABULARY, (count, module.LENGTH), generator=draw)
    for i in range(3):
        words[:, 2 * i + 1] = what[:, i] + kinds * i
    patterns = torch.randn(3, kinds, 3, module.SIZE, module.SIZE, generator=draw)
    image = sum(patterns[i][what[:, i]] for i in range(3))
    image = image + 0.5 * torch.randn(image.shape, generator=draw)
    torch.manual_seed(SEED)
    return models.Example(module.ClipLike(), {"image": image, "text": words}, {}, ["similarity"],
                          "contrastive:similarity", module.loss)


# Batch, and the two plans.
CASES = {
    "gpt2": (gpt2, 16, ["--devices", "4", "--planner", "sequential", "--stages", "4", "--micro-batch", "4"],
             ["--devices", "3", "--planner", "sequential", "--stages", "2", "--replicas", "0=2", "--micro-batch", "8",
              "--policy", "gpipe"]),
    "clip": (clip, 32, ["--devices", "4", "--planner", "graphpipe", "--micro-batch", "8"],
             ["--devices", "2", "--planner", "sequential", "--stages", "2", "--micro-batch", "16"]),
}


# --- PyTorch ---

def splitmix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def permutation(size: int, key: int) -> list:
    """That of wire/sample_order.h: swap-or-not (Hoang, Morris and Rogaway, CRYPTO 2012)."""
    rounds = []
    for i in range(6 * (size - 1).bit_length()):
        of_round = splitmix64((key + i) & MASK)
        rounds.append((of_round, (splitmix64(of_round) * size) >> 64))
    out = []
    for now in range(size):
        for of_round, offset in rounds:
            partner = (offset - now) % size
            if splitmix64(of_round ^ max(now, partner)) & 1:
                now = partner
        out.append(now)
    return out


def rows_of_steps(samples: int, batch: int, steps: int) -> list:
    """The samples of every step: shuffled epochs that follow each other without a gap."""
    visits, epoch = [], 0
    while len(visits) < steps * batch:
        visits += permutation(samples, splitmix64(splitmix64(SEED) ^ epoch))
        epoch += 1
    return [visits[i * batch:(i + 1) * batch] for i in range(steps)]


def rate(step: int, steps: int) -> float:
    warmup = steps // WARMUP_PART
    if step < warmup:
        return (step + 1) / warmup
    return END + (1 - END) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def train_in_pytorch(example: models.Example, batch: int, steps: int, precision: str) -> list:
    torch.set_num_threads(1)
    kind = torch.float64 if precision == "float64" else torch.float32
    module = example.module.to(kind).train()
    groups = [[], [], []]
    for name, parameter in module.named_parameters():
        groups[2 if "positions" in name else 1 if parameter.dim() < 2 else 0].append(parameter)
    settings = ({"lr": LR, "weight_decay": DECAY}, {"lr": LR, "weight_decay": 0.0},
                {"lr": POSITIONS_LR, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW([{"params": group, **own} for group, own in zip(groups, settings)], betas=BETAS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    inputs = [t.to(kind) if t.is_floating_point() else t for t in example.inputs.values()]
    losses = []
    for rows in rows_of_steps(len(inputs[0]), batch, steps):
        optimizer.zero_grad()
        labels = {name: tensor[rows] for name, tensor in example.labels.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            outputs = module(*[tensor[rows] for tensor in inputs])
        loss = example.loss((outputs.to(kind),), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


# --- the pipelines ---

class Pipelines:
    def __init__(self, graphpipe: str, folder: pathlib.Path, steps: int, precision: str):
        self.graphpipe, self.folder, self.steps, self.precision = graphpipe, folder, steps, precision
        self.checkpoints = folder / "checkpoints"

    def compile(self, example: models.Example, batch: int, plan: list, name: str) -> None:
        subprocess.run([self.graphpipe, "compile", str(self.folder / "model.onnx"), "--loss", example.loss_flag,
                        "--optimizer", "adamw", "--batch", str(batch), "--precision", self.precision, *plan,
                        "-o", str(self.folder / name), "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)

    def command(self, name: str, last: int, log: pathlib.Path) -> list:
        every = max(1, int(self.steps * CHECKPOINT_PART))
        return [self.graphpipe, "run", str(self.folder / name), "--data", str(self.folder / "data"), "--steps", str(last),
                "--shuffle", "--seed", str(SEED), "--lr", str(LR), "--betas", ",".join(map(str, BETAS)),
                "--weight-decay", str(DECAY), "--no-decay", "norms-and-biases",
                "--group", f"*positions*:lr={POSITIONS_LR},weight-decay=0", "--clip-norm", str(CLIP),
                "--lr-schedule", f"cosine:{self.steps},{END}", "--warmup", str(self.steps // WARMUP_PART),
                "--checkpoint", str(self.checkpoints), "--resume", str(self.checkpoints), "--checkpoint-every", str(every),
                "--log", str(log), "--quiet"]

    def run(self, name: str, last: int, log: pathlib.Path) -> None:
        subprocess.run(self.command(name, last, log), check=True, stdout=subprocess.DEVNULL)

    def run_and_kill(self, name: str, log: pathlib.Path) -> None:
        """Kills a device as soon as the log has the step."""
        with open(self.folder / "killed.txt", "w", encoding="utf-8") as talk:
            process = subprocess.Popen(self.command(name, self.steps, log), stdout=talk, stderr=talk)
            while process.poll() is None and not (log.exists() and len(losses_of(log)) >= self.steps * KILL_PART):
                time.sleep(0.05)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[1]), signal.SIGKILL)
            if process.wait() == 0:
                raise SystemExit("the run ended well although a device was killed")


def losses_of(log: pathlib.Path) -> dict:
    """Of every step in a log; a last line that is not whole is left out."""
    losses = {}
    for line in log.read_text(encoding="utf-8").split("\n")[:-1]:
        record = json.loads(line)
        losses[record["step"]] = record["loss"]
    return losses


def train_in_pipelines(pipelines: Pipelines, report: dict) -> list:
    logs = [pipelines.folder / f"{name}.jsonl" for name in ("killed", "resumed", "changed")]
    change = int(pipelines.steps * CHANGE_PART)
    pipelines.run_and_kill("first", logs[0])
    pipelines.run("first", change, logs[1])
    pipelines.run("second", pipelines.steps, logs[2])
    killed, resumed, changed = (losses_of(log) for log in logs)
    again = sorted(set(killed) & set(resumed))
    report |= {"killed_at": max(killed), "resumed_at": min(resumed), "changed_at": change,
               "computed_again": len(again), "again_same_bits": all(killed[s] == resumed[s] for s in again)}
    together = killed | resumed | changed
    return [together[step] for step in range(1, pipelines.steps + 1)]


# --- the comparison ---

def differences(a: list, b: list) -> dict:
    gaps = [abs(x - y) for x, y in zip(a, b)]
    if not all(map(math.isfinite, gaps)):
        raise SystemExit("a loss is no number: what it is compared with says nothing")
    return {"largest": max(gaps), "at": gaps.index(max(gaps)) + 1, "mean": sum(gaps) / len(gaps)}


def prove(name: str, graphpipe: str, steps: int, precision: str) -> dict:
    make, batch, first, second = CASES[name]
    report = {"model": name, "steps": steps, "batch": batch, "precision": precision,
              "plans": [" ".join(first), " ".join(second)]}
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        example = make()
        report["parameters"] = sum(p.numel() for p in example.module.parameters())
        export.write_data(example, folder / "data")
        export.export_onnx(example, folder / "model.onnx")
        pipelines = Pipelines(graphpipe, folder, steps, precision)
        pipelines.compile(example, batch, first, "first")
        pipelines.compile(example, batch, second, "second")
        began = time.monotonic()
        report["pipeline"] = train_in_pipelines(pipelines, report)
        report["pipeline_seconds"] = time.monotonic() - began
    began = time.monotonic()
    report["pytorch"] = train_in_pytorch(make(), batch, steps, precision)
    report["pytorch_seconds"] = time.monotonic() - began
    finer = "float64" if precision == "float32" else "float32"
    report["finer"] = train_in_pytorch(make(), batch, steps, finer)
    report["difference"] = differences(report["pipeline"], report["pytorch"])
    report["rounding"] = differences(report["finer"], report["pytorch"])
    return report


def table(reports: list) -> str:
    lines = ["| | parameters | loss at 1, 500, 2,000 | pipeline against PyTorch: largest (at step), mean | PyTorch in the "
             "next finer precision against it | killed at, went on after, plan changed at |", "|---|---|---|---|---|---|"]
    for r in reports:
        gaps = [f"{r[key]['largest']:.1e} ({r[key]['at']}), {r[key]['mean']:.1e}" for key in ("difference", "rounding")]
        points = ", ".join(f"{r['pipeline'][i - 1]:.3f}" for i in sorted({1, r["steps"] // 4, r["steps"]}))
        lines.append(f"| {r['model']} | {r['parameters']:,} | {points} | {gaps[0]} | {gaps[1]} | {r['killed_at']}, "
                     f"{r['resumed_at'] - 1}, {r['changed_at']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="gpt2, clip; both without")
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--limit", type=float, default=1e-3, help="the largest difference of a step's losses")
    parser.add_argument("--save", help="file for all numbers, as JSON")
    parser.add_argument("--svg", help="file for the curves")
    arguments = parser.parse_args()
    reports = [prove(name, arguments.graphpipe, arguments.steps, arguments.precision) for name in arguments.models or CASES]
    print(table(reports))
    if arguments.save:
        pathlib.Path(arguments.save).write_text(json.dumps(reports) + "\n", encoding="utf-8")
    if arguments.svg:
        pathlib.Path(arguments.svg).write_text(drawing(reports), encoding="utf-8")
    bad = [r["model"] for r in reports if r["difference"]["largest"] > arguments.limit or not r["again_same_bits"]]
    if bad:
        sys.exit(f"not within {arguments.limit}, or not the same after the kill: {', '.join(bad)}")


if __name__ == "__main__":
    main()
