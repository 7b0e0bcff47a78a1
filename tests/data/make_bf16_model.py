"""Writes bf16/model.onnx: three layers in bfloat16 between casts of a float32 input and output.

    python3 tests/data/make_bf16_model.py

Needs nothing but Python: the file is a protobuf message, written field by field.
"""

import pathlib
import random
import struct

FLOAT, BFLOAT16, INT_ATTRIBUTE = 1, 16, 2


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def bfloat16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x8000) >> 16)


def weight(name, dims, draw):
    count = 1
    for size in dims:
        count *= size
    raw = b"".join(bfloat16(draw.uniform(-0.5, 0.5)) for _ in range(count))
    return b"".join(number(1, size) for size in dims) + number(2, BFLOAT16) + block(8, name) + block(9, raw)


def value(name, features):
    shape = block(1, block(2, "N")) + block(1, number(1, features))
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, shape)))


def node(op, inputs, output, to=None):
    out = b"".join(block(1, name) for name in inputs) + block(2, output) + block(3, "make_" + output) + block(4, op)
    return out if to is None else out + block(5, block(1, "to") + number(3, to) + number(20, INT_ATTRIBUTE))


def main():
    draw = random.Random(1)
    nodes = [
        node("Cast", ["x"], "narrow", BFLOAT16),
        node("Gemm", ["narrow", "w1", "b1"], "h1"),
        node("Relu", ["h1"], "r1"),
        node("Gemm", ["r1", "w2", "b2"], "h2"),
        node("Relu", ["h2"], "r2"),
        node("Gemm", ["r2", "w3", "b3"], "h3"),
        node("Cast", ["h3"], "y", FLOAT),
    ]
    shapes = {"w1": [8, 16], "b1": [16], "w2": [16, 16], "b2": [16], "w3": [16, 4], "b3": [4]}
    graph = b"".join(block(1, one) for one in nodes) + block(2, "bf16")
    graph += b"".join(block(5, weight(name, dims, draw)) for name, dims in shapes.items())
    graph += block(11, value("x", 8)) + block(12, value("y", 4))
    model = number(1, 9) + block(7, graph) + block(8, block(1, "") + number(2, 18))
    (pathlib.Path(__file__).parent / "bf16" / "model.onnx").write_bytes(model)


if __name__ == "__main__":
    main()
