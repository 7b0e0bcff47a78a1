#!/usr/bin/env python3
"""A picture of what bench/step_time.py --save has written: the steps of all programs, as parts of PyTorch eager's.

    bench/step_picture.py docs/step_time.json docs/step_time.svg
"""

import argparse
import html
import json
import pathlib

WIDTH, LEFT, TOP, BAR, GAP = 460, 100, 48, 11, 14
# Of a row of the results: the field, its name in the picture, its colour.
BARS = (("eager_seconds", "eager", "#bbbbbb"), ("torch_compile_seconds", "torch.compile", "#edae49"),
        ("ours_seconds", "GraphPipe", "#00798c"), ("bf16_seconds", "GraphPipe, bf16", "#66a182"))
BOUND = "#d1495b"


def bars_of(row: dict, top: float, scale: float) -> list[str]:
    out = [f'<text x="{LEFT - 8}" y="{top + BAR}" text-anchor="end">{html.escape(row["model"])}</text>']
    for field, _, color in BARS:
        if field not in row:
            continue
        share = row[field] / row["eager_seconds"]
        out.append(f'<rect x="{LEFT}" y="{top}" width="{scale * share:.1f}" height="{BAR - 1}" fill="{color}"/>')
        out.append(f'<text x="{LEFT + scale * share + 4:.1f}" y="{top + BAR - 2}" font-size="9">'
                   f'{1e3 * row[field]:.3g} ms</text>')
        top += BAR
    return out


def bound_of(row: dict, top: float, bottom: float, scale: float) -> str:
    """The roofline: `roofline` is our step over it."""
    x = LEFT + scale * row["ours_seconds"] / row["roofline"] / row["eager_seconds"]
    return f'<line x1="{x:.1f}" y1="{top - 2}" x2="{x:.1f}" y2="{bottom + 1}" stroke="{BOUND}" stroke-width="2"/>'


def drawing(rows: list[dict]) -> str:
    """The rows of a result file, one model below the other."""
    fields = [bar for bar in BARS if any(bar[0] in row for row in rows)]
    widest = max(row[field] / row["eager_seconds"] for row in rows for field, _, _ in fields if field in row)
    scale, body, top = WIDTH / widest, [], TOP
    for row in rows:
        bottom = top + BAR * sum(field in row for field, _, _ in fields)
        body += [*bars_of(row, top, scale), bound_of(row, top, bottom, scale)]
        top = bottom + GAP
    width = LEFT + WIDTH + 70
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 6}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{top + 6}" fill="white"/>',
           f'<text x="{LEFT}" y="16">a training step, as a part of PyTorch eager\'s</text>']
    names = [*((name, color) for _, name, color in fields), ("roofline", BOUND)]
    for i, (name, color) in enumerate(names):
        x = LEFT + i * (WIDTH + 60) / len(names)
        out.append(f'<rect x="{x:.0f}" y="25" width="10" height="10" fill="{color}"/>')
        out.append(f'<text x="{x + 14:.0f}" y="34" font-size="11">{name}</text>')
    return "\n".join([*out, *body, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("picture")
    arguments = parser.parse_args()
    results = json.loads(pathlib.Path(arguments.results).read_text())
    if results.get("bench") != "step_time" or not results["rows"]:
        parser.error(f"{arguments.results} has no rows of bench/step_time.py")
    pathlib.Path(arguments.picture).write_text(drawing(results["rows"]))


if __name__ == "__main__":
    main()
