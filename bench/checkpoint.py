#!/usr/bin/env python3
"""What checkpoints cost a training: the chain model, with one every 50 steps and with none.

    python3 bench/checkpoint.py [--graphpipe build/release/bin/graphpipe] [--rounds 9] [--steps 400] [--every 50]
                                [--devices 2] [--save FILE]

Rounds alternate between the two, so a machine whose speed drifts moves both. The time of a step is that between the lines
of two steps: what lies between steps, such as the copy of the state, counts. The first and last steps are left out.
Prints the mean step of each round and the median over the rounds of their ratio; 1.01 means that checkpoints cost 1 %.
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import results

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "tests/data/models/gpt2_like"
SKIPPED = 10


def mean_step(command: list[str], steps: int) -> float:
    """Seconds of a step, from the lines that the run prints."""
    arrivals = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            if line.startswith("step "):
                arrivals.append(time.perf_counter())
    if run.returncode != 0 or len(arrivals) != steps:
        raise SystemExit(f"{' '.join(command)} ended with {run.returncode}")
    first, last = SKIPPED, steps - SKIPPED
    return (arrivals[last] - arrivals[first]) / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--save", help="file to write the results to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/chain"
        subprocess.run([arguments.graphpipe, "compile", str(MODEL / "model.onnx"), "--devices", str(arguments.devices),
                        "--batch", "8", "--loss", "cross_entropy:logits,label", "--planner", "sequential", "--optimizer",
                        "adamw", "-o", folder, "-q"], check=True, stdout=subprocess.DEVNULL)
        base = [arguments.graphpipe, "run", folder, "--data", str(MODEL / "data"), "--steps", str(arguments.steps)]
        ratios, without, with_them = [], [], []
        for number in range(arguments.rounds):
            without.append(mean_step(base, arguments.steps))
            with_them.append(mean_step(base + ["--checkpoint", f"{scratch}/checkpoints{number}", "--checkpoint-every",
                                               str(arguments.every)], arguments.steps))
            ratios.append(with_them[-1] / without[-1])
            print(f"round {number + 1}: {without[-1] * 1e3:.3f} ms without, {with_them[-1] * 1e3:.3f} ms with, "
                  f"ratio {ratios[-1]:.4f}", flush=True)
        size = sum(file.stat().st_size for file in pathlib.Path(f"{scratch}/checkpoints0").glob("step-*/*")) / 3
    row = {"devices": arguments.devices, "every": arguments.every, "checkpoint_bytes": round(size),
           "step_without": statistics.median(without), "step_with": statistics.median(with_them),
           "ratio": statistics.median(ratios)}
    print(f"median ratio {row['ratio']:.4f}; a checkpoint has {size / 2**20:.1f} MiB")
    if arguments.save:
        results.save(arguments.save, "checkpoint", [row], ["devices", "every"], ["ratio"])


if __name__ == "__main__":
    main()
