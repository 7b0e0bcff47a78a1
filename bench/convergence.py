#!/usr/bin/env python3
"""How asynchronous schedules converge: one model, one stream of samples, one size of update, one learning rate.

    python3 bench/convergence.py [--graphpipe build/release/bin/graphpipe] [--updates 640] [--svg docs/convergence.svg]

Trains tests/data/models/dlrm on clicks that a random teacher draws (seeded; no sample comes twice, so the loss of an
update is that of samples not seen before). Every policy makes one update from 32 samples, in the order of the data;
they differ in the age of the weights that a gradient is computed at. Prints a table, and draws the curves.
"""

import argparse
import array
import json
import math
import pathlib
import random
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
UPDATE, WINDOW = 32, 1024  # samples of an update; samples between two points of a curve, and of an asynchronous step
RATES = (0.1, 0.3, 1.0)
FEATURES, ROWS, BAG, TABLES = 13, 50, 4, ("site", "user", "item")
# Four devices each. The synchronous batch is an update; the others make many in one call, and drain at its end.
POLICIES = {
    "kfkb": ["--policy", "kfkb", "--batch", str(UPDATE), "--micro-batch", "8"],
    "pipedream": ["--policy", "pipedream", "--batch", str(WINDOW), "--drain-every", "1", "--micro-batch", str(UPDATE)],
    "pipedream --vertical-sync": ["--policy", "pipedream", "--vertical-sync", "--batch", str(WINDOW), "--drain-every", "1",
                                  "--micro-batch", str(UPDATE)],
    "2bw": ["--policy", "2bw", "--update", str(UPDATE), "--batch", str(WINDOW), "--drain-every", "1", "--micro-batch", "8"],
    "parameter-server": ["--policy", "parameter-server", "--batch", str(WINDOW), "--drain-every", "1", "--micro-batch",
                         str(UPDATE)],
}
COLORS = ("#1b1b1b", "#d1495b", "#edae49", "#00798c", "#7a5195")


def write_npy(path: pathlib.Path, kind: str, shape: tuple, values: array.array) -> None:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


def write_data(folder: pathlib.Path, samples: int) -> None:
    """Clicks with the odds that a linear teacher of features and table rows gives."""
    draw = random.Random(7)
    slope = [draw.gauss(0, 1) for _ in range(FEATURES)]
    taste = {table: [draw.gauss(0, 1) for _ in range(ROWS)] for table in TABLES}
    features, clicks = array.array("f"), array.array("f")
    rows = {table: array.array("q") for table in TABLES}
    for _ in range(samples):
        x = [draw.gauss(0, 1) for _ in range(FEATURES)]
        bags = {table: [draw.randrange(ROWS) for _ in range(BAG)] for table in TABLES}
        logit = sum(a * b for a, b in zip(slope, x)) + sum(taste[t][i] for t in TABLES for i in bags[t])
        features.extend(x)
        for table in TABLES:
            rows[table].extend(bags[table])
        clicks.append(float(draw.random() < 1 / (1 + math.exp(-logit))))
    write_npy(folder / "features.npy", "<f4", (samples, FEATURES), features)
    write_npy(folder / "click.npy", "<f4", (samples,), clicks)
    for table in TABLES:
        write_npy(folder / f"{table}.npy", "<i8", (samples, BAG), rows[table])


def windows(losses: list, per_window: int) -> list:
    return [sum(losses[i:i + per_window]) / per_window for i in range(0, len(losses), per_window)]


def measure(graphpipe: str, folder: pathlib.Path, data: pathlib.Path, samples: int) -> dict:
    curves = {}
    for policy, flags in POLICIES.items():
        # Stages do not depend on the policy: one folder per cut is compiled once.
        build = folder / ("whole" if policy == "parameter-server" else "cut")
        subprocess.run([graphpipe, "compile", str(ROOT / "tests/data/models/dlrm/model.onnx"), "--devices", "4",
                        "--planner", "equal-split", *flags, "--loss", "bce:logit,click", "-o", str(build), "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        batch = int(flags[flags.index("--batch") + 1])
        for rate in RATES:
            answer = subprocess.run([graphpipe, "run", str(build), "--data", str(data), "--steps",
                                     str(samples // batch), "--lr", str(rate), "--json", "--quiet"],
                                    check=True, capture_output=True, text=True)
            curves[policy, rate] = windows(json.loads(answer.stdout)["losses"], WINDOW // batch)
    return curves


def shown(loss: float) -> str:
    return f"{loss:.4f}" if loss is not None and math.isfinite(loss) and loss < 1e4 else "diverged"


def table(curves: dict, points: list) -> str:
    lines = ["| lr | policy | " + " | ".join(f"{(p + 1) * WINDOW // UPDATE}" for p in points) + " |",
             "|---|---|" + "---|" * len(points)]
    for rate in RATES:
        for policy in POLICIES:
            losses = " | ".join(shown(curves[policy, rate][point]) for point in points)
            lines.append(f"| {rate} | `{policy}` | {losses} |")
    return "\n".join(lines)


def panel(curves: dict, rate: float, left: int, low: float, high: float) -> list:
    width, height, top = 250, 240, 40
    out = [f'<text x="{left + width / 2}" y="26" text-anchor="middle">lr {rate}</text>',
           f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']
    for i in range(5):
        loss = low + (high - low) * i / 4
        y = top + height - height * i / 4
        out.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#eee"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{loss:.2f}</text>')
    for policy, color in zip(POLICIES, COLORS):
        curve = curves[policy, rate]
        points = []
        for i, loss in enumerate(curve):
            if loss is None or not math.isfinite(loss):
                break
            y = top + height - height * (min(max(loss, low), high) - low) / (high - low)
            points.append(f"{left + width * (i + 1) / len(curve):.1f},{y:.1f}")
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.6"/>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 18}" text-anchor="middle">updates, up to '
               f'{len(curves["kfkb", rate]) * WINDOW // UPDATE}</text>')
    return out


def drawing(curves: dict) -> str:
    low, high = 0.35, 0.75
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 350" font-family="sans-serif" font-size="12">',
           '<rect width="960" height="350" fill="white"/>']
    for i, rate in enumerate(RATES):
        out += panel(curves, rate, 50 + 305 * i, low, high)
    for i, (policy, color) in enumerate(zip(POLICIES, COLORS)):
        x = 50 + 185 * i
        out.append(f'<line x1="{x}" y1="326" x2="{x + 18}" y2="326" stroke="{color}" stroke-width="3"/>')
        out.append(f'<text x="{x + 24}" y="330">{policy}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--updates", type=int, default=640)
    parser.add_argument("--svg", default=str(ROOT / "docs/convergence.svg"))
    arguments = parser.parse_args()
    samples = -(-arguments.updates * UPDATE // WINDOW) * WINDOW
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        write_data(folder / "data", samples)
        curves = measure(arguments.graphpipe, folder, folder / "data", samples)
    last = samples // WINDOW - 1
    print(table(curves, sorted({0, last // 8, last // 4, last // 2, last})))
    pathlib.Path(arguments.svg).write_text(drawing(curves))


if __name__ == "__main__":
    main()
