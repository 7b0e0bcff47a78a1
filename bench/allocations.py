#!/usr/bin/env python3
"""What a steady training step asks of the allocators: memory of tensors outside of the arena, pages, and malloc.

    .deps/oracle/bin/python bench/allocations.py [--graphpipe build/release/bin/graphpipe] [--save FILE] [MODEL...]

Models are those of bench/wide_models.py, one device, batch 8, SGD. `outside` counts tensors that had no place in the arena
in the last step, `faults` its page faults on the thread that computes, as `run` says. `mallocs` and `bytes` are calls of
malloc and its kin in a step, and what they asked for, counted by bench/count_malloc.c and a C compiler: the difference of
runs of two lengths over that of their steps.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import step_time  # first: it makes the examples' modules known

import results
import wide_models

FEW, MANY = 20, 60
SOURCE = pathlib.Path(__file__).with_name("count_malloc.c")


def counted(program: pathlib.Path, data: pathlib.Path, steps: int, folder: pathlib.Path) -> tuple[int, int]:
    """Calls of malloc in a run of this many steps, and their bytes."""
    environment = {**os.environ, "LD_PRELOAD": str(folder / "count_malloc.so"), "COUNT_MALLOC": str(folder / "counts")}
    subprocess.run([str(program / "build/device"), "--data", str(data), "--lr", "0.01", "--json", "--steps", str(steps)],
                   check=True, stdout=subprocess.DEVNULL, env=environment)
    calls, size = (folder / "counts").read_text().split()
    return int(calls), int(size)


def measure(name: str, graphpipe: str) -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(folder / "count_malloc.so")], check=True)
        compiled = step_time.Compiled(graphpipe, folder, name, True, [])
        answer = subprocess.run([*compiled.command, "--steps", str(FEW)], check=True, capture_output=True, text=True)
        run = json.loads(answer.stdout)
        few, many = (counted(compiled.program, folder / "data", steps, folder) for steps in (FEW, MANY))
    row = {"model": name, "outside": run["fallbacks"][0], "faults": run["page_faults"][0],
           "mallocs": (many[0] - few[0]) / (MANY - FEW), "bytes": (many[1] - few[1]) / (MANY - FEW)}
    print(f"{name:10} {row['outside']:8} {row['faults']:8} {row['mallocs']:10.1f} {row['bytes']:12.0f}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(step_time.ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in wide_models.MODELS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(wide_models.MODELS)}")
    print(f"{'model':10} {'outside':>8} {'faults':>8} {'mallocs':>10} {'bytes':>12}")
    rows = [measure(name, arguments.graphpipe) for name in arguments.models or wide_models.MODELS]
    if arguments.save:
        results.save(arguments.save, "allocations", rows, key=["model"], lower_is_better=["outside", "faults", "mallocs"])


if __name__ == "__main__":
    main()
