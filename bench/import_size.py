#!/usr/bin/env python3
"""Importing a model whose weights take a gigabyte of external data: seconds and peak resident memory.

    .deps/oracle/bin/python bench/import_size.py [--graphpipe build/release/bin/graphpipe] [--gigabytes 1]

A row of linear layers of 64 MB each, beside them one data file. `inspect` parses, checks, infers, converts and lowers;
the weights stay references into the file. Goal: under 1 s and 100 MB for a gigabyte.
"""

import argparse
import pathlib
import tempfile

import large_models
from onnx import TensorProto, helper, save_model

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH = 4096
BYTES = WIDTH * WIDTH * 4


def weight(name: str, index: int):
    tensor = helper.make_tensor(name, TensorProto.FLOAT, [0], [])
    tensor.dims[:] = [WIDTH, WIDTH]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": index * BYTES, "length": BYTES}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write_model(folder: pathlib.Path, layers: int) -> pathlib.Path:
    with open(folder / "weights.bin", "wb") as data:
        data.truncate(layers * BYTES)
    nodes = [helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"], name=f"linear{i}") for i in range(layers)]
    graph = helper.make_graph(nodes, "row", [helper.make_tensor_value_info("h0", TensorProto.FLOAT, ["batch", WIDTH])],
                              [helper.make_tensor_value_info(f"h{layers}", TensorProto.FLOAT, ["batch", WIDTH])],
                              [weight(f"w{i}", i) for i in range(layers)])
    path = folder / "model.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--gigabytes", type=float, default=1)
    arguments = parser.parse_args()
    layers = max(1, round(arguments.gigabytes * 1e9 / BYTES))
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(pathlib.Path(folder), layers)
        print(f"{layers * BYTES / 1e9:.2f} GB of weights:")
        large_models.measure([arguments.graphpipe, "inspect", str(model), "--quiet"])


if __name__ == "__main__":
    main()
