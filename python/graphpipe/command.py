"""Finds and calls the command."""

from __future__ import annotations

import importlib.util
import json
import numbers
import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Union

from . import runtime_build
from .errors import EnvironmentFault, error_of
from .results import Diagnostic, parsed

Flag = Union[str, int, float, bool, "os.PathLike[str]", Iterable[Union[str, int, float]], None]


def binary() -> str:
    """GRAPHPIPE_BINARY, else the program of this package, else the one on the PATH."""
    given = os.environ.get("GRAPHPIPE_BINARY")
    if given:
        return given
    packaged = Path(__file__).parent / "bin" / "graphpipe"
    if packaged.exists():
        return str(packaged)
    found = shutil.which("graphpipe")
    if found is None:
        raise FileNotFoundError("graphpipe: no program beside this package or on the PATH; set GRAPHPIPE_BINARY to it")
    return found


def libtorch() -> Optional[str]:
    """The folder of the LibTorch that programs link: GRAPHPIPE_LIBTORCH, else that of the installed torch, which is not
    imported for it."""
    given = os.environ.get("GRAPHPIPE_LIBTORCH")
    if given:
        return given
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0])
    return str(folder) if (folder / "lib" / "libtorch_cpu.so").exists() else None


def environment(needs_runtime: bool = False) -> dict[str, str]:
    """The environment of a call. Where programs are compiled and this package carries the runtime's sources, the runtime
    is compiled first, once for each torch (runtime_build.py)."""
    out = dict(os.environ)
    out.setdefault("GRAPHPIPE_PYTHON", sys.executable)  # it reads Parquet and Arrow files
    if shutil.which("cmake") is None:  # of this environment, which need not be active
        out["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), out.get("PATH", "")])
    torch = libtorch()
    if torch is not None:
        out["GRAPHPIPE_LIBTORCH"] = torch
    runtime = runtime_build.installed(torch, needs_runtime, out)
    if runtime is not None:
        out.setdefault("GRAPHPIPE_RUNTIME_DIR", str(runtime))
    return out


# Verbs that link programs against the runtime, or run such programs.
BUILDING = {"build", "compile", "profile"}
# Verbs that start programs, whose answer is that of the programs alone.
RUNNING = {"run", "verify"}
# Exit codes that come with an answer: what a verb looked for and found is no failure of the call.
ANSWERING: dict[str, tuple[int, ...]] = {"lint": (0, 1, 3), "verify": (0, 1)}
# Verbs whose search may be ended early (time_limit), with the best plan so far: Answer.complete is False then.
SEARCHING = {"plan", "compile", "compare"}
ENDED_EARLY = 7


def words_of(flags: Mapping[str, Flag]) -> list[str]:
    """Keywords as flags: `micro_batch=4` is --micro-batch 4, True is the flag alone, None and False are left out, and an
    iterable is the flag once for each item, but for `betas`, which are one value."""
    words: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        number = getattr(value, "item", None)
        if number is not None and getattr(value, "ndim", None) == 0:  # a tensor or an array of one number
            value = number()
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, os.PathLike):
            words += [flag, os.fspath(value)]
        elif isinstance(value, (str, int, float, numbers.Real)):  # also NumPy's numbers
            words += [flag, str(value)]
        elif name == "betas":
            words += [flag, ",".join(map(str, value))]
        else:
            for item in value:
                words += [flag, str(item)]
    return words


def answer_of(verb: str, exit_code: int, output: str, errors: str) -> dict[str, Any]:
    """The JSON object of a call that ended; raises the error of its exit code."""
    try:
        answer: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError:
        answer = {}
    if exit_code in ANSWERING.get(verb, (0,)) and answer:
        return answer
    problems = [parsed(Diagnostic, item) for item in answer.get("diagnostics", [])]
    has_plan = bool(answer) and all(problem.severity != "error" for problem in problems)
    if exit_code == ENDED_EARLY and verb in SEARCHING and has_plan:
        return answer
    raise error_of(verb, exit_code, problems, errors)


MAX_WARNINGS = 10


def warn_of(errors: str, stacklevel: int) -> None:
    """What a run that ended well has told on stderr: its answer has no room for it."""
    told = list(dict.fromkeys(line.strip() for line in errors.splitlines() if line.startswith(("warning[", "note["))))
    for line in told[:MAX_WARNINGS]:
        warnings.warn(line, stacklevel=stacklevel + 1)
    if len(told) > MAX_WARNINGS:
        warnings.warn(f"and {len(told) - MAX_WARNINGS} more like these", stacklevel=stacklevel + 1)


def call(verb: str, *arguments: Union[str, "os.PathLike[str]"], **flags: Flag) -> dict[str, Any]:
    """Runs a verb and returns its JSON object. Errors: GraphPipeError, by its exit code."""
    # Behind "--", so that a file whose name begins with a dash is no flag.
    words = [binary(), verb, *words_of(flags), "--json", "--quiet", "--", *(os.fspath(argument) for argument in arguments)]
    with subprocess.Popen(words, env=environment(verb in BUILDING), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace") as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            end(process)
            raise
    answer = answer_of(verb, process.returncode, output, errors)
    if verb in RUNNING:
        warn_of(errors, stacklevel=3)
    return answer


def end(process: "subprocess.Popen[Any]") -> None:
    """Asks the command to end and waits for the checkpoint that a run then takes. A terminal's Ctrl-C has reached it too;
    within half a second it counts both as one."""
    process.terminate()
    process.communicate()


def main() -> None:
    """The console script: the command itself, with the LibTorch of the installed torch."""
    needs_runtime = len(sys.argv) > 1 and sys.argv[1] in BUILDING and "--help" not in sys.argv
    try:
        env = environment(needs_runtime)
    except EnvironmentFault as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
    os.execve(binary(), [binary(), *sys.argv[1:]], env)
