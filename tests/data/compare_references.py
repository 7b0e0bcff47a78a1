#!/usr/bin/env python3
"""Compares two folders that make_references.py wrote: equal models and data, numbers within 1e-5 relative."""

import json
import pathlib
import struct
import sys

import numpy

TOLERANCE = 1e-5


def read_safetensors(path: pathlib.Path) -> dict[str, numpy.ndarray]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    return {
        name: numpy.frombuffer(content, "<f4", (row["data_offsets"][1] - row["data_offsets"][0]) // 4,
                               8 + length + row["data_offsets"][0])
        for name, row in header.items()
    }


def difference(a, b) -> float:
    a, b = numpy.asarray(a, float), numpy.asarray(b, float)
    if a.shape != b.shape:
        return float("inf")
    return float(numpy.abs(a - b).max(initial=0) / max(numpy.abs(b).max(initial=0), 1e-6))


def compare_model(made: pathlib.Path, kept: pathlib.Path) -> list[str]:
    problems = []
    for name in ("model.onnx", *(f"data/{file.name}" for file in sorted((kept / "data").iterdir()))):
        if (made / name).read_bytes() != (kept / name).read_bytes():
            problems.append(f"{kept / name}: other bytes")
    made_runs = json.loads((made / "reference.json").read_text())["optimizers"]
    for optimizer, runs in json.loads((kept / "reference.json").read_text())["optimizers"].items():
        for micro_batch, run in runs.items():
            worst = difference(made_runs[optimizer][micro_batch]["losses"], run["losses"])
            if worst > TOLERANCE:
                problems.append(f"{kept}: losses of {optimizer} at micro-batch {micro_batch} differ by {worst:.2g}")
    tensors = read_safetensors(made / "reference.safetensors")
    for name, value in read_safetensors(kept / "reference.safetensors").items():
        worst = difference(tensors.get(name, []), value)
        if worst > TOLERANCE:
            problems.append(f"{kept}: {name} differs by {worst:.2g}")
    return problems


def main() -> None:
    made, kept = map(pathlib.Path, sys.argv[1:3])
    problems = [line for folder in sorted(kept.iterdir()) for line in compare_model(made / folder.name, folder)]
    print("\n".join(problems) or f"{kept}: as recorded")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
