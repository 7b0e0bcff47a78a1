#!/usr/bin/env python3
"""Compares two result files of one benchmark, row by row.

    bench/compare_results.py BEFORE.json AFTER.json [--worse 1.05]

Prints the ratio after / before of every field of which less is better: inf where there is no number any more, or
where there was 0. Ends with 1 where a ratio is above --worse, with 2 where the files are not results of one benchmark.
Rows that only one file has are named.
"""

import argparse
import json
import math
import sys

from results import SCHEMA


def read(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}") from error
    if not isinstance(results, dict) or results.get("schema") != SCHEMA:
        raise SystemExit(f"{path}: is no result file ({SCHEMA})")
    for field in ("bench", "processor", "cores", "key", "lower_is_better", "rows"):
        if field not in results:
            raise SystemExit(f"{path}: has no {field}")
    return results


def by_key(results: dict) -> dict:
    return {tuple(row[field] for field in results["key"]): row for row in results["rows"]}


def ratios(before: dict, after: dict) -> list[tuple[str, str, float]]:
    """(row, field, after / before) of all rows and fields that both have, in the order of the first."""
    found = []
    newer = by_key(after)
    for key, row in by_key(before).items():
        other = newer.get(key)
        if other is None:
            continue
        for field in before["lower_is_better"]:
            was, is_now = row.get(field), other.get(field)
            if was is None:
                continue
            # Nothing where there was a number is the worst of all; so is something where there was 0.
            worst = is_now is None or (was == 0 and is_now > 0)
            ratio = math.inf if worst else 1.0 if was == 0 else is_now / was
            found.append((" ".join(map(str, key)), field, ratio))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--worse", type=float, default=1.05, help="ratio above which the comparison fails")
    arguments = parser.parse_args()
    try:
        before, after = read(arguments.before), read(arguments.after)
        if (before["bench"], before["key"]) != (after["bench"], after["key"]):
            raise SystemExit(f"results of {before['bench']} and of {after['bench']} cannot be compared")
    except SystemExit as refusal:
        print(refusal, file=sys.stderr)
        return 2
    if (before["processor"], before["cores"]) != (after["processor"], after["cores"]):
        print(f"note: measured on other machines ({before['processor']}, {after['processor']})")
    for key in by_key(before).keys() ^ by_key(after).keys():
        print(f"only in one file: {' '.join(map(str, key))}")
    worst = 0.0
    for row, field, ratio in ratios(before, after):
        mark = "  worse" if ratio > arguments.worse else ""
        print(f"{row:40} {field:20} {ratio:7.3f}{mark}")
        worst = max(worst, ratio)
    return 1 if worst > arguments.worse else 0


if __name__ == "__main__":
    sys.exit(main())
