#!/usr/bin/env python3
"""How far `auto` with free parameters is behind `auto` with one of them fixed, on the models of examples/ (docs/planners.md).

    python3 bench/auto_law.py
    python3 bench/auto_law.py --models candle_uno --devices 6 --fix micro-batch

For each model, number of devices and batch it plans with all parameters free and then with each of them fixed to several values
around what the free plan has (memory to parts of that of the devices), and prints the cells where a fixed one is faster. The time of a step is the simulated one.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

from results import save

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
sys.dont_write_bytecode = True
import paper_models  # noqa: E402  (beside the models that it belongs to)
import published_models  # noqa: E402

NO_PLAN = 4  # the exit code
# Samples of a step for each device; the second is no power of two on most numbers of devices.
SAMPLES = {"mmt": (16, 10), "dlrm": (128, 100), "candle_uno": (128, 100), "case_study": (8, 5), "clip_vit_l14": (128, 100),
           "llava_7b": (16, 10), "whisper_large_v3": (32, 25), "sd15_unet": (32, 25), "dlrm_criteo": (8192, 5000), "two_towers": (1024, 700)}
PRESETS = {"mmt": "summit", "dlrm": "summit", "candle_uno": "summit", "case_study": "summit", "clip_vit_l14": "summit", "sd15_unet": "summit"}
ODD_SIZES = (3, 12, 77)
# A plan for devices with less memory is one for those with all of it too.
PARTS_OF_MEMORY = (0.9, 0.8, 0.65, 0.5, 0.35)
ROUNDING = 1e-9


class Models:
    """Writes each model once."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def words(self, name: str) -> list:
        folder = self.folder / name
        if name in published_models.MODELS:
            return [str(folder / "model.onnx"), *published_models.write_model(name, folder)]
        return [str(folder / "model.onnx"), "--loss", paper_models.write_model(name, folder, 0)]


def plan(program: str, words: list) -> dict | None:
    """The plan's report with the `seconds` that it took, None where there is none."""
    begin = time.monotonic()
    done = subprocess.run([program, "plan", *words, "--quiet", "--json"], capture_output=True, text=True, check=False)
    if done.returncode == NO_PLAN:
        return None
    if done.returncode != 0:
        raise SystemExit(f"auto_law: plan {' '.join(words)} ended with {done.returncode}\n{done.stderr}{done.stdout}")
    return {**json.loads(done.stdout), "seconds": time.monotonic() - begin}


def micro_batches(free: dict, batch: int) -> list:
    """Powers of two within a factor of eight of the smallest of the free plan, odd ones, and those beside it."""
    size = min(stage["micro_batch"] for stage in free["stages"])
    powers = [2 ** i for i in range(20) if size <= 8 * 2 ** i and 2 ** i <= 8 * size]
    return sorted({n for n in (*powers, size - 1, size + 1, *ODD_SIZES) if 1 <= n <= batch})


def fixed_flags(kinds: list, free: dict, devices: int, batch: int) -> list:
    """The flags that each fix one parameter."""
    stages = len(free["stages"])
    values = {"micro-batch": micro_batches(free, batch),
              "stages": sorted({n for n in (1, stages // 2, stages - 1, stages, stages + 1, 2 * stages) if 1 <= n <= devices}),
              "policy": ["1f1b", "gpipe"],
              "memory": [int(free["machine"]["memory_bytes"] * part) for part in PARTS_OF_MEMORY],
              "devices": [n for n in (devices // 2, devices - 1) if n >= 1]}
    return [[f"--{kind}", str(value)] for kind in kinds for value in values[kind]]


def cells(arguments) -> list:
    return [(name, devices, devices * samples) for name in arguments.models for devices in arguments.devices
            for samples in SAMPLES[name][:1 if arguments.usual_batch else 2]]


def measure(arguments, words: list, cell: tuple, pool) -> dict:
    name, devices, batch = cell
    base = [*words, "--cluster", PRESETS.get(name, "dgx-a100"), "--batch", str(batch)]
    size = ["--devices", str(devices)]
    free = plan(arguments.program, base + size)
    row = {"model": name, "devices": devices, "batch": batch, "free_step": None, "behind": 0.0, "fixed": [], "tried": 0}
    if free is None:
        return row
    row |= {"free_step": free["simulated_step"], "free_seconds": round(free["seconds"], 2)}
    # The policy is fixed to kfkb unless it is asked for, so the free one is `--policy auto` there.
    any_policy = plan(arguments.program, base + size + ["--policy", "auto"]) if "policy" in arguments.fix else free
    flags = fixed_flags(arguments.fix, free, devices, batch)
    asked = [base + flag + ([] if flag[0] == "--devices" else size) for flag in flags]
    for flag, fixed in zip(flags, pool.map(lambda all_words: plan(arguments.program, all_words), asked)):
        asked_of = any_policy if flag[0] == "--policy" else free
        least = asked_of["simulated_step"] if asked_of else math.inf
        row["tried"] += 1
        row["seconds"] = round(row.get("seconds", 0) + (fixed or {"seconds": 0})["seconds"], 2)
        if fixed and fixed["simulated_step"] < least * (1 - ROUNDING):
            behind = least / fixed["simulated_step"] - 1  # infinite where the free search has found no plan
            row["fixed"].append({"flag": " ".join(flag), "step": fixed["simulated_step"], "behind": round(behind, 5)})
            row["behind"] = max(row["behind"], round(behind, 5))
    return row


def show(row: dict) -> None:
    head = f"{row['model']:16} {row['devices']:3} {row['batch']:6}"
    if row["free_step"] is None:
        print(f"{head}  no plan", flush=True)
        return
    worse = ", ".join(f"{one['flag']} {1e3 * one['step']:.4g} ({one['behind']:.2%})" for one in row["fixed"])
    print(f"{head} {1e3 * row['free_step']:10.4g} ms {row['free_seconds']:7.2f} s  {row['tried']:3} fixed  {worse or 'none faster'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--models", nargs="+", choices=SAMPLES, default=list(SAMPLES))
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 6, 8, 16, 32])
    parser.add_argument("--fix", nargs="+", choices=("micro-batch", "stages", "policy", "devices", "memory"), default=["micro-batch", "stages", "devices"])
    parser.add_argument("--usual-batch", action="store_true", help="only the batch of the papers, not one more")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--save", metavar="FILE")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        models = Models(pathlib.Path(folder))
        words = {name: models.words(name) for name in arguments.models}
        for cell in cells(arguments):
            rows.append(measure(arguments, words[cell[0]], cell, pool))
            show(rows[-1])
    lost = [row for row in rows if row["fixed"]]
    tried, better = sum(row["tried"] for row in rows), sum(len(row["fixed"]) for row in rows)
    print(f"{better} of {tried} fixed plans are faster, in {len(lost)} of {len(rows)} cells; "
          f"at most {max((row['behind'] for row in rows), default=0):.2%}")
    if arguments.save:
        save(arguments.save, "auto_law", rows, ["model", "devices", "batch"], ["free_step", "behind"])


if __name__ == "__main__":
    main()
