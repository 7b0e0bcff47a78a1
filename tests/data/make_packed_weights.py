"""Makes tests/data/packed_weights: a model of two products whose weights are integers of four bits with scales by block,
one in the file and one beside it, and what ONNX's reference evaluator computes. Needs numpy and onnx.

    python tests/data/make_packed_weights.py
"""

import json
import pathlib

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FOLDER = pathlib.Path(__file__).parent / "packed_weights"
SAMPLES, WIDTH, HIDDEN, OUT = 8, 64, 512, 40
# The second does not divide the rows: its last block is shorter.
BLOCKS = (32, 100)


def packed(values: numpy.ndarray) -> bytes:
    bits = (values.reshape(-1) & 15).astype(numpy.uint8)
    return (bits[0::2] | bits[1::2] << 4).tobytes()


def tensor(name: str, kind: int, values: numpy.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, values.shape, packed(values), raw=True)


def main() -> None:
    draw = numpy.random.default_rng(7)
    first = draw.integers(-8, 8, (WIDTH, HIDDEN))
    second = draw.integers(0, 16, (HIDDEN, OUT))
    blocks = -(-HIDDEN // BLOCKS[1])
    scales = (draw.uniform(0.01, 0.1, (WIDTH // BLOCKS[0], HIDDEN)).astype(numpy.float32),
              draw.uniform(0.01, 0.1, (blocks, OUT)).astype(numpy.float32))
    zeros = draw.integers(0, 16, (blocks, OUT))
    beside = tensor("second", TensorProto.UINT4, second)
    nodes = [
        helper.make_node("DequantizeLinear", ["first", "first_scale"], ["w1"], axis=0, block_size=BLOCKS[0]),
        helper.make_node("MatMul", ["x", "w1"], ["hidden"]),
        helper.make_node("Tanh", ["hidden"], ["active"]),
        helper.make_node("DequantizeLinear", ["second", "second_scale", "second_zero"], ["w2"], axis=0, block_size=BLOCKS[1]),
        helper.make_node("MatMul", ["active", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "packed", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUT])],
        [tensor("first", TensorProto.INT4, first), beside, numpy_helper.from_array(scales[0], "first_scale"),
         numpy_helper.from_array(scales[1], "second_scale"), tensor("second_zero", TensorProto.UINT4, zeros)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = draw.standard_normal((SAMPLES, WIDTH)).astype(numpy.float32)
    y = ReferenceEvaluator(model).run(None, {"x": x})[0]
    bytes_beside = packed(second)
    for entry in model.graph.initializer:
        if entry.name == "second":
            entry.ClearField("raw_data")
            entry.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "second.bin"), ("offset", "0"), ("length", str(len(bytes_beside)))):
                entry.external_data.add(key=key, value=value)
    (FOLDER / "data").mkdir(parents=True, exist_ok=True)
    (FOLDER / "second.bin").write_bytes(bytes_beside)
    (FOLDER / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    numpy.save(FOLDER / "data" / "x.npy", x)
    versions = {"onnx": onnx.__version__, "numpy": numpy.__version__}
    (FOLDER / "reference.json").write_text(json.dumps({"y": y.reshape(-1).tolist(), "versions": versions}) + "\n")


if __name__ == "__main__":
    main()
