"""Where to cut a module for torch.distributed.pipelining, and in which order its ranks work.

    split = graphpipe.torch.plan(module, (example,), ranks=2, micro_batches=8)
    pipe = torch.distributed.pipelining.pipeline(module, mb_args=(example,), split_spec=split.split_spec())
    schedule = split.schedule(pipe.build_stage(rank, device), loss_fn)
    schedule.step(batch, target=target)        # on every rank; on the last one with losses=[...]

The module runs as a chain of its parts; each is timed here, forwards and backwards, at the size of one micro-batch.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

from .command import Flag, call


@dataclass(frozen=True)
class Part:
    """A module that a stage can begin with: `forward` and `backward` are seconds of one micro-batch until the next part
    begins, `output_bytes` what crosses a cut behind it."""

    name: str
    forward: float
    backward: float
    output_bytes: int
    weight_bytes: int


@dataclass(frozen=True)
class Split:
    """`stages` are the parts of each rank. Seconds are those of our simulator for one step: of this split, of as many
    parts on every rank (what one writes by hand), and a bound that no split of these parts beats."""

    stages: list[list[str]]
    parts: list[Part]
    micro_batches: int
    policy: str
    schedule_csv: str
    step: float
    even_step: float
    bound: float

    @property
    def split_points(self) -> list[str]:
        """The module that each stage but the first begins with."""
        return [names[0] for names in self.stages[1:]]

    def split_spec(self) -> dict[str, Any]:
        """For torch.distributed.pipelining.pipeline."""
        from torch.distributed.pipelining import SplitPoint

        return {name: SplitPoint.BEGINNING for name in self.split_points}

    def schedule(self, stage: Any, loss_fn: Optional[Callable[..., Any]] = None) -> Any:
        """PyTorch's schedule that runs our order on this rank's stage."""
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        made = _PipelineScheduleRuntime([stage], self.micro_batches, loss_fn=loss_fn)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "schedule.csv"
            path.write_text(self.schedule_csv, encoding="utf-8")
            made._load_csv(str(path), format="compute_only")
        return made

    def __repr__(self) -> str:
        gain = self.even_step / self.step
        return (f"Split(before {', '.join(self.split_points)}: {self.step * 1e3:.4g} ms a step simulated, {gain:.3g} times as fast "
                f"as equally many parts, bound {self.bound * 1e3:.4g} ms)")


def plan(module: Any, inputs: Sequence[Any], *, ranks: int, micro_batches: int, policy: str = "1f1b",
         loss_fn: Optional[Callable[[Any], Any]] = None, parts: Optional[Sequence[str]] = None, rounds: int = 5,
         bytes_per_second: float = 5e9) -> Split:
    """Times the parts of `module` for `inputs`, one micro-batch, and cuts them into `ranks` stages.

    `parts`: names of the modules that a stage may begin with, in the order in which they run; without them the children,
    those of containers one by one. `loss_fn` makes a scalar of the output (without it: the sum of its floats).
    Errors: ValueError where parts do not run once each in that order, or are fewer than the ranks.
    """
    named = dict(module.named_modules())
    names = list(parts) if parts is not None else _parts_of(module)
    for name in names:
        if name not in named:
            raise ValueError(f"the module has no part {name!r}")
    if len(names) < ranks:
        raise ValueError(f"{len(names)} parts cannot be cut into {ranks} stages; name smaller ones with parts=[...]")
    measured = measure(module, inputs, names, loss_fn, rounds)
    with tempfile.TemporaryDirectory(prefix="graphpipe-torch-") as folder:
        profile = os.path.join(folder, "parts.txt")
        Path(profile).write_text(_profile_text(measured), encoding="utf-8")
        flags: dict[str, Flag] = {"profile": profile, "profile_format": "pipedream", "profile_batch": 1, "batch": micro_batches,
                 "micro_batch": 1, "devices": ranks, "policy": policy, "bandwidth": bytes_per_second}
        made = os.path.join(folder, "plan.json")
        best = call("plan", planner="auto", stages=ranks, no_replication=True, output=made, **flags)
        even = os.path.join(folder, "even.json")
        Path(even).write_text(_evenly(Path(made).read_text(encoding="utf-8"), len(names), ranks), encoding="utf-8")
        by_hand = call("plan", plan=even, **flags)
        if by_hand["simulated_step"] < best["simulated_step"]:
            best = {**by_hand, "bound": best["bound"]}
        numbers = [[int(node.removeprefix("node")) - 1 for node in stage["nodes"]] for stage in best["stages"]]
        order = _order(folder, measured, numbers, policy, micro_batches)
    return Split([[names[i] for i in stage] for stage in numbers], measured, micro_batches, policy, order,
                 best["simulated_step"], by_hand["simulated_step"], best["bound"])


def _parts_of(module: Any) -> list[str]:
    import torch

    out: list[str] = []

    def visit(part: Any, prefix: str) -> None:
        for name, child in part.named_children():
            path = f"{prefix}{name}"
            if isinstance(child, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)):
                visit(child, path + ".")
            else:
                out.append(path)

    visit(module, "")
    return out


class _Clock:
    """Notes when each part begins, forwards and backwards."""

    def __init__(self, module: Any, names: Sequence[str]) -> None:
        self.order: list[str] = []
        self.forwards: dict[str, float] = {}
        self.backwards: dict[str, float] = {}
        self.output_bytes: dict[str, int] = {}
        self._handles = []
        for name in names:
            part = module.get_submodule(name)
            self._handles += [part.register_forward_pre_hook(self._begin(name)),
                              part.register_forward_hook(self._output(name)),
                              part.register_full_backward_pre_hook(self._begin_backward(name))]

    def _begin(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.order.append(name)
            self.forwards[name] = _now()
        return hook

    def _output(self, name: str) -> Callable[..., None]:
        def hook(_part: Any, _inputs: Any, output: Any) -> None:
            self.output_bytes[name] = sum(t.numel() * t.element_size() for t in _tensors(output))
        return hook

    def _begin_backward(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.backwards.setdefault(name, _now())
        return hook

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()


def _now() -> float:
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, (list, tuple)) else []


def measure(module: Any, inputs: Sequence[Any], names: Sequence[str], loss_fn: Optional[Callable[[Any], Any]] = None,
            rounds: int = 5) -> list[Part]:
    """The parts with the shortest times of so many rounds, after one to warm up. Gradients, buffers and random state are
    left as they were."""
    import torch

    forward = {name: float("inf") for name in names}
    backward = dict(forward)
    sizes: dict[str, int] = {}
    gradients = [p.grad for p in module.parameters()]
    buffers = [b.clone() for b in module.buffers()]
    try:
        with torch.random.fork_rng():
            for number in range(rounds + 1):
                for parameter in module.parameters():
                    parameter.grad = None
                ends = _one_round(module, inputs, names, loss_fn)
                sizes = ends.output_bytes
                if number > 0:
                    _take_shorter(ends, names, forward, backward)
    finally:
        for parameter, gradient in zip(module.parameters(), gradients):
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, kept in zip(module.buffers(), buffers):
                buffer.copy_(kept)
    weights = {name: sum(p.numel() * p.element_size() for p in module.get_submodule(name).parameters()) for name in names}
    return [Part(name, forward[name], backward[name], sizes[name], weights[name]) for name in names]


class _Ends(_Clock):
    middle = end = 0.0


def _one_round(module: Any, inputs: Sequence[Any], names: Sequence[str], loss_fn: Optional[Callable[[Any], Any]]) -> _Ends:
    clock = _Ends(module, names)
    try:
        output = module(*inputs)
        loss = loss_fn(output) if loss_fn is not None else sum(t.sum() for t in _tensors(output) if t.is_floating_point())
        clock.middle = _now()
        with warnings.catch_warnings():
            # A part that reads numbers of words has no gradient to give: its hook fires as its backward begins, as wanted.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            loss.backward()
        clock.end = _now()
    finally:
        clock.close()
    if clock.order != list(names):
        raise ValueError(f"the parts run in the order {clock.order}, expected each once in the order {list(names)}; name those "
                         "that do with parts=[...]")
    return clock


def _take_shorter(ends: _Ends, names: Sequence[str], forward: dict[str, float], backward: dict[str, float]) -> None:
    for i, name in enumerate(names):
        until = ends.forwards[names[i + 1]] if i + 1 < len(names) else ends.middle
        forward[name] = min(forward[name], until - ends.forwards[name])
        # Backwards run from the last part to the first; one without gradients begins no backward.
        begin = ends.backwards.get(name)
        before = next((ends.backwards[other] for other in reversed(names[:i]) if other in ends.backwards), ends.end)
        backward[name] = min(backward[name], max(0.0, before - begin) if begin is not None else 0.0)


def _profile_text(parts: Sequence[Part]) -> str:
    """PipeDream's profile format: milliseconds and bytes."""
    lines = [f"node{i + 1} -- part -- forward_compute_time={part.forward * 1e3:.6f}, backward_compute_time={part.backward * 1e3:.6f}, "
             f"activation_size={float(part.output_bytes)}, parameter_size={float(part.weight_bytes)}" for i, part in enumerate(parts)]
    lines += [f"\tnode{i} -- node{i + 1}" for i in range(1, len(parts))]
    return "\n".join(lines) + "\n"


