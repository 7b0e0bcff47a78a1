#!/usr/bin/env python3
"""What checkpoints cost a training: the chain model, with one every 50 steps and with none.

    python3 bench/checkpoint.py [--graphpipe build/release/bin/graphpipe] [--rounds 9] [--steps 400] [--every 50]
                                [--devices 2] [--batch 64] [--wide MODEL] [--save FILE]

The chain model is the example gpt2_like, whose steps take milliseconds; --wide MODEL is one of bench/wide_models.py
(`.deps/oracle/bin/python`, after `scripts/oracle`), --wide chain --batch 8 --steps 120 --rounds 5 say.

Rounds alternate between the two, so a machine whose speed drifts moves both. The time of a step is that between the lines
of two steps: what lies between steps, such as the copy of the state, counts. The first and last steps are left out.
Prints the mean step of each round, and the median over the rounds of the ratio of the two; 1.01 means that checkpoints
cost 1 %. The same of the CPU time of all ranks and their threads, which other programs on the machine hardly change.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import results

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "tests/data/models/gpt2_like"
SKIPPED = 10


def prepared(wide: str | None, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, str]:
    """The ONNX model, its data and its loss."""
    if wide is None:
        return MODEL / "model.onnx", MODEL / "data", "cross_entropy:logits,label"
    import step_time  # it needs torch
    return step_time.prepared(wide, True, folder)


def cpu_seconds(launcher: int) -> float:
    """Of the processes that it has started, so far."""
    ticks = 0
    for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        fields = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def mean_step(command: list[str], steps: int) -> tuple[float, float]:
    """Seconds of a step, by the clock and of the CPUs, from the lines that the run prints."""
    seen = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            words = line.split()
            if words[:1] == ["step"] and int(words[1]) in (SKIPPED, steps - SKIPPED):
                seen[int(words[1])] = (time.perf_counter(), cpu_seconds(run.pid))
    if run.returncode != 0 or len(seen) != 2:
        raise SystemExit(f"{' '.join(command)} ended with {run.returncode}")
    first, last = seen[SKIPPED], seen[steps - SKIPPED]
    return tuple((b - a) / (steps - 2 * SKIPPED) for a, b in zip(first, last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--wide", metavar="MODEL", help="a model of real width")
    parser.add_argument("--save", help="file to write the results to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/chain"
        model, data, loss = prepared(arguments.wide, pathlib.Path(scratch))
        subprocess.run([arguments.graphpipe, "compile", str(model), "--devices", str(arguments.devices), "--batch",
                        str(arguments.batch), "--loss", loss, "--planner", "sequential", "--optimizer", "adamw", "-o", folder, "-q"],
                       check=True, stdout=subprocess.DEVNULL)
        base = [arguments.graphpipe, "run", folder, "--data", str(data), "--steps", str(arguments.steps)]
        without, with_them = [], []
        for number in range(arguments.rounds):
            without.append(mean_step(base, arguments.steps))
            with_them.append(mean_step(base + ["--checkpoint", f"{scratch}/checkpoints{number}", "--checkpoint-every",
                                               str(arguments.every)], arguments.steps))
            print(f"round {number + 1}: {without[-1][0] * 1e3:.3f} ms without, {with_them[-1][0] * 1e3:.3f} ms with; "
                  f"of the CPUs {without[-1][1] * 1e3:.3f} and {with_them[-1][1] * 1e3:.3f} ms", flush=True)
        kept = list(pathlib.Path(f"{scratch}/checkpoints0").glob("step-*"))
        size = sum(file.stat().st_size for checkpoint in kept for file in checkpoint.iterdir()) / len(kept)
    ratio, cpu_ratio = (statistics.median(b[i] / a[i] for a, b in zip(without, with_them)) for i in (0, 1))
    row = {"model": arguments.wide or "gpt2_like", "devices": arguments.devices, "every": arguments.every, "checkpoint_bytes": round(size),
           "step_without": statistics.median(a[0] for a in without), "ratio": ratio, "cpu_ratio": cpu_ratio}
    print(f"median ratio {ratio:.4f}, of CPU time {cpu_ratio:.4f}; a checkpoint has {size / 2**20:.2f} MiB")
    if arguments.save:
        results.save(arguments.save, "checkpoint", [row], ["model", "devices", "every"], ["ratio", "cpu_ratio"])


if __name__ == "__main__":
    main()
