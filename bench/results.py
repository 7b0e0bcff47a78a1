"""Results of a benchmark as a file: what was measured, on what, in rows that `compare_results.py` can match."""

import json
import os
import pathlib
import platform
import sys

SCHEMA = "graphpipe.bench/1"


def processor() -> str:
    """The processor's name, and the numbers that tell generations of one name apart, as the kernel tells them."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "model name" not in facts:
        return platform.machine()
    return f"{facts['model name']}, family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"


def save(path: str, bench: str, rows: list[dict], key: list[str], lower_is_better: list[str]) -> None:
    """Writes `rows`, each identified by its fields `key`; of the fields `lower_is_better`, less is better."""
    text = json.dumps({"schema": SCHEMA, "bench": bench, "arguments": sys.argv[1:], "processor": processor(),
                       "cores": os.cpu_count(), "key": key, "lower_is_better": lower_is_better, "rows": rows}, indent=1)
    target = pathlib.Path(path)
    part = target.with_name(target.name + ".part")
    part.write_text(text + "\n")
    part.replace(target)