def _evenly(plan_text: str, parts: int, ranks: int) -> str:
    """The same plan with as many parts on every rank, the first ones taking what is left over."""
    document = json.loads(plan_text)
    document.pop("schedule", None)
    begin = 0
    for i, stage in enumerate(document["stages"]):
        count = parts // ranks + (1 if i < parts % ranks else 0)
        stage["nodes"] = list(range(begin, begin + count))
        stage["labels"] = [f"node{n + 1}" for n in stage["nodes"]]
        stage["devices"] = [i]
        stage["alternatives"] = []
        begin += count
    return json.dumps(document)


def _order(folder: str, parts: Sequence[Part], stages: list[list[int]], policy: str, micro_batches: int) -> str:
    """The policy's order of these stages, as PyTorch's CSV."""
    longest = max(sum(parts[i].forward for i in stage) for stage in stages) or 1.0
    graph = {"predecessors": [[] if i == 0 else [i - 1] for i in range(len(stages))], "micro_batches": micro_batches,
             "forward": [max(1e-6, sum(parts[i].forward for i in stage) / longest) for stage in stages],
             "backward": [max(1e-6, sum(parts[i].backward for i in stage) / longest) for stage in stages]}
    dag, csv = os.path.join(folder, "stages.json"), os.path.join(folder, "schedule.csv")
    Path(dag).write_text(json.dumps(graph), encoding="utf-8")
    call("schedule", dag=dag, policy=policy, format="csv", output=csv)
    return Path(csv).read_text(encoding="utf-8")
