#!/usr/bin/env python3
"""What `graphpipe export` writes for PyTorch loads with strict=True, and the module computes the run's next loss.

    load_state_dict.py GRAPHPIPE FOLDER

In the environment that `scripts/oracle` makes. FOLDER is for what it compiles. Models with shared weights, with an
embedding bag and with convolutions; running statistics are loaded too, but their counters, which no ONNX file has, stay.
"""

import json
import pathlib
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python")]

import models  # noqa: E402
from graphpipe.program import read_safetensors  # noqa: E402

STEPS, BATCH = 4, 8
MODELS = ("gpt2_like", "dlrm", "resnet")


def graphpipe(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def loss_of(example, module):
    inputs = [tensor[:BATCH] for tensor in example.inputs.values()]
    labels = {name: tensor[:BATCH] for name, tensor in example.labels.items()}
    return example.loss((module(*inputs),), labels).item()


def check(program, name, folder):
    model = ROOT / "tests/data/models" / name
    reference = json.loads((model / "reference.json").read_text())
    out, weights, state = folder / name, folder / f"{name}.trained.safetensors", folder / f"{name}.safetensors"
    graphpipe(program, "compile", model / "model.onnx", "--batch", BATCH, "--loss", reference["loss"], "--devices", 2,
              "--stages", 2, "-o", out, "--quiet")
    run = ["run", out, "--data", model / "data", "--lr", "0.05", "--json", "--quiet"]
    graphpipe(program, *run, "--steps", STEPS, "--save", weights)
    graphpipe(program, "export", out, "--weights", weights, "-o", state)
    losses = json.loads(graphpipe(program, *run, "--steps", 1, "--weights", weights))["losses"]
    example = models.load(name)
    module, loaded = example.module.train(), read_safetensors(state)
    counters = {key: value for key, value in module.state_dict().items() if key.endswith("num_batches_tracked")}
    # The exporter of PyTorch drops all names but one of a tensor that several share; the module knows the others.
    shared = {id(p): loaded[n] for n, p in module.named_parameters(remove_duplicate=False) if n in loaded}
    others = {n: shared[id(p)] for n, p in module.named_parameters(remove_duplicate=False)
              if n not in loaded and id(p) in shared}
    module.load_state_dict(loaded | others | counters, strict=True)
    shared = len(module.state_dict()) - len({tensor.data_ptr() for tensor in module.state_dict().values()})
    found = loss_of(example, module)
    print(f"{name}: {len(loaded)} tensors, {shared} under a further name, loss {found:.7f}, run {losses[0]:.7f}")
    if abs(found - losses[0]) > 1e-5 * abs(losses[0]):
        sys.exit(f"{name}: PyTorch computes another loss from the exported weights")
    return shared


def main():
    torch.set_num_threads(1)
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    if sum(check(program, name, folder) for name in MODELS) == 0:
        sys.exit("no model has a shared weight: the test lacks a case")


main()
