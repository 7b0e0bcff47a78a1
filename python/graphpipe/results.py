"""What the verbs answer with --json, as typed objects. Fields have the names of the JSON; times are seconds, sizes bytes
unless `unit` says otherwise. Fields that a verb leaves out are None, or empty."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from typing import Any, Optional, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Diagnostic:
    """One finding: `origin` is the node, file or flag that it is about, `hint` what to do."""

    code: str = ""
    severity: str = "error"
    origin: str = ""
    message: str = ""
    hint: str = ""
    count: int = 1

    def __str__(self) -> str:
        origin = f" '{self.origin}'" if self.origin else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.severity}[{self.code}]{origin}: {self.message}{hint}"


@dataclass(frozen=True)
class Answer:
    """What every verb says: `complete` is False where it ended before its work did."""

    schema: str = ""
    tool_version: str = ""
    complete: bool = True
    diagnostics: list[Diagnostic] = field(default_factory=list)


@dataclass(frozen=True)
class Tensor:
    name: str
    type: str


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str
    role: str
    trained: bool
    reason: str


@dataclass(frozen=True)
class Inspection(Answer):
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    operators: dict[str, int] = field(default_factory=dict)
    trained_bytes: int = 0
    frozen_bytes: int = 0
    fixed_bytes: int = 0


@dataclass(frozen=True)
class Lint(Answer):
    warnings: int = 0
    notes: int = 0
    passed: bool = False


@dataclass(frozen=True)
class Stage:
    """`nodes` counts in the order of the operator graph; `sample_scope` says whether the stage sees each sample by
    itself, a micro-batch or the whole batch; `modules` are the outermost modules that lie in the stage alone."""

    nodes: list[int]
    devices: list[int]
    predecessors: list[int]
    micro_batch: int
    modules: list[str] = field(default_factory=list)
    k: int = 1
    recompute: bool = False
    shard_optimizer_state: bool = False
    mixes_samples: bool = False
    sample_scope: str = "each"


@dataclass(frozen=True)
class SixteenBitRates:
    flops_per_second: float
    convolution_flops_per_second: float
    attention_flops_per_second: float


@dataclass(frozen=True)
class Machine:
    source: str
    description: str
    devices: int
    cores: int = 0
    flops_per_second: Optional[float] = None
    convolution_flops_per_second: Optional[float] = None
    winograd_flops_per_second: Optional[float] = None
    depthwise_flops_per_second: Optional[float] = None
    attention_flops_per_second: Optional[float] = None
    function_flops_per_second: Optional[float] = None
    bfloat16: Optional[SixteenBitRates] = None
    float16: Optional[SixteenBitRates] = None
    memory_bytes_per_second: Optional[float] = None
    weight_bytes_per_second: Optional[float] = None
    launch_overhead_seconds: Optional[float] = None
    memory_bytes: Optional[int] = None
    latency_seconds: Optional[float] = None
    bytes_per_second: Optional[float] = None


@dataclass(frozen=True)
class OtherStageGraph:
    stages: int
    micro_batch: int
    simulated_step: float
    peak_bytes: int


@dataclass(frozen=True)
class OtherPolicy:
    policy: str
    simulated_step: float
    peak_bytes: int


@dataclass(frozen=True)
class PlanSummary(Answer):
    """Of `plan`, `compile` and `simulate`. `step_bound` is what no order of these stages beats, `bound` what no plan of
    the search space beats in the planner's own objective. `ordered_by` is the policy whose order `auto` took, and `policy`
    of all others. `steady_step` is a mini-batch of an asynchronous plan while its pipeline is full, which it drains after
    `drain_every`; `best_stage_graph` is what lost against a plan of one stage; `faster_policy` would
    order the same stages better."""

    planner: str = ""
    policy: str = ""
    ordered_by: str = ""
    execute: str = "graph"
    stages: list[Stage] = field(default_factory=list)
    batch: int = 0
    simulated_step: Optional[float] = None
    step_bound: Optional[float] = None
    bound: Optional[float] = None
    unit: str = "s"
    objective: Optional[float] = None
    gap: Optional[float] = None
    machine: Optional[Machine] = None
    drain_every: Optional[int] = None
    steady_step: Optional[float] = None
    steady_update: Optional[float] = None
    step_on_cores: Optional[float] = None
    best_stage_graph: Optional[OtherStageGraph] = None
    faster_policy: Optional[OtherPolicy] = None
    idle_fraction: Optional[float] = None
    peak_bytes: list[int] = field(default_factory=list)
    arena_bytes: list[int] = field(default_factory=list)
    limit: str = ""
    limit_kind: str = ""
    search_seconds: Optional[float] = None
    plan_digest: str = ""


@dataclass(frozen=True)
class CriticalAction:
    device: int
    action: str
    start: float
    end: float


@dataclass(frozen=True)
class MemoryOverTime:
    """`points`: pairs of a time and the bytes from there on."""

    device: int
    points: list[list[float]]


@dataclass(frozen=True)
class Simulation(PlanSummary):
    """`idle`: of every device its number and the seconds that it waits, by cause. `message_bytes`, `summed_bytes`: of every
    device what it sends in a step, and the weight gradients that it sums with others."""

    idle: list[dict[str, float]] = field(default_factory=list)
    critical_path: list[CriticalAction] = field(default_factory=list)
    message_bytes: list[int] = field(default_factory=list)
    summed_bytes: list[int] = field(default_factory=list)
    memory: list[MemoryOverTime] = field(default_factory=list)


@dataclass(frozen=True)
class ComparedPlan:
    planner: str
    policy: str
    objective: Optional[float] = None
    unit: str = ""
    bound: Optional[float] = None
    gap: Optional[float] = None
    simulated_step: Optional[float] = None
    peak_bytes: Optional[int] = None
    idle_fraction: Optional[float] = None
    message_bytes: Optional[int] = None
    stages: Optional[int] = None
    search_seconds: Optional[float] = None
    execute: str = "graph"
    best: bool = False
    fits_memory: bool = True
    complete: bool = True
    steady_step: Optional[float] = None
    steady_update: Optional[float] = None
    error: str = ""


@dataclass(frozen=True)
class Comparison(Answer):
    devices: str = ""
    plans: list[ComparedPlan] = field(default_factory=list)


@dataclass(frozen=True)
class Run(Answer):
    """`losses`, `step_seconds` and `gradient_norms` are those of the steps from `first_step` on (with restarts=..., each
    step once, as it ran last); a loss or norm that is not finite is None. `eval_losses` are those after `eval_steps`.
    The last four are those of a parameter server."""

    plan: str = ""
    transport: str = ""
    devices: int = 0
    steps: int = 0
    first_step: int = 1
    losses: list[Optional[float]] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    gradient_norms: list[Optional[float]] = field(default_factory=list)
    eval_steps: list[int] = field(default_factory=list)
    eval_losses: list[Optional[float]] = field(default_factory=list)
    skipped_steps: list[int] = field(default_factory=list)
    loss_scales: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    arena_bytes: list[int] = field(default_factory=list)
    planned_arena_bytes: list[int] = field(default_factory=list)
    arena_steps: list[int] = field(default_factory=list)
    fallback_steps: list[int] = field(default_factory=list)
    fallbacks: list[int] = field(default_factory=list)
    page_faults: list[int] = field(default_factory=list)
    updates: Optional[int] = None
    staleness_bound: Optional[int] = None
    largest_staleness: Optional[int] = None
    mean_staleness: Optional[float] = None


@dataclass(frozen=True)
class Verification(Answer):
    bitwise: bool = False
    by_tolerance: Optional[bool] = None  # asynchronous schedules have no other check than the bits
    passed: bool = False
    asynchronous: bool = False
    same_skipped_steps: Optional[bool] = None
    compared_steps: Optional[int] = None
    loss_difference: Optional[float] = None
    worst_loss_step: Optional[int] = None
    gradient_difference: Optional[float] = None
    worst_gradient: str = ""
    worst_gradient_tolerance: Optional[float] = None
    worst_gradient_index: str = ""
    worst_gradient_found: Optional[float] = None
    worst_gradient_expected: Optional[float] = None
    worst_gradient_step: Optional[int] = None
    weight_difference: Optional[float] = None
    worst_weight: str = ""
    worst_weight_tolerance: Optional[float] = None
    worst_weight_index: str = ""
    worst_weight_found: Optional[float] = None
    worst_weight_expected: Optional[float] = None
    worst_weight_step: Optional[int] = None
    output_difference: Optional[float] = None
    worst_output: str = ""
    worst_output_tolerance: Optional[float] = None
    worst_output_index: str = ""
    worst_output_found: Optional[float] = None
    worst_output_expected: Optional[float] = None
    loss_tolerance: Optional[float] = None
    tensor_tolerance: Optional[float] = None


def _converted(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if value is None:
        return None
    if origin is typing.Union:
        return _converted(next(a for a in arguments if a is not type(None)), value)
    if origin is list:
        return [_converted(arguments[0], item) for item in value]
    if origin is dict:
        return {key: _converted(arguments[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return parsed(typing.cast(type, kind), value)
    return value


def parsed(kind: type[T], value: dict[str, Any]) -> T:
    """The object of a verb's JSON. Keys that the type does not have are left out."""
    hints = typing.get_type_hints(kind)
    known = {f.name for f in dataclasses.fields(typing.cast(Any, kind))}
    return kind(**{key: _converted(hints[key], item) for key, item in value.items() if key in known})
