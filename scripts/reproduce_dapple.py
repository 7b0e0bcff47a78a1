"""Tables of DAPPLE (Fan et al., PPoPP 2021) on BERT: what scripts/reproduce adds to its own.

The model: BERT's layers of width 1024 with 16 heads and 4096 hidden columns, norms behind the sums and a dropout of 0.1 that is
on, 384 tokens of a vocabulary of 30,522, and the first and last token of an answer as output (SQuAD, as the authors' program in
AlibabaPAI/DAPPLE, folder bert, has it). Adam's two moments beside each weight and its gradient, 16 bytes for a parameter.
Devices are V100s (preset summit) of 16 GiB. The schedule of DAPPLE is its policy A; all steps are simulated.
"""

import pathlib

from graph_writer import FLOAT, INT64
from reproduce_gpipe import PlainAttention, deepest

WIDTH, HEADS, TOKENS, WORDS = 1024, 16, 384, 30_522
MICRO_BATCH = 2
# The paper measures the memory on machines of one V100 each, joined by 25 Gb/s.
BETWEEN = 25e9 / 8
SCHEDULES = {"gpipe": "gpipe", "dapple": "dapple-a"}


class BertWriter(PlainAttention):
    width, tokens = WIDTH, TOKENS

    def dropped(self, weights: str) -> str:
        return self.node("Dropout", [weights, self.constant(FLOAT, [0.1])])

    def layer(self, x: str, name: str) -> str:
        projected = [self.linear(x, f"{name}.{part}", WIDTH, WIDTH) for part in ("query", "key", "value")]
        mixed = self.linear(self.attention(*projected, HEADS), f"{name}.mixed", WIDTH, WIDTH)
        x = self.norm(self.add(x, self.dropped(mixed)), f"{name}.norm1", WIDTH)
        up = self.node("Gelu", [self.linear(x, f"{name}.up", WIDTH, 4 * WIDTH)])
        return self.norm(self.add(x, self.dropped(self.linear(up, f"{name}.down", 4 * WIDTH, WIDTH))), f"{name}.norm2", WIDTH)


def write_bert(layers: int, folder: pathlib.Path) -> int:
    """Returns its parameters."""
    graph = BertWriter()
    looked_up = [graph.node("Gather", [graph.weight(f"{name}.weight", rows, WIDTH), graph.input(name, INT64, TOKENS)], axis=0)
                 for name, rows in (("ids", WORDS), ("segments", 2))]
    x = graph.add(graph.add(*looked_up), graph.weight("positions.weight", TOKENS, WIDTH))
    x = graph.dropped(graph.norm(x, "norm", WIDTH))
    for layer in range(layers):
        x = graph.layer(x, f"layers.{layer}")
    logits = graph.node("Transpose", [graph.linear(x, "answer", WIDTH, 2)], perm=[0, 2, 1])
    graph.output(logits, "logits", 2, TOKENS)
    graph.write(folder)
    return graph.parameters


class Berts:
    """Plans of BERTs of any depth, each model written once. `planner` is that of scripts/reproduce."""

    def __init__(self, planner):
        self.planner, self.parameters = planner, {}

    def plan(self, layers: int, devices: int, micro_batches: int, schedule: str, recompute: str, more: tuple = ()) -> dict | None:
        """A plan's report, None where it does not fit."""
        folder = self.planner.folder / f"bert-{layers}"
        if layers not in self.parameters:
            self.parameters[layers] = write_bert(layers, folder)
        words = [self.planner.program, "plan", folder / "model.onnx", "--loss", "cross_entropy:logits,label,axis=2", "--optimizer", "adam",
                 "--dropout", "on", "--cluster", "summit", "--devices", devices, "--stages", devices, "--planner", "equal-split",
                 "--batch", micro_batches * MICRO_BATCH, "--micro-batch", MICRO_BATCH, "--policy", SCHEDULES[schedule],
                 "--recompute", recompute, *more]
        return self.planner.run([*map(str, words), "--json", "--quiet"])


NOT = "does not fit"
# Samples per second and gigabytes, the average of the devices' peaks, by schedule, recomputation and micro-batches.
MEASURED = {("gpipe", "never", 2): (5.10, 12.1), ("gpipe", "always", 2): (4.00, 9.9), ("gpipe", "always", 5): (5.53, 13.2),
            ("gpipe", "always", 8): NOT, ("dapple", "never", 2): (5.10, 10.6), ("dapple", "never", 8): (7.60, 10.6),
            ("dapple", "never", 16): (8.18, 10.6), ("dapple", "always", 2): (4.24, 8.5), ("dapple", "always", 8): (6.23, 8.5),
            ("dapple", "always", 16): (6.77, 8.5)}


def papers(case: tuple) -> dict:
    """What the paper measured, as ratios to GPipe with two micro-batches that keeps all activations."""
    found, first = MEASURED.get(case), MEASURED["gpipe", "never", 2][0]
    if found is None or found == NOT:
        return {"paper_ratio": None, "paper_peak_bytes": found}
    return {"paper_ratio": round(found[0] / first, 3), "paper_peak_bytes": found[1] * 1e9}


def memory(planner) -> list:
    """BERT-48 on two devices."""
    models, rows = Berts(planner), []
    for schedule in SCHEDULES:
        for recompute in ("never", "always"):
            for micro_batches in (2, 5, 8, 16):
                found = models.plan(48, 2, micro_batches, schedule, recompute, ("--bandwidth", BETWEEN))
                speed = micro_batches * MICRO_BATCH / found["simulated_step"] if found else None
                rows.append({"schedule": schedule, "recompute": recompute, "micro_batches": micro_batches, "samples_per_second": speed})
                first = rows[0]["samples_per_second"]
                rows[-1] |= {"ratio": round(speed / first, 3) if speed and first else None,
                             "peak_bytes": sum(found["peak_bytes"]) / len(found["peak_bytes"]) if found else NOT,
                             **papers((schedule, recompute, micro_batches))}
    return rows


def largest_models(planner) -> list:
    """The deepest BERT that DAPPLE trains where it recomputes. From as many micro-batches as devices on, more take no more memory."""
    models, rows = Berts(planner), []
    for devices, paper_layers, paper in ((1, 48, 0.64), (2, 106, 1.4), (4, 215, 2.7), (8, 428, 5.5)):
        layers = deepest(lambda layers, devices=devices: bool(models.plan(layers, devices, 2 * devices, "dapple", "always")),
                         devices, paper_layers)
        rows.append({"devices": devices, "layers": layers, "parameters": models.parameters[layers] / 1e9 if layers else None,
                     "paper_layers": paper_layers, "paper_parameters": paper})
    return rows


FIGURES = {
    "dapple-memory": (memory, "DAPPLE: throughput and memory of BERT-48 on two V100s, its schedule against GPipe's"),
    "dapple-models": (largest_models, "DAPPLE: the largest BERT that 1 to 8 V100s of 16 GiB train"),
}
