#!/usr/bin/env python3
"""One training step of the single-stage program against PyTorch: same model, data, optimizer and threads.

    .deps/oracle/bin/python bench/step_time.py [--graphpipe build/release/bin/graphpipe] [--rounds 5] [--seconds 2]
                                             [--wide] [--torch-compile] [--bf16] [--device cuda] [--batch 8]
                                             [--optimizer adamw] [--save FILE] [MODEL...]

Models are the examples, or with --wide those of bench/wide_models.py, which are as wide as real ones. A round takes each
program's steps for some seconds, the first half of which warms up, and rounds alternate between the programs, so a machine
whose speed drifts moves all of them. Prints the median step of each and the ratio of ours to the faster of PyTorch's, round
by round; below 1 means that GraphPipe is faster. With --bf16 ours is also measured with --precision bf16, and its ratio to
float32 printed, beside PyTorch's autocast. `predicted` is the step that the plan says over the measured one, `roofline` the
measured one over what bench/roofline.py allows. With --device cuda, in a build with CUDA, both run on the GPU, without those
two, which are of CPUs, and ours is also measured without CUDA graphs; torch.compile records graphs there too, and the whole
models of bench/wide_models.py (gpt2_small) are measured where they are named. --save writes them to a file for
compare_results.py.
"""

import argparse
import copy
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch

import export
import models
import results
import roofline
import wide_models

BATCH = 8
# Steps of a round, at least.
FEWEST = 8


class Eager:
    """PyTorch's own training of an example, perhaps through torch.compile."""

    def __init__(self, example: models.Example, compiled: bool, batch: int = BATCH, device: str = "cpu", bf16: bool = False,
                 optimizer: str = "sgd"):
        self.example, self.batch, self.device, self.bf16 = example, batch, device, bf16
        module = example.module.train().to(device)
        # "reduce-overhead" records CUDA graphs, as ours does.
        self.run = torch.compile(module, mode="reduce-overhead" if device == "cuda" else None) if compiled else module
        make = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
        self.optimizer = make(module.parameters(), lr=0.01, fused=optimizer == "adamw")

    def step(self, number: int) -> None:
        example, samples = self.example, next(iter(self.example.inputs.values())).shape[0]
        first = number * self.batch % samples
        part = lambda tensor: tensor[first:first + self.batch].to(self.device)
        inputs = [part(tensor) for tensor in example.inputs.values()]
        labels = {key: part(tensor) for key, tensor in example.labels.items()}
        self.optimizer.zero_grad()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            loss = example.loss((self.run(*inputs),), labels)
        loss.backward()
        self.optimizer.step()
        loss.item()  # as a training loop prints it; on a GPU it waits

    def step_seconds(self, limit: float) -> float:
        seconds = []
        while sum(seconds) < limit or len(seconds) < FEWEST:
            begin = time.perf_counter()
            self.step(len(seconds))
            seconds.append(time.perf_counter() - begin)
        return settled(seconds)


