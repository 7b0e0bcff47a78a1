#!/usr/bin/env python3
"""Graph against chain on two cores, with the real kernels: the plan of our planners beside the best chain of PipeDream's and
Piper's, executed as a chain (docs/semantics.md, section 1).

    .deps/oracle/bin/python bench/graph_against_chain.py [--graphpipe build/release/bin/graphpipe] [--rounds 3] [--seconds 3]
                                                        [--save FILE] [CASE...]

Models are those of bench/wide_models.py that have branches: two towers (clip), whose loss sees the whole batch or each
micro-batch, and four branches of Transformer blocks. Of each side the plan with the shortest simulated step is compiled and
run, by two processes of one thread. Rounds alternate between the sides. A ratio is the chain's step over the graph's; above 1
means that the graph is faster.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import step_time  # first: it makes the examples' modules known

import results

# Model, and flags of both sides.
CASES = {"clip": ("clip", []), "clip-micro-batch": ("clip", ["--contrastive", "micro-batch"]), "branches": ("branches", [])}
SIDES = {"chain": (("pipedream", "piper"), ["--execute", "chain"]), "graph": (("graphpipe", "auto"), [])}
BATCH = step_time.BATCH


def best_planner(graphpipe: str, model: tuple, side: str, flags: list[str]) -> tuple[float, str]:
    """The shortest simulated step of a side, and whose it is."""
    path, _, loss = model
    names, more = SIDES[side]
    steps = []
    for name in names:
        words = [graphpipe, "plan", str(path), "--loss", loss, "--devices", "2", "--batch", str(BATCH), "--planner", name, *more, *flags]
        answer = subprocess.run([*words, "--json", "--quiet"], check=True, capture_output=True, text=True)
        steps.append((json.loads(answer.stdout)["simulated_step"], name))
    return min(steps)


def measure(case: str, arguments: argparse.Namespace) -> dict:
    name, flags = CASES[case]
    row, programs = {"case": case}, {}
    with tempfile.TemporaryDirectory() as folder:
        model = step_time.prepared(name, True, pathlib.Path(folder))
        for side in SIDES:
            row[f"{side}_simulated"], row[f"{side}_planner"] = best_planner(arguments.graphpipe, model, side, flags)
            programs[side] = step_time.Compiled(arguments.graphpipe, pathlib.Path(folder), name, True,
                                                ["--devices", "2", "--planner", row[f"{side}_planner"], *SIDES[side][1], *flags], BATCH)
        rounds = [{side: program.step_seconds(arguments.seconds) for side, program in programs.items()}
                  for _ in range(arguments.rounds)]
    for side in SIDES:
        row[f"{side}_seconds"] = statistics.median(each[side] for each in rounds)
    row["ratio"] = statistics.median(each["chain"] / each["graph"] for each in rounds)
    row["simulated_ratio"] = row["chain_simulated"] / row["graph_simulated"]
    print(f"{case:16}", *(f"{1e3 * row[f'{side}_{what}']:10.1f}" for side in SIDES for what in ("seconds", "simulated")),
          f"{row['ratio']:8.3f} {row['simulated_ratio']:10.3f}  {row['chain_planner']}, {row['graph_planner']}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(step_time.ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of a side in a round")
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if unknown := [case for case in arguments.cases if case not in CASES]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    print(f"{'case':16}", *(f"{word:>10}" for word in ("chain ms", "simulated", "graph ms", "simulated")), f"{'ratio':>8} {'simulated':>10}  planners")
    rows = [measure(case, arguments) for case in arguments.cases or CASES]
    if arguments.save:
        results.save(arguments.save, "graph_against_chain", rows, key=["case"], lower_is_better=["graph_seconds"])


if __name__ == "__main__":
    main()
