"""Writes an ONNX model without weights: the graph, and beside it weights.bin, a file of the right size that is one hole and takes
no space. Needs nothing but Python."""

import math
import pathlib
import struct

FLOAT, INT64 = 1, 7
ALIGNMENT = 4096


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value) -> bytes:
    """One field of a Protocol Buffers message: an integer, or bytes, text or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value) -> bytes:
    """ONNX's AttributeProto of an int, a text, a float or a list of ints."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    return field(1, name) + b"".join(field(8, item) for item in value) + field(20, 7)


def value_info(name: str, element: int, dims: list) -> bytes:
    shape = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))


class GraphWriter:
    """Collects the nodes of a model; values and nodes get numbered names. `opset` is ONNX's version of the operators."""

    def __init__(self, opset: int = 18):
        self.opset = opset
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.bytes = self.parameters = self.count = 0

    def input(self, name: str, element: int, *dims: int) -> str:
        self.inputs.append(value_info(name, element, ["batch", *dims]))
        return name

    def output(self, value: str, name: str, *dims: int) -> None:
        self.nodes.append(field(1, value) + field(2, name) + field(3, name) + field(4, "Identity"))
        self.outputs.append(value_info(name, FLOAT, ["batch", *dims]))

    def node(self, kind: str, inputs: list, **attributes) -> str:
        self.count += 1
        name = f"{kind.lower()}_{self.count}"
        message = b"".join(field(1, value) for value in inputs) + field(2, name) + field(3, name) + field(4, kind)
        self.nodes.append(message + b"".join(field(5, attribute(*item)) for item in attributes.items()))
        return name

    def weight(self, name: str, *dims: int, trained: bool = True) -> str:
        length = 4 * math.prod(dims)
        message = b"".join(field(1, dim) for dim in dims) + field(2, FLOAT) + field(8, name)
        for key, value in {"location": "weights.bin", "offset": self.bytes, "length": length}.items():
            message += field(13, field(1, key) + field(2, str(value)))
        self.initializers.append(message + field(14, 1))
        self.parameters += math.prod(dims) if trained else 0
        self.bytes += -(-length // ALIGNMENT) * ALIGNMENT
        return name

    def constant(self, element: int, values: list, *dims: int) -> str:
        self.count += 1
        name = f"constant_{self.count}"
        raw = struct.pack(f"<{len(values)}{'q' if element == INT64 else 'f'}", *values)
        tensor = b"".join(field(1, dim) for dim in dims) + field(2, element) + field(9, raw)
        value = field(1, "value") + field(5, tensor) + field(20, 4)
        self.nodes.append(field(2, name) + field(3, name) + field(4, "Constant") + field(5, value))
        return name

    def reshape(self, value: str, *dims: int) -> str:
        return self.node("Reshape", [value, self.constant(INT64, list(dims), len(dims))])

    def split(self, value: str, parts: list, size: int) -> None:
        """Parts of the last axis, of so many columns each."""
        sizes = self.constant(INT64, [size] * len(parts), len(parts))
        outputs = b"".join(field(2, part) for part in parts)
        axis = field(5, attribute("axis", -1))
        self.nodes.append(field(1, value) + field(1, sizes) + outputs + field(3, f"split_{value}") + field(4, "Split") + axis)

    def silu(self, value: str) -> str:
        return self.node("Mul", [value, self.node("Sigmoid", [value])])

    def linear(self, value: str, name: str, rows: int, columns: int, bias: bool = True) -> str:
        product = self.node("MatMul", [value, self.weight(f"{name}.weight", rows, columns)])
        if not bias:
            return product
        return self.node("Add", [product, self.weight(f"{name}.bias", columns)])

    def write(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        graph = b"".join(field(1, node) for node in self.nodes) + field(2, "paper")
        graph += b"".join(field(5, tensor) for tensor in self.initializers)
        graph += b"".join(field(11, value) for value in self.inputs)
        graph += b"".join(field(12, value) for value in self.outputs)
        model = field(1, 9) + field(2, "graphpipe examples") + field(7, graph) + field(8, field(1, "") + field(2, self.opset))
        (folder / "model.onnx").write_bytes(model)
        with open(folder / "weights.bin", "wb") as data:
            data.truncate(self.bytes)
