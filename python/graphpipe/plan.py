"""Plans: made from a model, read from a file, looked at, compiled."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

from .command import Flag, call
from .results import Comparison, Inspection, Lint, PlanSummary, Simulation, parsed

if TYPE_CHECKING:
    from .program import Program

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a plan file. `nodes` are the names of its operators in the model; `modules` are the modules of the
    PyTorch module that they come from, outermost that lie in this stage alone (empty without a side file)."""

    nodes: list[str]
    devices: list[int]
    micro_batch: int
    modules: list[str]


class Plan:
    """A plan file. `summary` is what the planner said of it."""

    def __init__(self, path: PathLike, summary: Optional[PlanSummary] = None, model: Optional[PathLike] = None) -> None:
        self.path = Path(path)
        self.model = None if model is None else Path(model)
        self._summary = summary
        self._kept: Optional[tempfile.TemporaryDirectory[str]] = None

    @property
    def summary(self) -> PlanSummary:
        if self._summary is None:
            self._summary = self.simulate()
        return self._summary

    @property
    def stages(self) -> list[PlannedStage]:
        document = json.loads(self.path.read_text(encoding="utf-8"))
        return [PlannedStage(stage["labels"], stage["devices"], stage["micro_batch"], said.modules)
                for stage, said in zip(document["stages"], self.summary.stages)]

    def simulate(self, **flags: Flag) -> Simulation:
        """Its timeline: where time and memory go."""
        return parsed(Simulation, call("simulate", self.path, **flags))

    def svg(self) -> str:
        """The timeline as a picture."""
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "timeline.svg"
            call("simulate", self.path, format="svg", output=picture)
            return picture.read_text(encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()

    def compile(self, folder: PathLike, **flags: Flag) -> "Program":
        """Writes and compiles the programs; `flags` are those of `graphpipe generate`. Returns a Program."""
        from .program import Program

        call("generate", self.path, output=folder, **flags)
        call("build", folder)
        return Program(folder)

    def save(self, path: PathLike) -> "Plan":
        """A copy of the file elsewhere."""
        shutil.copyfile(self.path, path)
        return Plan(path, self._summary, self.model)

    def __repr__(self) -> str:
        s = self.summary
        step = "" if s.simulated_step is None else f", a step of {s.simulated_step * 1e3:.4g} ms simulated"
        stages = "1 stage" if len(s.stages) == 1 else f"{len(s.stages)} stages"
        return f"Plan({stages} of {s.planner} under {s.policy}, batch {s.batch}{step})"


def inspect(model: PathLike, **flags: Flag) -> Inspection:
    """Inputs, parameters and operators of a model."""
    return parsed(Inspection, call("inspect", model, **flags))


def lint(model: PathLike, **flags: Flag) -> Lint:
    """Every problem of a model at once; `passed` is False where it cannot train, or a warning says that it trains otherwise."""
    return parsed(Lint, call("lint", model, **flags))


def plan(model: PathLike, path: Optional[PathLike] = None, **flags: Flag) -> Plan:
    """Plans a model; `flags` are those of `graphpipe plan`: devices=4, batch=32, loss="cross_entropy:logits,label",
    micro_batch=..., planner=..., policy=..., cluster=... Without `path` the file lies in a temporary folder that lives as
    long as the plan. Errors: NoFeasiblePlan where nothing fits, InputRefused where the model cannot be taken."""
    kept = None
    if path is None:
        kept = tempfile.TemporaryDirectory(prefix="graphpipe-plan-")
        path = Path(kept.name) / "plan.json"
    summary = parsed(PlanSummary, call("plan", model, output=path, **flags))
    _warn(summary)
    made = Plan(path, summary, model)
    made._kept = kept
    return made


def compare(model: PathLike, **flags: Flag) -> Comparison:
    """Planners and policies side by side in one simulator: planners="graphpipe,sequential", policies="kfkb,gpipe"."""
    return parsed(Comparison, call("compare", model, **flags))


def _warn(summary: PlanSummary) -> None:
    """Of what trains in another way than one might think: the command prints it, where a person calls it."""
    for problem in summary.diagnostics:
        if problem.severity == "warning" or "Dropout" in problem.message:
            warnings.warn(str(problem), stacklevel=3)


def compile(model: PathLike, folder: PathLike, **flags: Flag) -> "Program":  # the verb's name
    """Plans, generates and builds in one go; `flags` are those of `graphpipe compile`. Returns a Program."""
    from .program import Program

    summary = parsed(PlanSummary, call("compile", model, output=folder, **flags))
    _warn(summary)
    return Program(folder, summary, model)
