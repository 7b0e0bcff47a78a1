#!/usr/bin/env python3
"""One training step of the single-stage program against PyTorch eager: same model, data, optimizer and threads.

    .deps/oracle/bin/python bench/step_time.py [--graphpipe build/release/bin/graphpipe] [--rounds 5] [--steps 200]
                                             [--save FILE]

Rounds alternate between the two, so a machine whose speed drifts moves both. Prints the median step of each and the
ratio round by round; below 1 means that GraphPipe is faster. --save writes them to a file for compare_results.py.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch

import models
import results

BATCH = 8


def eager_step_seconds(name: str, steps: int) -> float:
    example = models.load(name)
    module = example.module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    samples = next(iter(example.inputs.values())).shape[0]
    seconds = []
    for step in range(steps):
        begin = time.perf_counter()
        first = step * BATCH % samples
        inputs = [tensor[first:first + BATCH] for tensor in example.inputs.values()]
        labels = {key: tensor[first:first + BATCH] for key, tensor in example.labels.items()}
        optimizer.zero_grad()
        example.loss((module(*inputs),), labels).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[steps // 10:])


def compiled_step_seconds(graphpipe: str, folder: str, data: str, steps: int) -> float:
    answer = subprocess.run([graphpipe, "run", folder, "--data", data, "--steps", str(steps), "--lr", "0.01", "--json"],
                            check=True, capture_output=True, text=True)
    return statistics.median(json.loads(answer.stdout)["step_seconds"][steps // 10:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*", default=list(models.NAMES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':12} {'eager ms':>9} {'ours ms':>9} {'ratio min':>10} {'median':>7} {'max':>7}")
    rows = []
    for name in arguments.models:
        source = ROOT / "tests/data/models" / name
        loss = json.loads((source / "reference.json").read_text())["loss"]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([arguments.graphpipe, "compile", str(source / "model.onnx"), "--devices", "1", "--batch",
                            str(BATCH), "--micro-batch", str(BATCH), "--loss", loss, "-o", folder, "--quiet"],
                           check=True, stdout=subprocess.DEVNULL)
            rounds = []
            for _ in range(arguments.rounds):
                eager = eager_step_seconds(name, arguments.steps)
                rounds.append((eager, compiled_step_seconds(arguments.graphpipe, folder, str(source / "data"),
                                                            arguments.steps)))
        ratios = sorted(ours / eager for eager, ours in rounds)
        rows.append({"model": name, "eager_seconds": statistics.median(r[0] for r in rounds),
                     "step_seconds": statistics.median(r[1] for r in rounds), "ratio": statistics.median(ratios)})
        print(f"{name:12} {1e3 * statistics.median(r[0] for r in rounds):9.3f} "
              f"{1e3 * statistics.median(r[1] for r in rounds):9.3f} {ratios[0]:10.3f} "
              f"{statistics.median(ratios):7.3f} {ratios[-1]:7.3f}", flush=True)
    if arguments.save:
        results.save(arguments.save, "step_time", rows, key=["model"], lower_is_better=["ratio"])


if __name__ == "__main__":
    main()
