#!/usr/bin/env python3
"""How long `graphpipe compile` takes for a GPT-like model, by its layers: from the ONNX file to programs.

    .deps/oracle/bin/python bench/compile_time.py [--graphpipe build/release/bin/graphpipe] [--layers 6,12,24]
                                                  [--width 768] [--devices 1,4] [--save FILE]

One run per row, after one that warms the files of the compiler. Give no compiler cache.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch

import export
import results
import wide_models


def numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


def write_model(folder: pathlib.Path, layers: int, width: int) -> str:
    torch.manual_seed(20261122)
    blocks = [wide_models.Block(width, width // 64, causal=True) for _ in range(layers)]
    label = {"label": torch.randint(0, 10, (wide_models.SAMPLES,))}
    export.export_onnx(wide_models.Example(wide_models.Classifier(width, blocks), wide_models.rows_of(width), label, ["logits"],
                                           "cross_entropy:logits,label", wide_models.cross_entropy), folder / "model.onnx")
    return "cross_entropy:logits,label"


def compile_seconds(graphpipe: str, folder: pathlib.Path, loss: str, devices: int, width: int) -> float:
    env = {key: value for key, value in os.environ.items() if not key.endswith("_COMPILER_LAUNCHER")}
    begin = time.perf_counter()
    subprocess.run([graphpipe, "compile", folder / "model.onnx", "--devices", str(devices), "--stages", str(devices), "--planner",
                    "sequential", "--batch", "8", "--loss", loss, "-o", folder / f"out-{devices}-{width}", "--quiet"],
                   check=True, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--layers", type=numbers, default=[6, 12, 24])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--devices", type=numbers, default=[1, 4])
    parser.add_argument("--save", help="file to write the results to")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        warm = pathlib.Path(scratch) / "warm"
        warm.mkdir()
        compile_seconds(arguments.graphpipe, warm, write_model(warm, 1, 64), 1, 64)
        for layers in arguments.layers:
            folder = pathlib.Path(scratch) / str(layers)
            folder.mkdir()
            loss = write_model(folder, layers, arguments.width)
            for devices in arguments.devices:
                seconds = compile_seconds(arguments.graphpipe, folder, loss, devices, arguments.width)
                rows.append({"layers": layers, "devices": devices, "seconds": seconds})
                print(f"{layers:3} layers, {devices} devices: {seconds:6.1f} s", flush=True)
    if arguments.save:
        results.save(arguments.save, "compile_time", rows, ["layers", "devices"], ["seconds"])


if __name__ == "__main__":
    main()
