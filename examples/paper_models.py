#!/usr/bin/env python3
"""Writes a model of GraphPipe's evaluation (ASPLOS 2025, section 7.1) at the paper's size: FOLDER/model.onnx.

    python3 examples/paper_models.py mmt out/mmt
    python3 examples/paper_models.py candle_uno out/candle --branches 4

Needs nothing but Python. To plan, weights are not needed: beside the graph lies weights.bin, a file of the right size
that is one hole and takes no space. Train the small models of examples/models instead.

What the paper leaves open is said at each model.
"""

import argparse
import pathlib

from graph_writer import FLOAT, INT64, GraphWriter

SEQUENCE, HIDDEN, HEADS, INNER = 256, 1024, 16, 4096


def attention(graph: GraphWriter, x: str, name: str) -> str:
    size = HIDDEN // HEADS

    def heads(part: str, order: list) -> str:
        value = graph.linear(x, f"{name}.{part}", HIDDEN, HIDDEN)
        return graph.node("Transpose", [graph.reshape(value, 0, SEQUENCE, HEADS, size)], perm=order)

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scaled = graph.node("Mul", [graph.node("MatMul", [query, key]), graph.constant(FLOAT, [size**-0.5])])
    context = graph.node("MatMul", [graph.node("Softmax", [scaled], axis=-1), value])
    joined = graph.reshape(graph.node("Transpose", [context], perm=[0, 2, 1, 3]), 0, SEQUENCE, HIDDEN)
    return graph.linear(joined, f"{name}.out", HIDDEN, HIDDEN)


def transformer(graph: GraphWriter, x: str, name: str) -> str:
    def norm(value: str, part: str) -> str:
        scale, bias = graph.weight(f"{name}.{part}.weight", HIDDEN), graph.weight(f"{name}.{part}.bias", HIDDEN)
        return graph.node("LayerNormalization", [value, scale, bias], axis=-1, epsilon=1e-5)

    x = graph.node("Add", [x, attention(graph, norm(x, "norm1"), f"{name}.attention")])
    up = graph.node("Relu", [graph.linear(norm(x, "norm2"), f"{name}.up", HIDDEN, INNER)])
    return graph.node("Add", [x, graph.linear(up, f"{name}.down", INNER, HIDDEN)])


def mmt(branches: int) -> GraphWriter:
    """Multi-Modal Transformer: branches of 8 layers, sequence 256, hidden size 1024, 16 heads, feed-forward size 4096,
    concatenated at the end. Ours: layers with residuals and normalisation before them, a linear embedding, the mean
    over the sequence and 1000 classes."""
    graph, tails = GraphWriter(), []
    for branch in range(branches):
        x = graph.input(f"modality{branch}", FLOAT, SEQUENCE, HIDDEN)
        x = graph.linear(x, f"branches.{branch}.embed", HIDDEN, HIDDEN)
        for layer in range(8):
            x = transformer(graph, x, f"branches.{branch}.layers.{layer}")
        tails.append(graph.node("ReduceMean", [x, graph.constant(INT64, [1], 1)], keepdims=0))
    joined = graph.node("Concat", tails, axis=-1) if branches > 1 else tails[0]
    graph.output(graph.linear(joined, "head", branches * HIDDEN, 1000), "logits", 1000)
    return graph


WIDTH, LAYERS = 4096, 4


def tower(graph: GraphWriter, x: str, name: str, width: int) -> str:
    for layer in range(LAYERS):
        x = graph.node("Relu", [graph.linear(x, f"{name}.{layer}", width, WIDTH)])
        width = WIDTH
    return x


def dlrm(branches: int) -> GraphWriter:
    """Recommendation model: as many dense branches of 4 layers of 4096, as many tables of 1M x 64 with bags of 100
    whose entries are concatenated, and layers of 4096 on top. Ours: 4 of these and an output."""
    graph, tails = GraphWriter(), []
    for branch in range(branches):
        tails.append(tower(graph, graph.input(f"dense{branch}", FLOAT, WIDTH), f"dense.{branch}", WIDTH))
    for branch in range(branches):
        table, ids = graph.weight(f"tables.{branch}.weight", 1000000, 64), graph.input(f"sparse{branch}", INT64, 100)
        tails.append(graph.reshape(graph.node("Gather", [table, ids], axis=0), 0, 6400))
    x = tower(graph, graph.node("Concat", tails, axis=-1), "top", branches * (WIDTH + 6400))
    graph.output(graph.node("MatMul", [x, graph.weight("out.weight", WIDTH, 1)]), "score", 1)
    return graph


def candle_uno(branches: int) -> GraphWriter:
    """Drug response model: branches of 4 layers of 4096. Ours, after FlexFlow's example of that name: concatenated, 4
    layers on top and an output; inputs of 4096."""
    graph = GraphWriter()
    tails = [tower(graph, graph.input(f"feature{branch}", FLOAT, WIDTH), f"towers.{branch}", WIDTH)
             for branch in range(branches)]
    joined = graph.node("Concat", tails, axis=-1) if branches > 1 else tails[0]
    x = tower(graph, joined, "top", branches * WIDTH)
    graph.output(graph.node("MatMul", [x, graph.weight("out.weight", WIDTH, 1)]), "response", 1)
    return graph


def case_study(branches: int) -> GraphWriter:
    """The model of GraphPipe's case study (section 7.5): branches of 4 layers of attention and two linear operators, one
    concatenation. Without residuals and normalisation, as listed there."""
    graph, tails = GraphWriter(), []
    for branch in range(branches):
        x = graph.input(f"modality{branch}", FLOAT, SEQUENCE, HIDDEN)
        for layer in range(4):
            name = f"branches.{branch}.layers.{layer}"
            x = attention(graph, x, f"{name}.attention")
            x = graph.node("Relu", [graph.linear(x, f"{name}.up", HIDDEN, INNER)])
            x = graph.linear(x, f"{name}.down", INNER, HIDDEN)
        tails.append(x)
    joined = graph.node("ReduceMean", [graph.node("Concat", tails, axis=-1), graph.constant(INT64, [1], 1)], keepdims=0)
    graph.output(joined, "features", branches * HIDDEN)
    return graph


# Name: what writes it, its branches in the paper, and the loss to plan it with.
MODELS = {"mmt": (mmt, 4, "cross_entropy:logits,label"), "dlrm": (dlrm, 7, "bce:score,click"),
          "candle_uno": (candle_uno, 7, "mse:response,target"), "case_study": (case_study, 2, "mse:features,target")}


def write_model(name: str, folder: pathlib.Path, branches: int = 0) -> str:
    """Writes the model and returns its --loss."""
    make, usual, loss = MODELS[name]
    make(branches or usual).write(folder)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--branches", type=int, default=0, help="number of branches; without it the paper's")
    arguments = parser.parse_args()
    loss = write_model(arguments.name, arguments.folder, arguments.branches)
    print(f"{arguments.folder / 'model.onnx'}: plan it with --loss {loss}")


if __name__ == "__main__":
    main()
