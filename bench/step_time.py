#!/usr/bin/env python3
"""One training step of the single-stage program against PyTorch: same model, data, optimizer and threads.

    .deps/oracle/bin/python bench/step_time.py [--graphpipe build/release/bin/graphpipe] [--rounds 5] [--steps 200]
                                             [--wide] [--torch-compile] [--save FILE] [MODEL...]

Models are the examples, or with --wide those of bench/wide_models.py, which are as wide as real ones (fewer steps by
default). Rounds alternate between the programs, so a machine whose speed drifts moves all of them. Prints the median step
of each and the ratio of ours to the faster of PyTorch's, round by round; below 1 means that GraphPipe is faster. --save
writes them to a file for compare_results.py.
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

import export
import models
import results
import wide_models

BATCH = 8


class Eager:
    """PyTorch's own training of an example, perhaps through torch.compile."""

    def __init__(self, example: models.Example, compiled: bool):
        self.example = example
        module = example.module.train()
        self.run = torch.compile(module) if compiled else module
        self.optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

    def step_seconds(self, steps: int) -> float:
        example, samples, seconds = self.example, next(iter(self.example.inputs.values())).shape[0], []
        for step in range(steps):
            begin = time.perf_counter()
            first = step * BATCH % samples
            inputs = [tensor[first:first + BATCH] for tensor in example.inputs.values()]
            labels = {key: tensor[first:first + BATCH] for key, tensor in example.labels.items()}
            self.optimizer.zero_grad()
            example.loss((self.run(*inputs),), labels).backward()
            self.optimizer.step()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds[-(-steps // 10):])


def compiled_step_seconds(graphpipe: str, folder: str, data: str, steps: int) -> float:
    answer = subprocess.run([graphpipe, "run", folder, "--data", data, "--steps", str(steps), "--lr", "0.01", "--json"],
                            check=True, capture_output=True, text=True)
    return statistics.median(json.loads(answer.stdout)["step_seconds"][-(-steps // 10):])


def prepared(name: str, wide: bool, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, str]:
    """The ONNX model, its data and its loss."""
    if not wide:
        source = ROOT / "tests/data/models" / name
        return source / "model.onnx", source / "data", json.loads((source / "reference.json").read_text())["loss"]
    example = wide_models.load(name)
    export.export_onnx(example, folder / "model.onnx")
    export.write_data(example, folder / "data")
    return folder / "model.onnx", folder / "data", example.loss_flag


def measure(name: str, arguments: argparse.Namespace) -> dict:
    load = wide_models.load if arguments.wide else models.load
    with tempfile.TemporaryDirectory() as folder:
        model, data, loss = prepared(name, arguments.wide, pathlib.Path(folder))
        program = str(pathlib.Path(folder) / "program")
        subprocess.run([arguments.graphpipe, "compile", str(model), "--devices", "1", "--batch", str(BATCH),
                        "--micro-batch", str(BATCH), "--loss", loss, "-o", program, "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        programs = {"eager": Eager(load(name), False).step_seconds}
        if arguments.torch_compile:
            programs["torch_compile"] = Eager(load(name), True).step_seconds
        programs["ours"] = lambda steps: compiled_step_seconds(arguments.graphpipe, program, str(data), steps)
        rounds = [{key: run(arguments.steps) for key, run in programs.items()} for _ in range(arguments.rounds)]
    ratios = sorted(each["ours"] / min(value for key, value in each.items() if key != "ours") for each in rounds)
    row = {"model": name, **{f"{key}_seconds": statistics.median(each[key] for each in rounds) for key in programs},
           "ratio": statistics.median(ratios)}
    times = " ".join(f"{1e3 * row[f'{key}_seconds']:16.3f}" for key in programs)
    print(f"{name:12} {times} {ratios[0]:10.3f} {row['ratio']:7.3f} {ratios[-1]:7.3f}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps of a round (default 200, with --wide 6)")
    parser.add_argument("--wide", action="store_true", help="models of real width")
    parser.add_argument("--torch-compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or (6 if arguments.wide else 200)
    known = list(wide_models.MODELS if arguments.wide else models.NAMES)
    if unknown := [name for name in arguments.models if name not in known]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    torch.set_num_threads(1)
    keys = ["eager", *(["torch.compile"] if arguments.torch_compile else []), "ours"]
    times = " ".join(f"{key + ' ms':>16}" for key in keys)
    print(f"{'model':12} {times} {'ratio min':>10} {'median':>7} {'max':>7}")
    rows = [measure(name, arguments) for name in arguments.models or known]
    if arguments.save:
        results.save(arguments.save, "step_time", rows, key=["model"], lower_is_better=["ratio"])


if __name__ == "__main__":
    main()