def settled(seconds: list[float]) -> float:
    return statistics.median(seconds[len(seconds) // 2:])


class Compiled:
    """Our programs: of the flags, those of one device where they name no other number."""

    def __init__(self, graphpipe: str, folder: pathlib.Path, name: str, wide: bool, flags: list[str], batch: int = BATCH,
                 device: str = "cpu"):
        model, data, loss = prepared(name, wide, folder)
        self.program = folder / "-".join(["program", *flags]).replace("--", "")
        if "--devices" not in flags:
            flags = ["--devices", "1", "--micro-batch", str(batch), *flags]
        answer = subprocess.run([graphpipe, "compile", str(model), "--batch", str(batch), "--loss", loss, "-o",
                                 str(self.program), "--json", *flags], check=True, capture_output=True, text=True)
        self.predicted = json.loads(answer.stdout)["simulated_step"]
        self.command = [graphpipe, "run", str(self.program), "--data", str(data), "--lr", "0.01", "--json",
                        "--device", device]
        self.steps = FEWEST

    def with_flags(self, *flags: str) -> "Compiled":
        """The same program, run with further flags."""
        other = copy.copy(self)
        other.command = [*self.command, *flags]
        return other

    def step_seconds(self, limit: float) -> float:
        answer = subprocess.run([*self.command, "--steps", str(self.steps)], check=True, capture_output=True, text=True)
        seconds = json.loads(answer.stdout)["step_seconds"]
        enough = max(FEWEST, int(limit / statistics.median(seconds)))
        if self.steps == FEWEST and enough > FEWEST:
            self.steps = enough
            return self.step_seconds(limit)
        return settled(seconds)


def prepared(name: str, wide: bool, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, str]:
    """The ONNX model, its data and its loss."""
    if not wide:
        source = ROOT / "tests/data/models" / name
        return source / "model.onnx", source / "data", json.loads((source / "reference.json").read_text())["loss"]
    example = wide_models.load(name)
    export.export_onnx(example, folder / "model.onnx")
    export.write_data(example, folder / "data")
    return folder / "model.onnx", folder / "data", example.loss_flag


def measure(name: str, arguments: argparse.Namespace) -> dict:
    load, on_gpu = wide_models.load if arguments.wide else models.load, arguments.device == "cuda"
    drops = any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in load(name).module.modules())
    dropout = ["--dropout", "on"] if drops else []
    with tempfile.TemporaryDirectory() as folder:
        ours_with = lambda flags: Compiled(arguments.graphpipe, pathlib.Path(folder), name, arguments.wide,
                                           ["--optimizer", arguments.optimizer, *dropout, *flags], arguments.batch, arguments.device)
        torch_with = lambda compiled, bf16=False: Eager(load(name), compiled, arguments.batch, arguments.device, bf16,
                                                        arguments.optimizer)
        ours, eager = ours_with([]), torch_with(False)
        programs = {"eager": eager}
        if arguments.torch_compile:
            programs["torch_compile"] = torch_with(True)
        programs["ours"] = ours
        if on_gpu:
            programs["one_by_one"] = ours.with_flags("--no-cuda-graphs")
        if arguments.bf16:
            programs["autocast"] = torch_with(False, bf16=True)
            if arguments.torch_compile and on_gpu:
                programs["autocast_compile"] = torch_with(True, bf16=True)
        if arguments.bf16:
            programs["bf16"] = ours_with(["--precision", "bf16"])
        rounds = [{key: program.step_seconds(arguments.seconds) for key, program in programs.items()}
                  for _ in range(arguments.rounds)]
    bound = math.nan if on_gpu else roofline.seconds(lambda: eager.step(0))
    ratios = sorted(each["ours"] / min(each[key] for key in ("eager", "torch_compile") if key in each) for each in rounds)
    median = {f"{key}_seconds": statistics.median(each[key] for each in rounds) for key in programs}
    row = {"model": name, **median, "ratio": statistics.median(ratios)}
    if not on_gpu:
        row |= {"predicted": ours.predicted / median["ours_seconds"], "roofline": median["ours_seconds"] / bound}
    if arguments.bf16:
        row["bf16_ratio"] = statistics.median(each["bf16"] / each["ours"] for each in rounds)
    print(" ".join([f"{name:12}", *(f"{1e3 * median[f'{key}_seconds']:16.3f}" for key in programs),
                    f"{ratios[0]:10.3f} {row['ratio']:7.3f} {ratios[-1]:7.3f}",
                    f"{row['predicted']:9.3f} {row['roofline']:8.2f}" if not on_gpu else f"{'-':>9} {'-':>8}",
                    f"{row['bf16_ratio']:9.3f}" if arguments.bf16 else ""]), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of a program in a round")
    parser.add_argument("--wide", action="store_true", help="models of real width; torchvision.NAME is one too")
    parser.add_argument("--torch-compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--bf16", action="store_true", help="measure --precision bf16 too")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--save", help="file to write the results to")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    usual = list(wide_models.MODELS if arguments.wide else models.NAMES)
    known = [*usual, *(wide_models.LARGE if arguments.wide else [])]
    is_known = lambda name: name in known or (arguments.wide and name.startswith(wide_models.TORCHVISION))
    if unknown := [name for name in arguments.models if not is_known(name)]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    torch.set_num_threads(1)
    keys = ["eager", *(["torch.compile"] if arguments.torch_compile else []), "ours",
            *(["one by one"] if arguments.device == "cuda" else []),
            *(["autocast"] if arguments.bf16 else []),
            *(["autocast compile"] if arguments.bf16 and arguments.device == "cuda" and arguments.torch_compile else []),
            *(["bf16"] if arguments.bf16 else [])]
    times = " ".join(f"{key + ' ms':>16}" for key in keys)
    print(f"{'model':12} {times} {'ratio min':>10} {'median':>7} {'max':>7} {'predicted':>9} {'roofline':>8}",
          "bf16/ours" if arguments.bf16 else "")
    rows = [measure(name, arguments) for name in arguments.models or usual]
    if arguments.save:
        results.save(arguments.save, "step_time", rows, key=["model"],
                     lower_is_better=["ratio"] if arguments.device == "cuda" else ["ratio", "roofline"])


if __name__ == "__main__":
    main()
