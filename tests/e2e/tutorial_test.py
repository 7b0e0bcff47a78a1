#!/usr/bin/env python3
"""What docs/tutorial.md tells a reader to write and to type, done in an empty folder, and the notebook that goes with it.

    tutorial_test.py GRAPHPIPE FOLDER

In the environment that `scripts/oracle` makes. A block of Python becomes the file that its first line names; the commands of a
console block must succeed and print the lines that the page shows, in this order, where "..." stands for anything.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page):
    return re.findall(r"^```(python|console)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def exchanges(block):
    """[(command, shown lines)]"""
    out = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


def is_as_shown(line, shown):
    return re.fullmatch(".*".join(map(re.escape, shown.split("..."))), line) is not None


def type_command(command, shown, folder, environment):
    print("$", command, flush=True)
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}")
    lines = iter(done.stdout.splitlines())
    for expected in shown:
        if expected != "..." and not any(is_as_shown(line, expected) for line in lines):
            sys.exit(f"the page shows a line that did not come:\n{expected}\nall that came:\n{done.stdout}")


def main():
    program, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "bin/python").chmod(0o755)
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1", GRAPHPIPE_BINARY=str(program),
                       PATH=os.pathsep.join([str(folder / "bin"), str(program.parent), os.environ["PATH"]]))
    commands = 0
    for kind, text in blocks((ROOT / "docs/tutorial.md").read_text()):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            (folder / name.group(1)).write_text(text)
        else:
            for command, shown in exchanges(text):
                type_command(command, shown, folder, environment)
                commands += 1
    if commands < 9:
        sys.exit(f"the page has {commands} commands: the test does not read it")
    type_command(f"python {ROOT / 'examples/two_towers.py'}", [], folder, environment)


main()
