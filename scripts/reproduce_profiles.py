"""Figures of the papers before GraphPipe, on the layer profiles that they published (tests/data): what scripts/reproduce
adds to its own. A mini-batch is the one that was profiled; all steps are simulated."""

import json
import pathlib
import re
import subprocess

DATA = pathlib.Path(__file__).resolve().parents[1] / "tests/data"
# PipeDream's machines: four with four GPUs at 10 GB/s, joined by 10 Gb/s.
FOUR_BY_FOUR = ["--topology", "4@10e9,4@1.25e9", "--devices", 16]
MINI_BATCH = 64  # what --profile-batch takes a profiled mini-batch for
PROFILES = ("vgg16", "alexnet", "resnet50", "gnmt_large")
BERT = DATA / "piper/bert32a100.json"


def report_of(words: list) -> dict:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"reproduce: {' '.join(map(str, words))} ended with {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def compare(program, planner: str, policy: str, flags: list) -> dict:
    """The one plan of a planner under a policy."""
    return report_of([program, "compare", "--planners", planner, "--policies", policy, "--json", "--quiet", *flags])["plans"][0]


def mini_batch(program, model: str, planner: str, policy: str, count: int) -> float | None:
    """Seconds of a mini-batch in a step of so many."""
    flags = ["--profile", DATA / f"pipedream/{model}.txt", "--profile-format", "pipedream", *FOUR_BY_FOUR,
             "--batch", MINI_BATCH * count, "--micro-batch", MINI_BATCH]
    seconds = compare(program, planner, policy, flags)["simulated_step"]
    return seconds / count if seconds else None


def undrained(program, model: str, planner: str, policy: str) -> float | None:
    """Seconds of one mini-batch more, behind many."""
    short, long = 32, 64
    times = [mini_batch(program, model, planner, policy, count) for count in (short, long)]
    return (long * times[1] - short * times[0]) / (long - short) if all(times) else None


def over(slow: float | None, fast: float | None) -> float | None:
    return round(slow / fast, 3) if slow and fast else None


def work(model: str) -> float:
    """Seconds that all layers of a profiled mini-batch take on one device; planners leave its inputs out."""
    layers = [line for line in (DATA / f"pipedream/{model}.txt").read_text().splitlines() if " -- Input" not in line]
    times = re.findall(r"(?:forward|backward)_compute_time=([0-9.]+)", "\n".join(layers))
    return sum(map(float, times)) / 1e3


# Table 1, four machines of four GPUs (cluster A): the time of an epoch of data parallelism over PipeDream's. The profile gnmt_large
# is the paper's GNMT-16.
OVER_DATA_PARALLEL = {"vgg16": 5.28, "alexnet": 4.92, "resnet50": 1.0, "gnmt_large": 2.34}


def pipedream(planner) -> list:
    """`most`: data parallelism over 16 devices that are never idle, which no plan of this profile beats."""
    rows = []
    for model in PROFILES:
        flags = ["--profile", DATA / f"pipedream/{model}.txt", "--profile-format", "pipedream", *FOUR_BY_FOUR]
        own = report_of([planner.program, "plan", "--planner", "pipedream", "--json", "--quiet", *flags])["objective"] / 1e3
        data = mini_batch(planner.program, model, "data-parallel", "kfkb", 16)
        one = mini_batch(planner.program, model, "torchgpipe", "gpipe", 1)
        gpipe = mini_batch(planner.program, model, "torchgpipe", "gpipe", 16)
        rows.append({"model": model, "devices": 16, "data_parallel": data, "model_parallel": one, "gpipe": gpipe,
                     "pipedream_own_terms": own, "pipedream_1f1b": undrained(planner.program, model, "pipedream", "pipedream-rr"),
                     "pipedream_2bw": undrained(planner.program, model, "pipedream", "2bw"),
                     "over_data_parallel_own_terms": over(data, own)})
        rows[-1]["over_data_parallel"] = over(data, rows[-1]["pipedream_2bw"])
        rows[-1]["over_gpipe"] = over(gpipe, rows[-1]["pipedream_2bw"])
        rows[-1]["most"] = over(data, work(model) / 16)
        rows[-1]["paper"] = OVER_DATA_PARALLEL[model]
    return rows


def dapple(planner) -> list:
    rows = []
    for model in PROFILES:
        steps = {name: mini_batch(planner.program, model, name, policy, 16)
                 for name, policy in (("dapple", "kfkb"), ("pipedream", "kfkb"), ("torchgpipe", "gpipe"))}
        rows.append({"model": model, "devices": 16, **steps, "over_pipedream": over(steps["pipedream"], steps["dapple"]),
                     "over_gpipe": over(steps["torchgpipe"], steps["dapple"]),
                     "paper": "up to 3.23 over PipeDream's plans, 1.6 over GPipe"})
    return rows


