"""Tables 1 and 2 of GPipe (Huang et al., NeurIPS 2019) on AmoebaNet-D: what scripts/reproduce adds to its own.

The model is that of examples/published_amoebanet.py, with one number of state beside each weight and its gradient, 12 bytes for a
parameter, and BatchNorm over each micro-batch. Devices are V100s (preset summit) of 8 GiB, as much as the paper's accelerators have.
Cells differ in time, so that stages are those of torchgpipe's planner; GPipe's schedule, activations recomputed; all steps are simulated.
torchgpipe's authors made both tables again on P40s of 24 GB (kakaobrain/torchgpipe, benchmarks/): theirs stand beside the paper's.
"""

from published_amoebanet import write_amoebanet
from reproduce_gpipe import deepest

BATCH = 128
MEMORY = 8 << 30
ENOUGH = 128 << 30  # to see what a plan takes that does not fit
STEP = 8  # between the widths that the model can have


class AmoebaNets:
    """Plans of AmoebaNets of any size, each model written once. `planner` is that of scripts/reproduce."""

    def __init__(self, planner):
        self.planner, self.parameters = planner, {}

    def plan(self, layers: int, width: int, devices: int, batch: int, flags: list, memory: int = MEMORY) -> dict | None:
        """A plan's report, None where there is none."""
        folder = self.planner.folder / f"amoebanet-{layers}-{width}"
        if (layers, width) not in self.parameters:
            self.parameters[layers, width] = write_amoebanet(layers, width, folder)
        words = [self.planner.program, "plan", folder / "model.onnx", "--loss", "cross_entropy:logits,label", "--optimizer", "adagrad",
                 "--batchnorm", "micro-batch", "--cluster", "summit", "--memory", memory, "--devices", devices, "--batch", batch,
                 "--stages", devices, *flags]
        return self.planner.run([*map(str, words), "--json", "--quiet"])

    def naive(self, layers: int, width: int, memory: int = MEMORY) -> dict | None:
        """Without GPipe one device takes the batch at once and keeps all activations."""
        return self.plan(layers, width, 1, BATCH, ["--planner", "equal-split", "--micro-batch", BATCH, "--recompute", "never"], memory)

    def pipeline(self, layers: int, width: int, devices: int, batch: int, micro_batch: int, memory: int = MEMORY) -> dict | None:
        flags = ["--planner", "torchgpipe", "--policy", "gpipe", "--recompute", "always", "--micro-batch", micro_batch]
        return self.plan(layers, width, devices, batch, flags, memory)


# Way, devices, layers and width; of the paper the millions of parameters, GB of these and of activations on all devices, and of
# torchgpipe GB of activations, which had too little memory for the first.
WAYS = [("naive", 1, 18, 208, 82, 1.05, 6.26, None), ("pipeline", 1, 18, 416, 318, 3.8, 3.46, 0.98),
        ("pipeline", 2, 18, 544, 542, 6.45, 8.11, 3.64), ("pipeline", 4, 36, 544, 1050, 12.53, 15.21, 7.42),
        ("pipeline", 8, 72, 512, 1800, 24.62, 26.24, 11.63)]


def planned(models: AmoebaNets, way: str, devices: int):
    """A function that plans a way of table 1 for a number of layers, a width and a memory; pipelines with a sample at a time."""
    if way == "naive":
        return models.naive
    return lambda layers, width, memory=MEMORY: models.pipeline(layers, width, devices, BATCH, 1, memory)


def largest_models(planner) -> list:
    """Table 1: the paper's models, and the widest one that fits with as many layers."""
    models, rows = AmoebaNets(planner), []
    for way, devices, layers, width, *paper, torchgpipe in WAYS:
        plan = planned(models, way, devices)
        fitting = plan(layers, width)
        peaks = (fitting or plan(layers, width, ENOUGH))["peak_bytes"]
        weights = 12 * models.parameters[layers, width]
        widest = STEP * deepest(lambda steps: bool(plan(layers, STEP * steps)), 1, width // STEP)  # noqa: B023
        rows.append({"way": way, "devices": devices, "layers": layers, "width": width, "fits": bool(fitting),
                     "parameters": weights / 12e6, "paper_parameters": paper[0], "weights": weights / 1e9, "paper_weights": paper[1],
                     "activations": (sum(peaks) - weights) / 1e9, "paper_activations": paper[2], "torchgpipe_activations": torchgpipe,
                     "fullest": max(peaks) / 1e9, "widest": widest,
                     "widest_parameters": models.parameters[layers, widest] / 1e6 if widest else None})
    return rows


# Of 2, 4 and 8 devices with 1, 4 and 32 micro-batches, over 2 devices with 1: the paper's, and torchgpipe's.
THROUGHPUT = {1: ((1.0, 1.13, 1.38), (1.0, 1.006, 0.932)), 4: ((1.07, 1.26, 1.72), (1.546, 1.68, 2.625)),
              32: ((1.21, 1.84, 3.48), (1.78, 2.711, 4.966))}


def throughput(planner) -> list:
    """Table 2: AmoebaNet-D (18, 256), in the largest micro-batches that fit, as batches were made to fit in the paper."""
    models, rows = AmoebaNets(planner), []
    for micro_batches, papers in THROUGHPUT.items():
        for devices, paper, torchgpipe in zip((2, 4, 8), *papers):
            sizes = [BATCH >> k for k in range(8)]
            plans = ((size, models.pipeline(18, 256, devices, micro_batches * size, size)) for size in sizes)
            size, found = next(((size, plan) for size, plan in plans if plan), (None, None))
            rows.append({"devices": devices, "micro_batches": micro_batches, "micro_batch": size,
                         "samples_per_second": micro_batches * size / found["simulated_step"] if found else None})
            first = rows[0]["samples_per_second"]
            rows[-1] |= {"ratio": round(rows[-1]["samples_per_second"] / first, 3) if found and first else None, "paper": paper,
                         "torchgpipe": torchgpipe}
    return rows


FIGURES = {
    "gpipe-amoebanet-models": (largest_models, "GPipe, table 1: what AmoebaNet-D takes, and the widest that 1 to 8 devices of 8 GiB train"),
    "gpipe-amoebanet-speed": (throughput, "GPipe, table 2: samples per second of AmoebaNet-D (18, 256) by devices and micro-batches"),
}
