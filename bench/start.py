#!/usr/bin/env python3
"""What it takes to start the ranks of a run: by `graphpipe run`, which forks them from one process that has loaded LibTorch, and by a
process each, as torchrun does.

    python3 bench/start.py [--graphpipe build/release/bin/graphpipe] [--rounds 5] [--devices 4]

The example gpt2_like with a stage on each device, one step. Rounds alternate between the two. Prints medians of seconds by the clock
and of the processors, `graphpipe` itself included, and of the memory of all ranks in the middle of a longer run (proportional set
size: a page that several share counts once).
"""

import argparse
import os
import pathlib
import resource
import secrets
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "tests/data/models/gpt2_like"


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def forked(arguments: argparse.Namespace, folder: str, steps: int) -> "list[subprocess.Popen]":
    return [subprocess.Popen([arguments.graphpipe, "run", folder, "--steps", str(steps), "--quiet"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)]


def one_by_one(arguments: argparse.Namespace, folder: str, steps: int) -> "list[subprocess.Popen]":
    given = dict(os.environ, WORLD_SIZE=str(arguments.devices), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                 GRAPHPIPE_SECRET=secrets.token_hex(32))
    return [subprocess.Popen([f"{folder}/build/device", "--steps", str(steps)], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, env=dict(given, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(arguments.devices)]


def seconds(start, *given) -> "tuple[float, float]":
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for process in start(*given, 1):
        process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def mebibytes(start, *given) -> float:
    """Of all ranks, once the first one has printed a step."""
    processes = start(*given, 1_000_000)
    processes[0].stdout.readline()
    ids = [process.pid for process in processes]
    if len(ids) == 1:
        ids = pathlib.Path(f"/proc/{ids[0]}/task/{ids[0]}/children").read_text().split()
    sizes = [pathlib.Path(f"/proc/{each}/smaps_rollup").read_text() for each in ids]
    for process in processes:
        process.kill()
        process.communicate()
    return sum(int(line.split()[1]) for size in sizes for line in size.splitlines() if line.startswith("Pss:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devices", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = f"{place}/out"
        subprocess.run([arguments.graphpipe, "compile", MODEL / "model.onnx", "--loss", "cross_entropy:logits,label", "--batch", "8",
                        "--devices", str(arguments.devices), "--stages", str(arguments.devices), "-o", folder, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        rounds = [(seconds(forked, arguments, folder), seconds(one_by_one, arguments, folder)) for _ in range(arguments.rounds)]
        for name, start, i in (("graphpipe run", forked, 0), ("a process each", one_by_one, 1)):
            clock, processor = (statistics.median(each[i][k] for each in rounds) for k in (0, 1))
            print(f"{name:15} {clock:6.2f} s  {processor:6.2f} s of processors  {mebibytes(start, arguments, folder):7.0f} MiB")


if __name__ == "__main__":
    main()
