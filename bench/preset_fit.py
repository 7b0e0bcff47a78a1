#!/usr/bin/env python3
"""The cost per operator of the presets, fitted to Sailor's measured layers (docs/clusters.md).

    python3 bench/preset_fit.py profiles_tmp.json

The file is Profiler data of eth-easl/sailor: model, GPU, samples, tensor-parallel degree, layer, then seconds of forward, backward and
update. Seconds of forward and backward of a block of OPT-350M are fitted by a + b n for n samples, by least squares of relative errors;
a is divided by the operators of such a block. The file's block 1 was measured by itself; its blocks 2 to 24 are one measurement.
"""

import argparse
import json
import pathlib

MODEL, OPERATORS = "OPT-350", 87  # of forward and gradients of one block, as the frontend lowers it
BLOCKS = {"first": "1", "others": "12"}


def line(points: list) -> tuple:
    """a, b, and the relative error of each point."""
    weights = [(n, seconds, seconds ** -2) for n, seconds in points]
    w, wn, wnn = (sum(weight * n ** power for n, _, weight in weights) for power in (0, 1, 2))
    wt, wnt = (sum(weight * seconds * n ** power for n, seconds, weight in weights) for power in (0, 1))
    determinant = w * wnn - wn * wn
    a, b = (wt * wnn - wnt * wn) / determinant, (w * wnt - wn * wt) / determinant
    return a, b, [abs((a + b * n) / seconds - 1) for n, seconds in points]


def fits(profile: dict) -> list:
    rows = []
    for gpu, sizes in profile[MODEL].items():
        for block, layer in BLOCKS.items():
            points = sorted((int(samples), sum(degrees["1"][layer][:2])) for samples, degrees in sizes.items() if layer in degrees.get("1", {}))
            if len(points) < 3:
                continue
            a, _, errors = line(points)
            rows.append({"gpu": gpu, "block": block, "samples": [n for n, _ in points], "operator_seconds": a / OPERATORS,
                         "mean_error": sum(errors) / len(errors), "worst_error": max(errors)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=pathlib.Path)
    print("| GPU | block | samples | us of an operator | mean error | worst error |\n|---|---|---|---|---|---|")
    for row in fits(json.loads(parser.parse_args().profile.read_text())):
        samples = f"{row['samples'][0]} to {row['samples'][-1]}"
        print(f"| {row['gpu']} | {row['block']} | {samples} | {1e6 * row['operator_seconds']:.1f} | {row['mean_error']:.1%} | {row['worst_error']:.1%} |")


if __name__ == "__main__":
    main()
