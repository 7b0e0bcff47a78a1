"""Tables 1 and 2 of GPipe (Huang et al., NeurIPS 2019) on its Transformer: what scripts/reproduce adds to its own.

The model: layers of width 2048 with 32 heads and 8192 hidden columns, 1024 tokens of a vocabulary of 32,000, and one number
of state beside each weight and its gradient, 12 bytes for a parameter. Devices are V100s (preset summit) of 16 GiB, as much as
the paper's TPUv3 have. Stages of nearly equal time, GPipe's schedule, activations recomputed; all steps are simulated.
"""

import pathlib

from graph_writer import FLOAT, INT64
from published_models import ModelWriter, encoder_layer

WIDTH, HEADS, TOKENS, WORDS = 2048, 32, 1024, 32_000
BATCH = 32
MEMORY = 16 << 30


class PlainAttention(ModelWriter):
    """Attention written out and without a mask, as the papers' time has it."""

    width, tokens = WIDTH, TOKENS

    def dropped(self, weights: str) -> str:
        return weights

    def attention(self, query: str, key: str, value: str, heads: int, causal: bool = False) -> str:
        size = self.width // heads

        def split(x: str, order: list) -> str:
            return self.node("Transpose", [self.reshape(x, 0, self.tokens, heads, size)], perm=order)

        scores = self.node("MatMul", [split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1])])
        weights = self.node("Softmax", [self.node("Mul", [scores, self.constant(FLOAT, [size ** -0.5])])], axis=-1)
        mixed = self.node("MatMul", [self.dropped(weights), split(value, [0, 2, 1, 3])])
        return self.reshape(self.node("Transpose", [mixed], perm=[0, 2, 1, 3]), 0, self.tokens, self.width)


def write_transformer(layers: int, folder: pathlib.Path) -> int:
    """Returns its parameters."""
    graph = PlainAttention()
    ids = graph.input("ids", INT64, TOKENS)
    x = graph.node("Gather", [graph.weight("embedding.weight", WORDS, WIDTH), ids], axis=0)
    for layer in range(layers):
        x = encoder_layer(graph, x, f"layers.{layer}", WIDTH, HEADS, lambda up: graph.node("Relu", [up]))
    graph.output(graph.linear(x, "head", WIDTH, WORDS, bias=False), "logits", TOKENS, WORDS)
    graph.write(folder)
    return graph.parameters


class Transformers:
    """Plans of Transformers of any depth, each model written once. `planner` is that of scripts/reproduce."""

    def __init__(self, planner):
        self.planner, self.parameters = planner, {}

    def plan(self, layers: int, devices: int, batch: int, flags: list, memory: int = MEMORY) -> dict | None:
        """A plan's report, None where it does not fit."""
        folder = self.planner.folder / f"transformer-{layers}"
        if layers not in self.parameters:
            self.parameters[layers] = write_transformer(layers, folder)
        words = [self.planner.program, "plan", folder / "model.onnx", "--loss", "cross_entropy:logits,label", "--optimizer",
                 "adagrad", "--cluster", "summit", "--memory", memory, "--devices", devices, "--batch", batch, *flags]
        return self.planner.run([*map(str, words), "--json", "--quiet"])

    def pipeline(self, layers: int, devices: int, batch: int, micro_batch: int, memory: int = MEMORY) -> dict | None:
        flags = ["--planner", "equal-split", "--policy", "gpipe", "--recompute", "always", "--stages", devices]
        return self.plan(layers, devices, batch, [*flags, "--micro-batch", micro_batch], memory)


def deepest(fits, fewest: int, guess: int) -> int:
    """Most layers of which `fits` holds, to 1 in 100; 0 where it does not of the fewest. Needs: with more it holds of fewer."""
    some, many = fewest - 1, guess
    while fits(many):
        some, many = many, 2 * many
    while many - some > max(1, some // 100):
        middle = (some + many) // 2
        some, many = (middle, many) if fits(middle) else (some, middle)
    return some if some >= fewest else 0


def largest_models(planner) -> list:
    """Table 1: without GPipe one device takes the batch at once and keeps all activations."""
    models = Transformers(planner)
    whole = ["--planner", "sequential", "--micro-batch", BATCH, "--recompute", "never"]
    cases = [("naive", 1, 3, 0.2822), ("pipeline", 1, 13, 0.7858), ("pipeline", 8, 103, 5.3), ("pipeline", 32, 415, 21.0)]
    rows = []
    for way, devices, paper_layers, paper in cases:
        def fits(layers: int) -> bool:
            return bool(models.plan(layers, 1, BATCH, whole) if way == "naive" else models.pipeline(layers, devices, BATCH, 1))  # noqa: B023
        layers = deepest(fits, devices, paper_layers)
        rows.append({"way": way, "devices": devices, "layers": layers,
                     "parameters": models.parameters[layers] / 1e9 if layers else None,
                     "paper_layers": paper_layers, "paper_parameters": paper})
    return rows


# Of 2, 4 and 8 devices with 1, 4 and 32 micro-batches, over 2 devices with 1.
THROUGHPUT = {1: (1.0, 1.07, 1.3), 4: (1.7, 3.2, 4.8), 32: (1.8, 3.4, 6.3)}


def throughput(planner) -> list:
    """Table 2: Transformer-48, in the largest micro-batches that fit, as batches were made to fit in the paper. Devices have
    20 GiB: beside the gradients of one micro-batch, two of 16 have no room for the activations of the next."""
    models, rows = Transformers(planner), []
    for micro_batches, papers in THROUGHPUT.items():
        for devices, paper in zip((2, 4, 8), papers):
            sizes = [BATCH >> k for k in range(6)]
            plans = ((size, models.pipeline(48, devices, micro_batches * size, size, 20 << 30)) for size in sizes)
            size, found = next(((size, plan) for size, plan in plans if plan), (None, None))
            rows.append({"devices": devices, "micro_batches": micro_batches, "micro_batch": size,
                         "samples_per_second": micro_batches * size / found["simulated_step"] if found else None})
            first = rows[0]["samples_per_second"]
            rows[-1] |= {"ratio": round(rows[-1]["samples_per_second"] / first, 3) if found and first else None, "paper": paper}
    return rows


FIGURES = {
    "gpipe-models": (largest_models, "GPipe, table 1: the largest Transformer that 1, 8 and 32 devices of 16 GiB train"),
    "gpipe-speed": (throughput, "GPipe, table 2: samples per second of Transformer-48 by devices and micro-batches"),
}
