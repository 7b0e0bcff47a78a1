#!/usr/bin/env python3
"""One training step on two cores, against PyTorch: two stages in four micro-batches beside torch.distributed.pipelining, and
the plan of `auto` beside eager with two threads.

    .deps/oracle/bin/python bench/two_devices.py [--graphpipe build/release/bin/graphpipe] [--rounds 3] [--seconds 3]
                                               [--schedules NAME,...] [--save FILE] [MODEL...]

Models are those of bench/wide_models.py that are a row of layers, and the branches and ResNet-18, which PyTorch has no pipeline for (`auto`
and eager alone): PyTorch's stages are its halves, one process and core each,
over gloo, with SGD, by GPipe and by 1F1B, or its quarters, two for each process, by interleaved 1F1B with and without zero
bubbles (--schedules names fewer; those in a V do not run over gloo); the fastest counts. Ours takes the policy that its
simulator finds best (--policy auto). Rounds alternate between the programs. Ratios are of our step to theirs; below 1 means
that GraphPipe is faster.
"""

import argparse
import os
import pathlib
import socket
import statistics
import tempfile
import time

import step_time  # first: it makes the examples' modules known

import torch
from torch import distributed, nn
from torch.distributed import pipelining

import results
import wide_models

MODELS = ["chain", "branches", "resnet18", "gpt2", "bert", "vit", "llama"]
MICRO_BATCHES = 4
# Class, number of stages, and which of them each process has.
SCHEDULES = {"gpipe": (pipelining.ScheduleGPipe, 2, ((0,), (1,))),
             "1f1b": (pipelining.Schedule1F1B, 2, ((0,), (1,))),
             "interleaved": (pipelining.ScheduleInterleaved1F1B, 4, ((0, 2), (1, 3))),
             "zero-bubble": (pipelining.ScheduleInterleavedZeroBubble, 4, ((0, 2), (1, 3)))}


class Head(nn.Module):
    """What a Classifier does after its layers."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.head(x.mean(1))


class Contiguous(nn.Module):
    """Gloo sends no other tensors, and the rows of ViT's patches are a transposed picture."""

    def forward(self, x):
        return x.contiguous()


def part_of(module: wide_models.Classifier, index: int, count: int) -> nn.Module:
    layers = list(module.layers)
    first, last = ((len(layers) * i + count - 1) // count for i in (index, index + 1))
    return nn.Sequential(*layers[first:last], Head(module.head) if index + 1 == count else Contiguous())


def run_stage(rank: int, name: str, schedule: str, limit: float, port: int, seconds) -> None:
    """One process of PyTorch's pipeline; the first one's clock counts."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    example = wide_models.load(name)
    kind, count, places = SCHEDULES[schedule]
    parts = {index: part_of(example.module.train(), index, count) for index in places[rank]}
    stages = [pipelining.PipelineStage(part, index, count, torch.device("cpu")) for index, part in parts.items()]
    pipeline = kind(stages if count > 2 else stages[0], n_microbatches=MICRO_BATCHES,
                    loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.SGD([weight for part in parts.values() for weight in part.parameters()], lr=0.01)
    x = next(iter(example.inputs.values()))[:step_time.BATCH]
    label = example.labels["label"][:step_time.BATCH]
    measured, goes_on = [], torch.ones(1)
    while goes_on.item():
        begin = time.perf_counter()
        optimizer.zero_grad()
        pipeline.step(*([x] if 0 in parts else []), target=label if count - 1 in parts else None)
        optimizer.step()
        distributed.barrier()
        measured.append(time.perf_counter() - begin)
        goes_on.fill_(sum(measured) < limit or len(measured) < step_time.FEWEST)
        distributed.broadcast(goes_on, 0)
    if rank == 0:
        seconds.value = step_time.settled(measured)
    distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pipelining_seconds(name: str, schedule: str, limit: float) -> float:
    seconds = torch.multiprocessing.get_context("spawn").Value("d", 0.0)
    torch.multiprocessing.spawn(run_stage, (name, schedule, limit, free_port(), seconds), nprocs=2)
    return seconds.value


class TwoThreads(step_time.Eager):
    def step_seconds(self, limit: float) -> float:
        torch.set_num_threads(2)
        try:
            return super().step_seconds(limit)
        finally:
            torch.set_num_threads(1)


def columns(arguments: argparse.Namespace) -> list[str]:
    return [*arguments.schedules, "pipeline", "eager", "auto"]


def measure(name: str, arguments: argparse.Namespace) -> dict:
    # A stage has a layer at least.
    layers = getattr(wide_models.load(name).module, "layers", [])
    schedules = [key for key in arguments.schedules if SCHEDULES[key][1] <= len(layers)]
    with tempfile.TemporaryDirectory() as folder:
        compiled = lambda flags: step_time.Compiled(arguments.graphpipe, pathlib.Path(folder), name, True,
                                                    ["--devices", "2", *flags])
        programs = {
            **{key: lambda limit, key=key: pipelining_seconds(name, key, limit) for key in schedules},
            **({"pipeline": compiled(["--stages", "2", "--micro-batch", str(step_time.BATCH // MICRO_BATCHES), "--policy",
                                      "auto"]).step_seconds} if schedules else {}),
            "eager": TwoThreads(wide_models.load(name), False).step_seconds,
            "auto": compiled([]).step_seconds,
        }
        rounds = [{key: step(arguments.seconds) for key, step in programs.items()} for _ in range(arguments.rounds)]
    median = {f"{key}_seconds": statistics.median(each[key] for each in rounds) for key in programs}
    row = {"model": name, **median}
    if schedules:
        row["pipeline_ratio"] = statistics.median(each["pipeline"] / min(each[key] for key in schedules) for each in rounds)
    row["auto_ratio"] = statistics.median(each["auto"] / each["eager"] for each in rounds)
    times = [f"{1e3 * median[f'{key}_seconds']:.1f}" if key in programs else "" for key in columns(arguments)]
    print(f"{name:12}", *(f"{time:>14}" for time in times), f"{row.get('pipeline_ratio', float('nan')):15.3f} {row['auto_ratio']:10.3f}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(step_time.ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of a program in a round")
    parser.add_argument("--schedules", type=lambda words: words.split(","), default=list(SCHEDULES),
                        help="PyTorch's, of " + ", ".join(SCHEDULES))
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in MODELS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if unknown := [key for key in arguments.schedules if key not in SCHEDULES]:
        parser.error(f"no schedule {', '.join(unknown)}; there are {', '.join(SCHEDULES)}")
    torch.set_num_threads(1)
    print(f"{'model':12}", *(f"{key + ' ms':>14}" for key in columns(arguments)), f"{'ours/pipelining':>15} {'auto/eager':>10}")
    rows = [measure(name, arguments) for name in arguments.models or MODELS]
    if arguments.save:
        results.save(arguments.save, "two_devices", rows, key=["model"], lower_is_better=["pipeline_ratio", "auto_ratio"])


if __name__ == "__main__":
    main()
