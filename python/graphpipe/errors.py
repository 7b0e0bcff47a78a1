"""What a command of GraphPipe answers where it cannot do what it was asked."""

from __future__ import annotations

from .results import Diagnostic


class GraphPipeError(Exception):
    """A verb ended with an error. `exit_code` is that of the command line (README.md, "The verbs"); `problems` is what it
    reported, all of it at once."""

    def __init__(self, verb: str, exit_code: int, problems: list[Diagnostic], output: str = "") -> None:
        self.verb = verb
        self.exit_code = exit_code
        self.problems = problems
        lines = [str(problem) for problem in problems if problem.severity == "error"]
        if lines:
            lines += _told_beside(problems, output)
        super().__init__(f"graphpipe {verb}: " + ("\n  ".join(lines) or output.strip() or f"exit {exit_code}"))


def _told_beside(problems: list[Diagnostic], output: str) -> list[str]:
    """The errors of programs among the lines of stderr, which their launcher's problem only refers to."""
    told = [line.strip() for line in output.splitlines() if "error[" in line]
    return [line for line in dict.fromkeys(told) if not any(problem.message in line for problem in problems)][:MAX_TOLD]


MAX_TOLD = 10


class UsageError(GraphPipeError):
    """Exit code 2: a flag that does not exist, or two that are at odds."""


class InputRefused(GraphPipeError):
    """Exit code 3: a model, a plan or data that cannot be taken as they are."""


class NoFeasiblePlan(GraphPipeError):
    """Exit code 4: nothing fits the devices."""


class EnvironmentFault(GraphPipeError):
    """Exit code 5: a tool, a library or a right is missing."""


class StageFailed(GraphPipeError):
    """Exit code 6: a device's program failed, or a part of it was lost."""


class Interrupted(GraphPipeError):
    """Exit codes 7, 129, 130 and 143: ended early, with what there was until then."""


_BY_CODE = {2: UsageError, 3: InputRefused, 4: NoFeasiblePlan, 5: EnvironmentFault, 6: StageFailed,
            7: Interrupted, 129: Interrupted, 130: Interrupted, 143: Interrupted}


def error_of(verb: str, exit_code: int, problems: list[Diagnostic], output: str = "") -> GraphPipeError:
    return _BY_CODE.get(exit_code, GraphPipeError)(verb, exit_code, problems, output)
