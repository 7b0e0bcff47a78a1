#!/usr/bin/env python3
"""Writes AmoebaNet-D (L, D) for images of 224 x 224 and 1000 classes: FOLDER/model.onnx.

    python3 examples/published_amoebanet.py 18 208 out/amoebanet

Real et al. 2019, in the sizes of GPipe (Huang et al. 2019): L normal cells in three groups, with D channels in those of the first
and twice as many after each reduction. Which values a normal cell joins is not what Real et al. print but what TensorFlow's
implementation has: only this has as many parameters as GPipe says, as torchgpipe's authors found. Needs nothing but Python.
"""

import argparse
import pathlib

from graph_writer import FLOAT, INT64, GraphWriter

IMAGE, CLASSES = 224, 1000
# Values of a cell are numbered: 0 is what the cell before has made, 1 what the cell before that has, and each pair of operations
# (kind, value that it reads) adds the sum of its two results. The last list are the values that the cell joins.
NORMAL = ([(("conv_1x1", 1), ("max_3x3", 1)), (("same", 1), ("conv_1x7_7x1", 0)), (("conv_1x1", 0), ("conv_1x7_7x1", 0)),
           (("max_3x3", 2), ("same", 2)), (("average_3x3", 1), ("conv_1x1", 5))], [0, 3, 4, 6])
REDUCTION = ([(("max_2x2", 0), ("max_3x3", 0)), (("same", 2), ("conv_3x3", 1)), (("conv_1x7_7x1", 2), ("max_3x3", 2)),
              (("same", 3), ("max_2x2", 1)), (("average_3x3", 2), ("conv_1x1", 3))], [4, 5, 6])


