#!/usr/bin/env python3
"""Peak memory of training programs: as predicted, as measured, and of PyTorch's eager step.

    .deps/oracle/bin/python bench/memory.py [--graphpipe build/release/bin/graphpipe] [--save FILE] [MODEL...]

The models are those of bench/wide_models.py, batch 8, momentum: on one device in one micro-batch, beside the same step
of PyTorch (its profiler's allocations and releases, on top of weights and momentum), and on two devices in micro-batches
of 2. All figures are bytes of tensors. Predicted peaks are what `graphpipe simulate` says, measured ones what `run` says;
`arena` is the block of memory of a step's tensors, as `simulate` says and as `run` takes it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch

import results
import step_time
import wide_models

BATCH, STEPS = 8, 8
LAYOUTS = {"one device": ["--devices", "1", "--micro-batch", str(BATCH)],
           "two stages": ["--devices", "2", "--stages", "2", "--micro-batch", "2"]}


def eager_peak(name: str, folder: pathlib.Path) -> int:
    """Most bytes of tensors in a step that has momentum and no gradients yet."""
    example = wide_models.load(name)
    module = example.module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    inputs = [tensor[:BATCH] for tensor in example.inputs.values()]
    labels = {key: tensor[:BATCH] for key, tensor in example.labels.items()}

    def step() -> None:
        optimizer.zero_grad()
        example.loss((module(*inputs),), labels).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    held = sum(t.nbytes for t in [*module.parameters(), *module.buffers()])
    held += sum(state["momentum_buffer"].nbytes for state in optimizer.state.values())
    held += sum(tensor.nbytes for tensor in [*inputs, *labels.values()])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    profile.export_chrome_trace(str(folder / "eager.json"))
    events = json.loads((folder / "eager.json").read_text())["traceEvents"]
    peak = 0
    for event in sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def answer(graphpipe: str, verb: list[str]) -> dict:
    finished = subprocess.run([graphpipe, *verb, "--json", "--quiet"], check=True, capture_output=True, text=True)
    return json.loads(finished.stdout)


def measure(name: str, graphpipe: str) -> list[dict]:
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        model, data, loss = step_time.prepared(name, True, folder)
        eager = eager_peak(name, folder)
        for layout, flags in LAYOUTS.items():
            program = str(folder / layout.replace(" ", "_"))
            subprocess.run([graphpipe, "compile", str(model), *flags, "--batch", str(BATCH), "--loss", loss, "-o", program,
                            "--quiet"], check=True, stdout=subprocess.DEVNULL)
            run = ["run", program, "--data", str(data), "--steps", str(STEPS), "--lr", "0.01", "--momentum", "0.9"]
            plan, ran = answer(graphpipe, ["simulate", program]), answer(graphpipe, run)
            for device, measured in enumerate(ran["peak_bytes"]):
                row = {"model": name, "layout": layout, "device": device, "measured_bytes": measured,
                       "predicted_ratio": plan["peak_bytes"][device] / measured,
                       "arena_bytes": ran["arena_bytes"][device],
                       "planned_arena_bytes": plan["arena_bytes"][device]}
                if layout == "one device":
                    row["eager_ratio"] = measured / eager
                rows.append(row)
                beside = f"{row['eager_ratio']:16.3f}" if "eager_ratio" in row else ""
                print(f"{name:10} {layout:11} {device:6} {measured / 2**20:13.1f} {row['predicted_ratio']:20.4f}"
                      f" {row['planned_arena_bytes']:14} {row['arena_bytes']:11} {beside}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in wide_models.MODELS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(wide_models.MODELS)}")
    torch.set_num_threads(1)
    print(f"{'model':10} {'layout':11} {'device':>6} {'measured, MiB':>13} {'predicted / measured':>20}"
          f" {'planned arena':>14} {'arena':>11} {'measured / eager':>16}")
    rows = [row for name in arguments.models or wide_models.MODELS for row in measure(name, arguments.graphpipe)]
    if arguments.save:
        results.save(arguments.save, "memory", rows, key=["model", "layout", "device"], lower_is_better=["eager_ratio"])


if __name__ == "__main__":
    main()
