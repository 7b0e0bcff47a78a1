"""Writes quantized/: a model of four products with weights of 4 and 8 bits, dequantised in blocks, and its outputs by
ONNX's reference evaluator.

    .deps/oracle/bin/python tests/data/make_quantized_model.py

The first and third weight lie in model.onnx, the others in weights.data. The blocks of the second leave a remainder.
"""

import pathlib

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import set_external_data
from onnx.reference import ReferenceEvaluator

WIDTH, SAMPLES = 256, 8
# Name, element type, block size, with zero points, outside the model's file.
WEIGHTS = [
    ("a", ml_dtypes.int4, 32, False, False),
    ("b", ml_dtypes.uint4, 48, True, True),
    ("c", ml_dtypes.float4_e2m1fn, 32, False, False),
    ("d", ml_dtypes.float8_e4m3fn, 32, False, True),
]


def stored(draw, kind, shape):
    if kind is ml_dtypes.int4:
        return draw.integers(-8, 8, shape).astype(kind)
    if kind is ml_dtypes.uint4:
        return draw.integers(0, 16, shape).astype(kind)
    return draw.normal(0, 2, shape).astype(np.float32).astype(kind)


def main():
    folder = pathlib.Path(__file__).parent / "quantized"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(1)
    nodes, tensors, outside, before = [], [], [], "x"
    for name, kind, block, centred, external in WEIGHTS:
        blocks = -(-WIDTH // block)
        values = {"w": stored(draw, kind, (WIDTH, WIDTH)),
                  "s": draw.uniform(0.005, 0.03, (blocks, WIDTH)).astype(np.float32)}
        if centred:
            values["z"] = stored(draw, kind, (blocks, WIDTH))
        for part, value in values.items():
            tensors.append(numpy_helper.from_array(value, name + part))
        if external:
            outside.append(name + "w")
        parts = [name + part for part in values]
        nodes.append(helper.make_node("DequantizeLinear", parts, [name], axis=0, block_size=block))
        nodes.append(helper.make_node("MatMul", [before, name], [name + "y"]))
        before = name + "y"
    rows = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", before)]
    model = helper.make_model(helper.make_graph(nodes, "quantized", rows[:1], rows[1:], tensors),
                              opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.checker.check_model(model)
    x = draw.normal(0, 1, (SAMPLES, WIDTH)).astype(np.float32)
    (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    data = b""
    for tensor in model.graph.initializer:
        if tensor.name in outside:
            raw = tensor.raw_data
            set_external_data(tensor, "weights.data", offset=len(data), length=len(raw))
            tensor.ClearField("raw_data")
            data += raw
    (folder / "weights.data").write_bytes(data)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    np.save(folder / "data" / "x.npy", x)
    np.save(folder / "y.npy", y)
    print(f"{len(data)} bytes outside, largest output {np.abs(y).max():g}")


if __name__ == "__main__":
    main()
