#!/usr/bin/env python3
"""Exports an example model: FOLDER/model.onnx and FOLDER/data/*.npy, ready for graphpipe.

    python examples/export.py clip_like out/clip_like

Needs torch 2.6 or later with onnx and onnxscript (scripts/oracle installs them). The export call is the one that
GraphPipe asks for: training mode, not optimised, batch axis named.
"""

import argparse
import pathlib

import numpy
import onnx
import torch

import models

# Exporter notes that hold paths of the exporting machine, or that nobody reads back.
PRIVATE_KEYS = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.fx_node",
                "pkg.torch.onnx.original_node_name")


# Calls that mean more than the operators that are written for them: GraphPipe reads these notes.
TELLING_CALLS = ("aten.scatter_reduce.two](args",)


def remove_private_metadata(graph, telling_calls=TELLING_CALLS) -> None:
    for holder in [*graph.node, *graph.value_info, *graph.input, *graph.output]:
        kept = [item for item in holder.metadata_props if item.key not in PRIVATE_KEYS or
                item.key == "pkg.torch.onnx.fx_node" and any(call in item.value for call in telling_calls)]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)


def export_onnx(example: models.Example, path: pathlib.Path, telling_calls=TELLING_CALLS) -> None:
    names = list(example.inputs)
    program = torch.onnx.export(
        example.module.train(), tuple(tensor[:7] for tensor in example.inputs.values()), dynamo=True, optimize=False,
        input_names=names, output_names=example.output_names, dynamic_shapes={name: {0: "batch"} for name in names},
        verbose=False)
    model = program.model_proto
    remove_private_metadata(model.graph, telling_calls)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path))


def write_data(example: models.Example, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in {**example.inputs, **example.labels}.items():
        numpy.save(folder / f"{name}.npy", tensor.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=models.NAMES)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    example = models.load(arguments.name)
    export_onnx(example, arguments.folder / "model.onnx")
    write_data(example, arguments.folder / "data")
    print(f"{arguments.folder / 'model.onnx'}: train it with --loss {example.loss_flag}")


if __name__ == "__main__":
    main()