class AmoebaNetWriter(GraphWriter):
    def batch_norm(self, x: str, name: str, channels: int) -> str:
        values = [self.weight(f"{name}.{part}", channels) for part in ("weight", "bias")]
        statistics = [self.weight(f"{name}.{part}", channels, trained=False) for part in ("running_mean", "running_var")]
        return self.node("BatchNormalization", [x, *values, *statistics])

    def conv(self, x: str, name: str, channels: int, out: int, kernel: tuple = (1, 1), strides: tuple = (1, 1)) -> str:
        rows, columns = kernel
        return self.node("Conv", [x, self.weight(f"{name}.weight", out, channels, rows, columns)], kernel_shape=list(kernel),
                         pads=[rows // 2, columns // 2] * 2, strides=list(strides))

    def block(self, x: str, name: str, channels: int, out: int, kernel: tuple = (1, 1), strides: tuple = (1, 1)) -> str:
        """Relu, convolution, BatchNorm: what all convolutions stand in."""
        x = self.conv(self.node("Relu", [x]), f"{name}.conv", channels, out, kernel, strides)
        return self.batch_norm(x, f"{name}.norm", out)

    def narrow(self, x: str, name: str, channels: int, kernels: list) -> str:
        """(Kernel, strides) pairs on a quarter of the channels, between two convolutions of 1 x 1."""
        quarter = channels // 4
        x = self.block(x, f"{name}.in", channels, quarter)
        for i, (kernel, strides) in enumerate(kernels):
            x = self.block(x, f"{name}.{i}", quarter, quarter, kernel, strides)
        return self.block(x, f"{name}.out", quarter, channels)

    def operation(self, kind: str, x: str, name: str, channels: int, stride: int) -> str:
        name, pads = f"{name}.{kind}", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [stride, stride]}
        if kind == "conv_1x1":
            return self.block(x, name, channels, channels, strides=(stride, stride))
        if kind == "conv_3x3":
            return self.narrow(x, name, channels, [((3, 3), (stride, stride))])
        if kind == "conv_1x7_7x1":
            return self.narrow(x, name, channels, [((1, 7), (1, stride)), ((7, 1), (stride, 1))])
        if kind == "max_2x2":
            return self.node("MaxPool", [x], kernel_shape=[2, 2], strides=[stride, stride])
        if kind == "max_3x3":
            return self.node("MaxPool", [x], **pads)
        return self.node("AveragePool", [x], **pads) if kind == "average_3x3" else x

    def halve(self, x: str, name: str, channels: int, out: int) -> str:
        """Half of the height and width: half of the channels are of the even rows and columns, the others of the odd ones."""
        x = self.node("Relu", [x])
        starts, ends, axes = (self.constant(INT64, values, 2) for values in ([1, 1], [IMAGE, IMAGE], [2, 3]))
        parts = [self.conv(part, f"{name}.conv{i}", channels, out // 2, strides=(2, 2))
                 for i, part in enumerate((x, self.node("Slice", [x, starts, ends, axes])))]
        return self.batch_norm(self.node("Concat", parts, axis=1), f"{name}.norm", out)


class AmoebaNetD:
    """`last` and `before` are (value, channels) of the last two cells."""

    def __init__(self, layers: int, width: int):
        self.graph, self.cells, self.channels = AmoebaNetWriter(), 0, width // 4
        image = self.graph.node("Relu", [self.graph.input("image", FLOAT, 3, IMAGE, IMAGE)])
        stem = self.graph.conv(image, "stem.conv", 3, self.channels, (3, 3), (2, 2))
        self.last = self.before = (self.graph.batch_norm(stem, "stem.norm", self.channels), self.channels)
        self.reduced = False
        self.cell(reduction=True)
        for _group in range(3):
            self.cell(reduction=True)
            for _cell in range(layers // 3):
                self.cell(reduction=False)
        self.classify()

    def inputs(self, name: str) -> list:
        """What the two cells before have made, in the channels and the size of this one."""
        graph, (last, of_last), (before, of_before) = self.graph, self.last, self.before
        last = graph.block(last, f"{name}.last", of_last, self.channels)
        if self.reduced:
            before = graph.halve(before, f"{name}.before", of_before, self.channels)
        elif of_before != self.channels:
            before = graph.block(before, f"{name}.before", of_before, self.channels)
        return [last, before]

    def cell(self, reduction: bool) -> None:
        graph, name, (pairs, joined) = self.graph, f"cells.{self.cells}", REDUCTION if reduction else NORMAL
        self.channels *= 2 if reduction else 1
        values = self.inputs(name)
        for i, pair in enumerate(pairs):
            parts = [graph.operation(kind, values[read], f"{name}.{i}.{side}", self.channels, 2 if reduction and read < 2 else 1)
                     for side, (kind, read) in enumerate(pair)]
            values.append(graph.node("Add", parts))
        made = (graph.node("Concat", [values[i] for i in joined], axis=1), len(joined) * self.channels)
        self.last, self.before, self.reduced, self.cells = made, self.last, reduction, self.cells + 1

    def classify(self) -> None:
        value, channels = self.last
        pooled = self.graph.reshape(self.graph.node("GlobalAveragePool", [value]), 0, channels)
        self.graph.output(self.graph.linear(pooled, "classifier", channels, CLASSES), "logits", CLASSES)


def write_amoebanet(layers: int, width: int, folder: pathlib.Path) -> int:
    """Writes AmoebaNet-D (layers, width) and returns its parameters."""
    if layers % 3 or width % 8:
        raise ValueError("layers come in three groups, and channels are halved three times")
    graph = AmoebaNetD(layers, width).graph
    graph.write(folder)
    return graph.parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", type=int, help="L: normal cells, a multiple of 3")
    parser.add_argument("width", type=int, help="D: channels, a multiple of 8")
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    parameters = write_amoebanet(arguments.layers, arguments.width, arguments.folder)
    print(f"{arguments.folder / 'model.onnx'}, {parameters:,} parameters: plan it with --loss cross_entropy:logits,label")


if __name__ == "__main__":
    main()
