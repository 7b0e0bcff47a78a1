"""The runtime that stage programs link, compiled from the sources of this package against the installed torch: once for
each torch and compiler, into the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

from .errors import EnvironmentFault
from .results import Diagnostic

SOURCES = Path(__file__).parent / "share" / "runtime"
DONE = "share/graphpipe/GraphPipeConfig.cmake"


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "graphpipe"


def _compiler() -> str:
    """Names the compiler and its version, by its file: every verb asks, and a process for each would be felt."""
    words = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if shutil.which(words[0]) is None:
        raise _fault(f"there is no C++ compiler ({words[0]})", "install g++ 12 or later, or set CXX")
    # The first word may be a launcher of the compiler (ccache g++).
    files = [Path(found).resolve() for found in map(shutil.which, words) if found]
    return "\n".join([shlex.join(words), *(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)])


def _fault(message: str, hint: str) -> EnvironmentFault:
    return EnvironmentFault("build", 5, [Diagnostic("environment", "error", "", message, hint)])


def prefix_for(torch: str) -> Path:
    """Where the runtime for this torch is, or will be."""
    library = Path(torch) / "lib" / "libtorch_cpu.so"
    version = (SOURCES / "version").read_text().strip()
    key = "\n".join([version, torch, str(library.stat().st_size), _compiler()])
    return _cache() / f"runtime-{version}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def installed(torch: Optional[str], build: bool, env: dict[str, str]) -> Optional[Path]:
    """The prefix to link against; None where the program knows one by itself (a source tree, an installation), where
    GRAPHPIPE_RUNTIME_DIR says it, and, unless `build`, where it is not compiled yet."""
    if "GRAPHPIPE_RUNTIME_DIR" in os.environ or not SOURCES.is_dir():
        return None
    if torch is None:
        if build:
            raise _fault("stage programs link LibTorch, and no torch is installed",
                         "pip install torch (2.11 to 2.15), or set GRAPHPIPE_LIBTORCH to a folder with include/ and lib/")
        return None
    if not (Path(torch) / "lib" / "libtorch_cpu.so").exists():
        if build:
            raise _fault(f"there is no LibTorch at {torch}", "set GRAPHPIPE_LIBTORCH to a folder with include/ and lib/")
        return None
    try:
        prefix = prefix_for(torch)
    except EnvironmentFault:
        if build:
            raise
        return None  # verbs that compile nothing need no compiler
    if not (prefix / DONE).exists():
        if not build:
            return None
        _compile(torch, prefix, env)
    return prefix


def _compile(torch: str, prefix: Path, env: dict[str, str]) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with open(prefix.parent / (prefix.name + ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (prefix / DONE).exists():
            return
        print("graphpipe: compiling the runtime for the installed torch (once, a few minutes)", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=prefix.parent) as work:
            _run(["cmake", "-S", str(SOURCES), "-B", f"{work}/build", "-DCMAKE_BUILD_TYPE=Release",
                  "-DGRAPHPIPE_COMPILER=OFF", "-DGRAPHPIPE_TESTS=OFF", f"-DGRAPHPIPE_LIBTORCH={torch}"], env)
            _run(["cmake", "--build", f"{work}/build", "--parallel", str(os.cpu_count() or 1)], env)
            _run(["cmake", "--install", f"{work}/build", "--prefix", f"{work}/prefix", "--component", "runtime"], env)
            shutil.rmtree(prefix, ignore_errors=True)
            os.rename(f"{work}/prefix", prefix)


def _run(words: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise _fault(f"{' '.join(words[:2])} of the runtime failed:\n" + done.stdout[-3000:], "")
