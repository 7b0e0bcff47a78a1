"""Puts together what scripts/conformance found, and compares it with what is committed.

    python tests/conformance/summarize.py build/conformance [--update]
"""

import collections
import gzip
import io
import pathlib
import re
import sys
import tarfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def outcomes(folder):
    """Lines "NAME OUTCOME WHY", sorted by name."""
    results = dict(line.split(" ", 1) for line in (folder / "results.txt").read_text().splitlines())
    lines = []
    for line in (folder / "accepted.txt").read_text().splitlines():
        name, outcome = line.split(" ", 1)
        if outcome.startswith("accepted"):
            outcome = results.get(name, "different it was not run")
        lines.append(f"{name} {outcome}")
    return sorted(lines)


def reason(outcome):
    """Of a refusal: its code and its message without names and numbers, so that equal reasons count together."""
    words = outcome.split(" ", 1)[1]
    words = re.sub(r"; .*", "", words)
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", words))


def summary(lines):
    counts = collections.Counter(line.split()[1] for line in lines)
    reasons = collections.Counter(reason(line.split(" ", 1)[1]) for line in lines if line.split()[1] == "refused")
    text = [f"{len(lines)} node tests of ONNX: " + ", ".join(f"{counts[k]} {k}" for k in ("equal", "random", "different", "uncompared", "refused"))]
    text += [f"  {count:4} {why}" for why, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))]
    return text


def pack_models(folder, path):
    """Only the models, with constants where these are read or were tried, with neither times nor owners: equal models make equal bytes."""
    told = dict(line.split(" ", 1) for line in (folder.parent / "accepted.txt").read_text().splitlines())
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for model in sorted(folder.glob("*/*.onnx")):
            if model.stem != "model" and not told[model.parent.name].startswith((f"accepted {model.stem}", "refused")):
                continue
            entry = tarfile.TarInfo(f"{model.parent.name}/{model.name}")
            entry.size = model.stat().st_size
            archive.addfile(entry, io.BytesIO(model.read_bytes()))
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9, mtime=0, filename="") as packed:
        packed.write(plain.getvalue())


def main(folder, update):
    folder = pathlib.Path(folder)
    lines = outcomes(folder)
    text = summary(lines)
    print("\n".join(text))
    content = "".join(f"# {line}\n" for line in text) + "\n".join(lines) + "\n"
    committed = DATA / "conformance.txt"
    if update:
        committed.write_text(content)
        pack_models(folder / "cases", DATA / "onnx-node-tests.tar.gz")
        (DATA.parent.parent / "docs/operators.md").write_text((folder / "operators.md").read_text())
        return 0
    differing = [line for line in lines if line.split()[1] == "different"]
    print("\n".join(differing))
    if committed.read_text() != content:
        print(f"{committed} is out of date: compare, then run scripts/conformance --update")
        return 1
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--update" in sys.argv[2:]))
