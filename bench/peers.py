#!/usr/bin/env python3
"""Our planners against what the original programs answered on the same profiles, row by row.

    bench/peers.py [--graphpipe build/release/bin/graphpipe] [--data tests/data] [--save FILE]

Reads planner-peer-results.csv (tests/data/README.md says how it was made) and plans every row of PipeDream, Piper, the equal
split inside Piper's program, and the exact program over downsets whose profile lies beside it: with all quirks of the original (`equal` must be 1), and
without (`ours/peer` must not exceed 1 where the convention is the same). Prints both ratios, and the processor seconds of the
two programs; the originals' were measured elsewhere, on a machine of the same kind. --save writes the rows to a file for
compare_results.py.
"""

import argparse
import csv
import json
import math
import pathlib
import re
import resource
import subprocess

import results

NO_FEASIBLE_PLAN = 4
ROOT = pathlib.Path(__file__).resolve().parents[1]


def pipedream(row: dict) -> list[str]:
    config = row["config"]
    levels = re.fullmatch(r"(\d+) per server at ([\d.]+) GB/s, (\d+) servers at ([\d.]+) GB/s", config)
    if levels:
        inner, fast, outer, slow = levels.groups()
        return ["--topology", f"{inner}@{fast}e9,{outer}@{slow}e9"]
    words = ["--devices", row["devices"], "--bandwidth", "1e9"]
    flags = {"16 GB limit": ["--memory", "16e9"], "activation traffic ignored (default)": ["--no-traffic"],
             "may use fewer": ["--use-fewer"], "no replication": ["--no-replication"]}
    for option in config.split(", ")[1:]:
        if option != "1 GB/s":
            words += flags[option]
    return words


def piper(row: dict) -> list[str]:
    memory, count, bandwidth = re.fullmatch(r"(\d+) GiB per device, N=(\d+|from file), (\d+) GiB/s",
                                            row["config"]).groups()
    words = ["--devices", row["devices"], "--memory", str(int(memory) << 30), "--bandwidth", str(int(bandwidth) << 30)]
    return words if count == "from file" else words + ["--micro-batches", count]


# peer: folder, format, planner, its flags for a row
PEERS = {
    "PipeDream": ("pipedream", "pipedream", "pipedream", pipedream),
    "Piper": ("piper", "piper", "piper", piper),
    "2BW-style equal split (inside Piper)": ("piper", "piper", "equal-split", piper),
    "dnn-partitioning: exact DP over downsets": ("dnn-partitioning", "dnn-partitioning", "max-throughput",
                                                 lambda row: []),
}


def profile_of(data: pathlib.Path, folder: str, name: str) -> pathlib.Path | None:
    found = [path for path in (data / folder).rglob("*") if path.stem == name and path.suffix in (".txt", ".json")]
    return found[0] if found else None


def plan(graphpipe: str, words: list[str]) -> tuple[dict | None, float]:
    """None where no plan fits."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = subprocess.run([graphpipe, "plan", *words, "--json", "--quiet"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if answer.returncode not in (0, NO_FEASIBLE_PLAN):
        raise SystemExit(answer.stdout)
    return (json.loads(answer.stdout) if answer.returncode == 0 else None,
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def ratio(answer: dict | None, row: dict) -> float:
    """Ours to the peer's objective; 1 where neither has a plan. Both units begin with s, ms or us."""
    if answer is None or row["objective"] == "infeasible":
        return 1 if answer is None and row["objective"] == "infeasible" else math.inf
    scale = {"s": 1, "ms": 1e-3, "us": 1e-6}
    return (answer["objective"] * scale[answer["unit"].split()[0]] /
            (float(row["objective"]) * scale[row["unit"].split()[0]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "tests/data")
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("inputs", nargs="*", help="only these profiles")
    arguments = parser.parse_args()
    print(f"{'peer':10} {'profile':26} {'configuration':48} {'equal':>9} {'ours/peer':>10} {'peer s':>8} {'ours s':>7}")
    with open(arguments.data / "planner-peer-results.csv", encoding="utf-8") as file:
        # The equal split was read off the output of Piper's runs: it has no time and no ending of its own.
        rows = [row for row in csv.DictReader(file)
                if row["peer"] in PEERS and (row["status"] == "ok" or row["peer"].startswith("2BW"))]
    saved = []
    for row in rows:
        folder, format_, planner, flags = PEERS[row["peer"]]
        profile = profile_of(arguments.data, folder, row["input"])
        if profile is None or arguments.inputs and row["input"] not in arguments.inputs:
            continue
        words = ["--profile", str(profile), "--profile-format", format_, "--planner", planner, *flags(row)]
        same, seconds = plan(arguments.graphpipe, words + ["--compat", "all"])
        free, _ = plan(arguments.graphpipe, words)
        saved.append({"peer": row["peer"], "profile": row["input"], "config": row["config"], "devices": row["devices"],
                      "equal": ratio(same, row), "objective": ratio(free, row)})
        print(f"{row['peer'].split(':')[0]:10.10} {row['input']:26.26} {row['config'] + ', ' + row['devices']:48.48} "
              f"{ratio(same, row):9.6f} {ratio(free, row):10.4f} {row['cpu_s'] or '-':>8} {seconds:7.2f}", flush=True)
    if arguments.save:
        results.save(arguments.save, "peers", saved, key=["peer", "profile", "config", "devices"],
                     lower_is_better=["equal", "objective"])


if __name__ == "__main__":
    main()
