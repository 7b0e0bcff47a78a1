"""The picture of bench/proof.py: a panel for each training, the losses above and their differences below."""

import math

WIDTH, UPPER, LOWER, LEFT, TOP = 400, 200, 140, 60, 40
COLORS = {"pytorch": "#d1495b", "pipeline": "#1b1b1b", "rounding": "#bbbbbb"}


def polyline(points: list, color: str, width: float) -> str:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def thinned(values: list, count: int = 400) -> list:
    """The largest of each of `count` runs of neighbours, with its place from 0 to 1: no peak is lost."""
    size = max(1, len(values) // count)
    runs = [values[i:i + size] for i in range(0, len(values), size)]
    return [((i + 0.5) / len(runs), max(run)) for i, run in enumerate(runs)]


def losses_panel(report: dict, left: int) -> list:
    high = 1.05 * max(report["pytorch"])
    out = [f'<text x="{left + WIDTH / 2}" y="{TOP - 14}" text-anchor="middle">{report["model"]}: loss</text>',
           f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{UPPER}" fill="none" stroke="#bbb"/>']
    for i in range(5):
        y = TOP + UPPER * (1 - i / 4)
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{high * i / 4:.1f}</text>')
    for key, width in (("pytorch", 3.5), ("pipeline", 1)):
        points = [(left + WIDTH * x, TOP + UPPER * (1 - loss / high)) for x, loss in thinned(report[key])]
        out.append(polyline(points, COLORS[key], width))
    for step, name in ((report["killed_at"], "killed"), (report["changed_at"], "plan changed")):
        x = left + WIDTH * step / report["steps"]
        out.append(f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{TOP + UPPER}" stroke="#00798c" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{x + 4}" y="{TOP + 14}" fill="#00798c">{name}</text>')
    return out


def differences_panel(report: dict, left: int) -> list:
    top, low, high = TOP + UPPER + 40, -8, -2  # powers of ten
    out = [f'<text x="{left + WIDTH / 2}" y="{top - 10}" text-anchor="middle">difference of the losses of a step</text>',
           f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{LOWER}" fill="none" stroke="#bbb"/>']
    for power in range(low, high + 1, 2):
        y = top + LOWER * (high - power) / (high - low)
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">1e{power}</text>')
    for other, key in (("finer", "rounding"), ("pipeline", "pipeline")):
        gaps = [abs(a - b) for a, b in zip(report[other], report["pytorch"])]
        points = []
        for x, gap in thinned(gaps):
            power = min(max(math.log10(max(gap, 1e-12)), low), high)
            points.append((left + WIDTH * x, top + LOWER * (high - power) / (high - low)))
        out.append(polyline(points, COLORS[key], 1.2))
    out.append(f'<text x="{left + WIDTH / 2}" y="{top + LOWER + 18}" text-anchor="middle">steps, up to {report["steps"]}</text>')
    return out


def drawing(reports: list) -> str:
    width, height = LEFT + len(reports) * (WIDTH + 80), TOP + UPPER + LOWER + 110
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for i, report in enumerate(reports):
        left = LEFT + i * (WIDTH + 80)
        out += losses_panel(report, left) + differences_panel(report, left)
    keys = (("pytorch", "PyTorch"), ("pipeline", "pipelines; below, against PyTorch"),
            ("rounding", "PyTorch in the next finer precision against it"))
    for i, (key, name) in enumerate(keys):
        x, y = LEFT + 260 * i, height - 20
        out.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 18}" y2="{y - 4}" stroke="{COLORS[key]}" stroke-width="3"/>')
        out.append(f'<text x="{x + 24}" y="{y}">{name}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
