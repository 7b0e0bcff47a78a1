#!/usr/bin/env python3
"""Which of the architectures that people train are read, and whether they train as in PyTorch.

    .deps/oracle/bin/python bench/zoo.py [--train] [--save zoo.json] [NAME ...]

Exports each of bench/zoo_*.py with graphpipe.export and asks `graphpipe lint`; with --train compiles it in two
stages and trains three steps with SGD beside PyTorch, whose losses must be equal to 1e-5. Needs what scripts/oracle
installs, transformers 4.57.6, torchvision 0.26.0 and scipy. An architecture that PyTorch's own exporter refuses is counted apart.
"""

import argparse
import collections
import json
import logging
import math
import os
import pathlib
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
os.environ["PATH"] = f"{ROOT / 'build/release/bin'}:{os.environ['PATH']}"
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import graphpipe  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402

import zoo_models  # noqa: E402
import zoo_own  # noqa: E402
import zoo_pictures  # noqa: E402
import zoo_transformers  # noqa: E402

ZOO = zoo_models.ZOO | zoo_transformers.TRANSFORMERS | zoo_own.OWN | zoo_pictures.PICTURES
STEPS, LIMIT, RATE = 3, 1e-5, 0.02
BATCH = zoo_models.SAMPLES


def data_like(inputs: dict) -> dict:
    """Drawn anew, but for masks, kinds, places, and words that mean something: those stay."""
    def drawn(name, tensor):
        shape = (STEPS * BATCH, *tensor.shape[1:])
        if any(word in name for word in ("mask", "type", "kinds", "bbox", "timesteps", "patches")):
            return torch.cat([tensor] * STEPS)
        if tensor.is_floating_point():
            return torch.randn(shape)
        example = torch.cat([tensor] * STEPS)
        means = (example < 3) | (example > zoo_models.WORDS - 10)
        words = torch.randint(3, zoo_models.WORDS - 10, shape)
        return torch.where(means, example, words)
    return {name: drawn(name, tensor) for name, tensor in inputs.items()}


def export(module, inputs: dict, path: pathlib.Path) -> None:
    """By graphpipe.export; what its exporter refuses, because sizes depend on data, by the older one."""
    try:
        graphpipe.export(module, inputs, path, output_names=["out"])
    except ValueError as refusal:
        try:
            torch.onnx.export(module.eval(), tuple(inputs.values()), str(path), dynamo=False, opset_version=17,
                              training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                              input_names=list(inputs), output_names=["out"],
                              dynamic_axes={name: {0: "batch"} for name in [*inputs, "out"]})
        except Exception:  # noqa: BLE001 - the first refusal says more
            raise refusal from None


def loss_of(found, target):
    """Of similarities, which every sample has with every one, the loss of CLIP; else the squared distance."""
    if not is_square(found.shape):
        return torch.nn.functional.mse_loss(found, target)
    places = torch.arange(len(found))
    return sum(torch.nn.functional.cross_entropy(each, places) for each in (found, found.T)) / 2


def is_square(shape) -> bool:
    return tuple(shape) == (BATCH, BATCH)


def train_in_pytorch(module, data: dict, target) -> list:
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        found = module(**{name: tensor[rows] for name, tensor in data.items()})
        loss = loss_of(found, target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(name: str, model: pathlib.Path, folder: pathlib.Path) -> float:
    """The largest relative difference of a loss."""
    module, inputs = zoo_models.make(ZOO[name])
    data = data_like(inputs)
    with torch.no_grad():
        shape = module.eval()(**{key: tensor[:BATCH] for key, tensor in data.items()}).shape
    target = torch.randn((STEPS * BATCH, *shape[1:]))
    (folder / "data").mkdir()
    for key, tensor in {**data, "wanted": target}.items():
        numpy.save(folder / "data" / f"{key}.npy", tensor.numpy())
    program = graphpipe.compile(model, folder / "out", batch=BATCH, devices=2, stages=2, planner="sequential",
                                loss="contrastive:out" if is_square(shape) else "mse:out,wanted")
    found = program.run(data=folder / "data", steps=STEPS, lr=RATE).losses
    expected = train_in_pytorch(zoo_models.make(ZOO[name])[0], data, target)
    differences = [abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def try_one(name: str, trains: bool) -> dict:
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        model = folder / "model.onnx"
        try:
            module, inputs = zoo_models.make(ZOO[name])
            export(module, inputs, model)
        except Exception as error:  # noqa: BLE001 - whatever transformers or the exporter raise
            return {"result": "not exported", "reason": one_line(error)}
        found = graphpipe.lint(model)
        if not found.passed:
            return {"result": "refused", "reason": found.diagnostics[0].message if found.diagnostics else ""}
        if not trains:
            return {"result": "read"}
        try:
            difference = train(name, model, folder)
        except graphpipe.GraphPipeError as error:
            return {"result": "failed", "reason": one_line(error)}
        return {"result": "trained" if difference <= LIMIT else "differs", "difference": difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="all without")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--save", type=pathlib.Path, help="file for all results, as JSON; those that it has are kept")
    arguments = parser.parse_args()
    results = json.loads(arguments.save.read_text()) if arguments.save and arguments.save.exists() else {}
    for name in arguments.names or ZOO:
        if name in results and not arguments.names:
            continue
        results[name] = try_one(name, arguments.train)
        print(name, *results[name].values(), flush=True)
        if arguments.save:
            arguments.save.write_text(json.dumps(results, indent=1) + "\n")
    counts = collections.Counter(result["result"] for result in results.values())
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    if any(result["result"] in ("refused", "failed", "differs") for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
