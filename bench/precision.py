#!/usr/bin/env python3
"""How far the losses of --precision bf16 are from those of float32: same model, data and steps.

    .deps/oracle/bin/python bench/precision.py [--graphpipe build/release/bin/graphpipe] [--steps 200] [--save FILE]
                                             [MODEL...]

Models are those of bench/wide_models.py. Prints the first and the last loss of float32, and the relative difference: of the
sum of all losses, and the largest of any pass over the data (four steps).
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import step_time  # first: it makes the examples' modules known

import results
import wide_models

MODELS = ["chain", "gpt2", "bert", "vit", "clip", "llama", "resnet18", "mobilenet", "unet"]
PASS = wide_models.SAMPLES // step_time.BATCH


def losses(program: step_time.Compiled, steps: int) -> list[float]:
    answer = subprocess.run([*program.command, "--steps", str(steps)], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)["losses"]


def by_pass(values: list[float]) -> list[float]:
    return [sum(values[first:first + PASS]) for first in range(0, len(values) - PASS + 1, PASS)]


def measure(name: str, arguments: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        wide, narrow = (losses(step_time.Compiled(arguments.graphpipe, pathlib.Path(folder), name, True, flags),
                               arguments.steps) for flags in ([], ["--precision", "bf16"]))
    total = sum(narrow) / sum(wide) - 1
    largest = max(abs(ours / theirs - 1) for ours, theirs in zip(by_pass(narrow), by_pass(wide)))
    print(f"{name:12} {wide[0]:10.4f} {wide[-1]:10.4f} {total:10.4%} {largest:10.4%}", flush=True)
    return {"model": name, "first": wide[0], "last": wide[-1], "total": total, "largest": largest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(step_time.ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in MODELS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    print(f"{'model':12} {'first':>10} {'last':>10} {'all':>10} {'a pass':>10}")
    rows = [measure(name, arguments) for name in arguments.models or MODELS]
    if arguments.save:
        results.save(arguments.save, "precision", rows, key=["model"], lower_is_better=["largest"])


if __name__ == "__main__":
    main()