def two_versions(planner) -> list:
    """A pipeline of equal stages: what a mini-batch takes with a flush, without one, and one at a time."""
    def step(ranks: int, policy: str, micro_batches: int, more: tuple = ()) -> int:
        return report_of([planner.program, "schedule", "--policy", policy, "--ranks", ranks, "--micro-batches",
                          micro_batches, "--json", "--quiet", *more])["makespan"]
    rows = []
    for ranks in (4, 8, 16):
        row = {"ranks": ranks, "micro_batches": ranks}
        update = ("--update", ranks)
        row["gpipe"] = step(ranks, "gpipe", ranks)
        # A backward that runs its forward once more.
        row["gpipe_recomputes"] = step(ranks, "gpipe", ranks, ("--costs", "1,2,1"))
        row["one_f_one_b"] = step(ranks, "1f1b", ranks)
        row["two_bw"] = (step(ranks, "2bw", 8 * ranks, update) - step(ranks, "2bw", 4 * ranks, update)) / 4
        row["model_parallel"] = ranks * step(ranks, "gpipe", 1)
        row["over_gpipe"] = over(row["gpipe"], row["two_bw"])
        row["over_gpipe_recomputes"] = over(row["gpipe_recomputes"], row["two_bw"])
        row["over_model_parallel"] = over(row["model_parallel"], row["two_bw"])
        rows.append({**row, "paper": "up to 3.2 over GPipe, 20 over model parallelism"})
    return rows


def gpipe(planner) -> list:
    rows = []
    for ranks in (2, 4, 8):
        for micro_batches in (1, ranks, 4 * ranks, 8 * ranks):
            made = report_of([planner.program, "schedule", "--policy", "gpipe", "--ranks", ranks, "--micro-batches",
                              micro_batches, "--json", "--quiet"])
            rows.append({"ranks": ranks, "micro_batches": micro_batches, "idle": round(made["bubble_fraction"], 4),
                         "formula": round((ranks - 1) / (micro_batches + ranks - 1), 4),
                         "paper": "negligible" if micro_batches >= 4 * ranks else None})
    return rows


def versions_held(program: list) -> int:
    """Most versions of the weights that a list of actions still reads at one time."""
    reads = {}
    for place, action in enumerate(program):
        if found := re.match(r"\d+(?:r\d+)?[FBIW]\[", action):
            version = re.search(r"v(\d+)", action[found.end():])
            reads.setdefault(int(version[1]) if version else 0, []).append(place)
    spans = [(min(places), max(places)) for places in reads.values()]
    return max(sum(first <= place <= last for first, last in spans) for place in range(len(program)))


def memory(planner) -> list:
    """Micro-batches whose activations are held at once, and versions of the weights, per stage."""
    rows = []
    for ranks, micro_batches in ((4, 16), (8, 32)):
        for policy in ("gpipe", "1f1b", "pipedream", "2bw"):
            made = report_of([planner.program, "schedule", "--policy", policy, "--ranks", ranks, "--micro-batches",
                              micro_batches, *(("--update", ranks) if policy == "2bw" else ()), "--json", "--quiet"])
            peaks = made["peak_F_to_W"]
            rows.append({"ranks": ranks, "micro_batches": micro_batches, "policy": policy, "activations": peaks,
                         "versions": [versions_held(program) for program in made["programs"]],
                         "paper": {"gpipe": "all micro-batches", "1f1b": "ranks - stage", "pipedream": "ranks - stage of both",
                                   "2bw": "2 versions"}[policy]})
    return rows


def piper(planner) -> list:
    rows = []
    for devices in (8, 32, 128, 512):
        flags = ["--profile", BERT, "--profile-format", "piper", "--micro-batches", 64, "--devices", devices, "--json", "--quiet"]
        found = {name: report_of([planner.program, "plan", "--planner", name, *flags]) for name in ("piper", "equal-split")}
        best, equal = found["piper"]["objective"], found["equal-split"]["objective"]
        rows.append({"model": "BERT-32", "devices": devices, "piper": best, "equal_split": equal, "over_equal_split": over(equal, best),
                     "paper": "near 1 where layers are equal", "piper_stages": len(found["piper"]["stages"]),
                     "search_seconds": round(found["piper"]["search_seconds"], 3)})
    return rows


FIGURES = {
    "pipedream": (pipedream, "PipeDream: a mini-batch on 4 x 4 GPUs against data and model parallelism and GPipe"),
    "two-versions": (two_versions, "PipeDream-2BW: a mini-batch without a flush against GPipe and model parallelism"),
    "dapple": (dapple, "DAPPLE: its synchronous plans against PipeDream's and GPipe's on 4 x 4 GPUs"),
    "gpipe": (gpipe, "GPipe: idle time of equal stages by their number and that of micro-batches"),
    "memory": (memory, "PipeDream, 2BW and DAPPLE: activations and weights that a stage holds"),
    "piper": (piper, "Piper: BERT-32 on 8 to 512 devices against equal runs of layers"),
}
