"""How the time of `schedule --dag` and `check` grows with the input: eight times the size, side by side.

  python3 bench/schedule_scale.py build/release/bin/graphpipe

Each pair of sizes is timed in alternating rounds, processor seconds of the whole command, the shortest of each size. What is
linear takes eight times as long, a quadratic command 64 times. `--save FILE` writes the rows for compare_results.py.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import tempfile

import results

TIMES = 8
ROUNDS = 3


def chain(stage: int, stages: int) -> list[int]:
    return [stage - 1] if stage else []


def two_before(stage: int, stages: int) -> list[int]:
    return [before for before in (stage - 2, stage - 1) if before >= 0]


def fan(stage: int, stages: int) -> list[int]:
    if stage == stages - 1:
        return list(range(1, stages - 1))
    return [0] if stage else []


def processor_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, small: list[str], large: list[str]) -> dict:
    seconds = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for size, command in enumerate((small, large)):
            seconds[size] = min(seconds[size], processor_seconds(command))
    row = {"case": name, "small": seconds[0], "large": seconds[1], "ratio": seconds[1] / seconds[0]}
    print(f"{name:28} {seconds[0]:7.3f} s {seconds[1]:7.3f} s   {row['ratio']:5.1f} times as long", flush=True)
    return row


def dag_case(graphpipe: str, folder: pathlib.Path, predecessors, stages: int) -> dict:
    commands = []
    for count in (stages, TIMES * stages):
        file = folder / f"{predecessors.__name__}-{count}.json"
        file.write_text(json.dumps({"predecessors": [predecessors(stage, count) for stage in range(count)],
                                    "micro_batches": 8}))
        commands.append([graphpipe, "schedule", "--dag", str(file), "-o", str(folder / "schedule"), "-q"])
    return measure(f"schedule --dag {predecessors.__name__} {stages}", *commands)


def check_case(graphpipe: str, folder: pathlib.Path, form: str, micro_batches: int) -> dict:
    commands = []
    for count in (micro_batches, TIMES * micro_batches):
        file = folder / f"schedule-{count}.{form}"
        subprocess.run([graphpipe, "schedule", "--ranks", "8", "--micro-batches", str(count), "--format", form, "-o",
                        str(file), "-q"], check=True)
        commands.append([graphpipe, "check", str(file)])
    return measure(f"check {form} {micro_batches}", *commands)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("graphpipe")
    arguments.add_argument("--save")
    asked = arguments.parse_args()
    print(f"{'case, at its smaller size':28} {'smaller':>9} {f'{TIMES} x':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = [dag_case(asked.graphpipe, folder, shape, 1250) for shape in (chain, two_before, fan)]
        rows += [check_case(asked.graphpipe, folder, form, 1250) for form in ("csv", "ir")]
    if asked.save:
        results.save(asked.save, "schedule_scale", rows, ["case"], ["large", "ratio"])


if __name__ == "__main__":
    main()
