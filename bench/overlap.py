#!/usr/bin/env python3
"""Two replicas on two hosts, whose gradients are summed during the last backward or behind it (--overlap-all-reduce).

    .deps/oracle/bin/python bench/overlap.py [--graphpipe build/release/bin/graphpipe] [--rounds 4] [--steps 20]
                                             [--rates 1,3,10] [MODEL...]

The hosts are two network namespaces with a cable between them, which carries so many Gb/s in each direction (needs root, and
the programs ip and tc). Each host has one replica of the whole model, one of bench/wide_models.py. Rounds alternate between
the two; medians. Ratios are of the step with overlap to that without; below 1 means that the overlap is faster.
"""

import argparse
import contextlib
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import tempfile

import step_time

HOSTS = [(f"graphpipe-overlap-{os.getpid()}-{i}", f"10.77.1.{i + 1}") for i in range(2)]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def two_hosts(rate: str):
    names = [name for name, _ in HOSTS]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable0", "netns", names[0], "type", "veth", "peer", "name", "cable1", "netns", names[1])
        for i, (name, address) in enumerate(HOSTS):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"cable{i}")
            for device in (f"cable{i}", "lo"):
                ip("-n", name, "link", "set", device, "up")
            ip("netns", "exec", name, "tc", "qdisc", "add", "dev", f"cable{i}", "root", "tbf", "rate", f"{rate}gbit",
               "burst", "512kb", "latency", "50ms")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def step_seconds(program: pathlib.Path, data: str, steps: int, overlap: str) -> float:
    secret, ranks = secrets.token_hex(32), []
    for rank, (name, _) in enumerate(HOSTS):
        environment = {**os.environ, "GRAPHPIPE_SECRET": secret, "RANK": str(rank), "WORLD_SIZE": "2",
                       "MASTER_ADDR": HOSTS[0][1], "MASTER_PORT": "29477"}
        own_processes = ["unshare", "--pid", "--fork"] if rank > 0 else []
        command = ["ip", "netns", "exec", name, *own_processes, str(program / "build/device"), "--data", data, "--steps",
                   str(steps), "--transport", "tcp", "--overlap-all-reduce", overlap, "--json"]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    answers = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("a rank has failed")
    return statistics.median(json.loads(answers[0])["step_seconds"][steps // 4:])


def measure(name: str, arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--devices", "2", "--planner", "data-parallel"]
        ours = step_time.Compiled(arguments.graphpipe, pathlib.Path(folder), name, True, flags)
        data = ours.command[ours.command.index("--data") + 1]
        for rate in arguments.rates.split(","):
            with two_hosts(rate):
                rounds = [{overlap: step_seconds(ours.program, data, arguments.steps, overlap)
                           for overlap in ("never", "always")} for _ in range(arguments.rounds)]
            ratios = sorted(each["always"] / each["never"] for each in rounds)
            behind, during = (statistics.median(each[key] for each in rounds) for key in ("never", "always"))
            print(f"{name:12} {rate:>5} {1e3 * behind:12.1f} {1e3 * during:12.1f} {ratios[0]:8.3f} "
                  f"{statistics.median(ratios):7.3f} {ratios[-1]:7.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["chain", "bert"])
    parser.add_argument("--graphpipe", default=str(step_time.ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rates", default="1,3,10")
    arguments = parser.parse_args()
    print(f"{'model':12} {'Gb/s':>5} {'behind, ms':>12} {'during, ms':>12} {'ratio: least':>8} {'median':>7} {'most':>7}")
    for name in arguments.models:
        measure(name, arguments)


if __name__ == "__main__":
    main()
