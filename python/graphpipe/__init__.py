"""GraphPipe: a pipeline plan for a model, and the programs that train it.

    import graphpipe

    graphpipe.export(module, {"image": images, "label": labels}, "model.onnx", output_names=["logits"])
    program = graphpipe.compile("model.onnx", "out", devices=4, batch=32, loss="cross_entropy:logits,label")
    run = graphpipe.Trainer(program, lr=1e-3).fit(loader, epochs=3, save="trained.safetensors")
    program.load_into(module, "trained.safetensors")

Keywords are the flags of the command line (`graphpipe plan --help`) with underscores; answers are typed objects
(results.py); errors are exceptions by exit code (errors.py). docs/python.md tells more.
"""

from graphpipe_feed import FeedError

from .errors import (EnvironmentFault, GraphPipeError, InputRefused, Interrupted, NoFeasiblePlan, StageFailed, UsageError)
from .exporting import export
from .plan import Plan, PlannedStage, compare, compile, inspect, lint, plan
from .program import Program
from .results import (Answer, ComparedPlan, Comparison, Diagnostic, Inspection, Lint, Machine, PlanSummary, Run, Simulation,
                      Stage, Verification)
from .trainer import Step, Trainer

__all__ = [
    "Answer", "ComparedPlan", "Comparison", "Diagnostic", "EnvironmentFault", "FeedError", "GraphPipeError", "InputRefused", "Inspection",
    "Interrupted", "Lint", "Machine", "NoFeasiblePlan", "Plan", "PlanSummary", "PlannedStage", "Program", "Run", "Simulation",
    "Stage", "StageFailed", "Step", "Trainer", "UsageError", "Verification", "compare", "compile", "export", "inspect", "lint",
    "plan",
]
