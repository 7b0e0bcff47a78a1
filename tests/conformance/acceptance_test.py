"""Every one of ONNX's node tests that was accepted still is, and the committed list says what is refused today.

    python tests/conformance/acceptance_test.py WRITE_CONFORMANCE

The models lie in tests/data/onnx-node-tests.tar.gz, what becomes of them in tests/data/conformance.txt; scripts/conformance
--update writes both. A test that is refused no longer fails too: its line is out of date, and it has to be run.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def committed():
    """name -> accepted?"""
    lines = (DATA / "conformance.txt").read_text().splitlines()
    return {line.split()[0]: line.split()[1] != "refused" for line in lines if line and not line.startswith("#")}


def main(program):
    expected = committed()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(DATA / "onnx-node-tests.tar.gz") as archive:
            archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
        written = pathlib.Path(folder) / "operators.md"
        told = subprocess.run([program, "survey", folder, written], check=True, capture_output=True, text=True).stdout
        page = written.read_text()
    found = {line.split()[0]: line.split()[1] != "refused" for line in told.splitlines()}
    reasons = dict(line.split(" ", 1) for line in told.splitlines())
    assert len(expected) > 1800, "the list is not whole"
    assert set(found) == set(expected), set(found) ^ set(expected)
    shrunk = [name for name in expected if expected[name] and not found[name]]
    grown = [name for name in expected if found[name] and not expected[name]]
    for name in shrunk:
        print(f"{name} was accepted before: {reasons[name]}")
    for name in grown:
        print(f"{name} is accepted now: run scripts/conformance --update, which compares its values too")
    current = (DATA.parent.parent / "docs/operators.md").read_text() == page
    if not current:
        print("docs/operators.md is out of date: write it again with scripts/conformance --update")
    if shrunk or grown or not current:
        sys.exit(1)
    print(f"{sum(found.values())} of {len(found)} node tests are accepted")


if __name__ == "__main__":
    main(sys.argv[1])
