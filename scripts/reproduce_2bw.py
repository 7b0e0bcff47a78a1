"""PipeDream-2BW (Narayanan et al., ICML 2021) against GPipe under a limit of memory: what scripts/reproduce adds to its own.

The model: a GPT of 2.2 billion parameters, 32 layers of width 2304 with 32 heads, 512 tokens of a vocabulary of 50,304, fp16, as the
authors' sweep has it (msr-fiddle/pipedream, scripts/driver_sweep.py, branch pipedream_2bw); the output layer has weights of its own.
Adam; devices are V100s (preset summit) of 16 GiB. One pipeline of nearly equal stages; all steps are simulated.
"""

import pathlib

from graph_writer import INT64
from published_models import ModelWriter, encoder_layer

LAYERS, WIDTH, HEADS, TOKENS, WORDS = 32, 2304, 32, 512, 50_304
SIZES = (1, 2, 4, 8, 16)
# The sweep: 256 samples of a batch on four pipelines of 16 stages, in micro-batches of 8.
CASES = ((8, 64), (8, 128), (16, 64))
WAYS = {"gpipe_recomputes": ("gpipe", "always"), "gpipe_keeps": ("gpipe", "never"), "two_bw_recomputes": ("2bw", "always"),
        "two_bw_keeps": ("2bw", "never")}


def write_gpt(folder: pathlib.Path) -> int:
    """Returns its parameters."""
    graph = ModelWriter()
    table = graph.weight("ids.weight", WORDS, WIDTH)
    x = graph.add(graph.node("Gather", [table, graph.input("ids", INT64, TOKENS)], axis=0), graph.weight("positions.weight", TOKENS, WIDTH))
    for layer in range(LAYERS):
        x = encoder_layer(graph, x, f"layers.{layer}", WIDTH, HEADS, lambda up: graph.node("Gelu", [up]), causal=True)
    graph.output(graph.linear(graph.norm(x, "norm", WIDTH), "head", WIDTH, WORDS, bias=False), "logits", TOKENS, WORDS)
    graph.write(folder)
    return graph.parameters


class Gpt:
    """Samples per second of its plans. `planner` is that of scripts/reproduce."""

    def __init__(self, planner):
        self.planner, self.folder, self.asked = planner, planner.folder / "gpt", {}

    def ask(self, stages: int, samples: int, size: int, way: str):
        """A future, None where the batch is less than a micro-batch. 2BW updates after as many micro-batches as stages, or more."""
        policy, recompute = WAYS[way]
        if policy == "2bw":
            samples = max(samples, stages * size)
        if samples < size:
            return None
        case = (stages, samples, size, way)
        if case not in self.asked:
            words = [self.planner.program, "plan", self.folder / "model.onnx", "--loss", "cross_entropy:logits,label", "--optimizer", "adam",
                     "--precision", "fp16", "--cluster", "summit", "--devices", stages, "--planner", "equal-split", "--stages", stages,
                     "--batch", samples, "--micro-batch", size, "--policy", policy, "--recompute", recompute,
                     "--json", "--quiet"]
            self.asked[case] = self.planner.pool.submit(self.planner.run, [str(word) for word in words])
        return self.asked[case]


def speed(future) -> float | None:
    """Samples per second, None where it does not fit."""
    found = future.result() if future else None
    return found["batch"] / found["simulated_step"] if found else None


def over(fast: float | None, slow: float | None) -> float | None:
    return round(fast / slow, 3) if fast and slow else None


def under_memory(planner) -> list:
    """For each way the samples per second in micro-batches of each size."""
    model = Gpt(planner)
    write_gpt(model.folder)
    asked = [(case, size, {way: model.ask(*case, size, way) for way in WAYS}) for case in CASES for size in SIZES]
    rows = []
    for (stages, samples), size, futures in asked:
        speeds = {way: speed(future) for way, future in futures.items()}
        rows.append({"stages": stages, "samples": samples, "micro_batch": size, **speeds,
                     "over_gpipe": over(speeds["two_bw_recomputes"], speeds["gpipe_recomputes"])})
    for row in rows:
        of_case = [other for other in rows if (other["stages"], other["samples"]) == (row["stages"], row["samples"])]
        best = {way: max((other[way] for other in of_case if other[way]), default=None) for way in WAYS}
        row["best_over_best"] = over(max(filter(None, (best["two_bw_recomputes"], best["two_bw_keeps"])), default=None),
                                     max(filter(None, (best["gpipe_recomputes"], best["gpipe_keeps"])), default=None))
        row["paper"] = "up to 3.2"
    return rows


FIGURES = {"two-versions-memory": (under_memory, "PipeDream-2BW: a GPT of 2.2 billion parameters on V100s of 16 GiB against GPipe, by micro-batch")}
