#!/usr/bin/env python3
"""Exports the example models and trains each in PyTorch: tests/data/models/NAME/{model.onnx,data/,reference.*}.

    python tests/data/make_references.py tests/data/models

reference.json: the losses of five steps before each update, per micro-batch size, and what was run.
reference.safetensors: "gradient/M/NAME" of the last step and "weight/M/NAME" after it, for micro-batch size M.
A model whose loss or BatchNorm mixes samples is trained with gradients accumulated over micro-batches of M samples,
as GraphPipe trains it; for the others M changes nothing but rounding, and only the full batch is recorded.
Made with torch 2.11.0, onnx 1.23.2, onnxscript 0.7.2; scripts/oracle makes them again and compares.
"""

import copy
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import onnx
import torch

import export
import models

BATCH, STEPS = 8, 5
MIXING = {"clip_like": (8, 4, 2), "resnet": (8, 4, 2)}
# The micro-batch whose tensors are recorded.
RECORDED = {"clip_like": 2, "resnet": 2}
RUNS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.01),
}


def write_safetensors(path: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    header, offset = {}, 0
    for name in sorted(tensors):
        size = tensors[name].numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].detach().contiguous().numpy().astype("<f4").tobytes())


def train(example: models.Example, micro_batch: int, make_optimizer):
    module = copy.deepcopy(example.module).train()
    optimizer = make_optimizer(module.parameters())
    samples = next(iter(example.inputs.values())).shape[0]
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        first = step * BATCH % samples
        inputs = {name: tensor[first:first + BATCH] for name, tensor in example.inputs.items()}
        labels = {name: tensor[first:first + BATCH] for name, tensor in example.labels.items()}
        counted = sum(int((tensor != -100).sum()) for tensor in labels.values()) or BATCH
        total = 0.0
        for start in range(0, BATCH, micro_batch):
            part = slice(start, start + micro_batch)
            part_labels = {name: tensor[part] for name, tensor in labels.items()}
            part_counted = sum(int((tensor != -100).sum()) for tensor in part_labels.values()) or micro_batch
            outputs = (module(*[tensor[part] for tensor in inputs.values()]),)
            loss = example.loss(outputs, part_labels) * (part_counted / counted)
            loss.backward()
            total += loss.item()
        losses.append(total)
        if step == STEPS - 1:
            gradients = {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
        optimizer.step()
    return losses, gradients, dict(module.named_parameters())


def write_reference(name: str, folder: pathlib.Path) -> None:
    example = models.load(name)
    export.export_onnx(example, folder / "model.onnx")
    example = models.load(name)
    export.write_data(example, folder / "data")
    record = {"loss": example.loss_flag, "batch": BATCH, "steps": STEPS, "optimizers": {}}
    record["versions"] = {"torch": torch.__version__.split("+")[0], "onnx": onnx.__version__}
    tensors = {}
    for optimizer in ("sgd", "adamw") if name == "mmt" else ("sgd",):
        for micro_batch in MIXING.get(name, (BATCH,)):
            losses, gradients, weights = train(example, micro_batch, RUNS[optimizer])
            record["optimizers"].setdefault(optimizer, {})[str(micro_batch)] = {"losses": losses}
            if optimizer == "sgd" and micro_batch == RECORDED.get(name, BATCH):
                tensors |= {f"gradient/{micro_batch}/{key}": value for key, value in gradients.items()}
                tensors |= {f"weight/{micro_batch}/{key}": value for key, value in weights.items()}
    (folder / "reference.json").write_text(json.dumps(record, indent=1) + "\n")
    write_safetensors(folder / "reference.safetensors", tensors)


def main() -> None:
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/models")
    for name in models.NAMES:
        write_reference(name, root / name)
        print(f"{root / name}: done")


if __name__ == "__main__":
    main()
