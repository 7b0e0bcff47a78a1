#!/usr/bin/env python3
"""GPT-like models of 1.5 and 7 billion parameters: seconds, resident and anonymous memory of the verbs of the compiler.

    .deps/oracle/bin/python bench/large_models.py 1.5b inspect plan generate build [--graphpipe build/release/bin/graphpipe]

The model is written as exporters write it: attention of single operators, a causal mask added to the scores, weights as
external data. Its data file is one hole and takes no space. Anonymous memory (RssAnon of /proc) is what the verb itself
holds: pages of a mapped file are not part of it, which the system takes back at will. Seconds of `build` are those of
the compilers too; their memory is told apart, as that of the largest process. What was written are the sizes of all
files that are not the model's own.
"""

import argparse
import os
import pathlib
import subprocess
import tempfile
import time

from onnx import TensorProto, helper, save_model

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = {"1.5b": dict(layers=48, width=1600, heads=25, words=50257), "7b": dict(layers=32, width=4096, heads=32, words=32000),
         "tiny": dict(layers=2, width=64, heads=4, words=128)}


class Writer:
    """Collects nodes, weights that lie in one file, and constants of the graph."""

    def __init__(self):
        self.nodes, self.initializers, self.bytes, self.count, self.parameters = [], [], 0, 0, 0

    def weight(self, name: str, *dims: int) -> str:
        tensor = helper.make_tensor(name, TensorProto.FLOAT, [0], [])
        tensor.dims[:] = dims
        tensor.data_location = TensorProto.EXTERNAL
        elements = 1
        for dim in dims:
            elements *= dim
        for key, value in {"location": "weights.bin", "offset": self.bytes, "length": elements * 4}.items():
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        self.bytes += (elements * 4 + 4095) // 4096 * 4096
        self.parameters += elements
        return name

    def constant(self, name: str, element: int, dims: list, values: list) -> str:
        self.initializers.append(helper.make_tensor(name, element, dims, values))
        return name

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        self.count += 1
        out = f"v{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"node_{kind}_{self.count}", **attributes))
        return out

    def linear(self, x: str, name: str, wide: int, out: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(f"{name}.weight", wide, out)), self.weight(f"{name}.bias", out))

    def norm(self, x: str, name: str, width: int) -> str:
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width), axis=-1)


def attention(w: Writer, x: str, name: str, width: int) -> str:
    def heads_of(part: str, order: list) -> str:
        return w.op("Transpose", w.op("Reshape", w.linear(x, f"{name}.{part}", width, width), "split"), perm=order)
    q, k, v = heads_of("q", [0, 2, 1, 3]), heads_of("k", [0, 2, 3, 1]), heads_of("v", [0, 2, 1, 3])
    scores = w.op("Add", w.op("Mul", w.op("MatMul", q, k), "scale"), "mask")
    mixed = w.op("MatMul", w.op("Softmax", scores, axis=-1), v)
    joined = w.op("Reshape", w.op("Transpose", mixed, perm=[0, 2, 1, 3]), "join")
    return w.linear(joined, f"{name}.out", width, width)


def write_model(folder: pathlib.Path, layers: int, width: int, heads: int, words: int, tokens: int):
    w = Writer()
    w.constant("split", TensorProto.INT64, [4], [0, 0, heads, width // heads])
    w.constant("join", TensorProto.INT64, [3], [0, 0, width])
    w.constant("scale", TensorProto.FLOAT, [], [(width // heads) ** -0.5])
    w.constant("mask", TensorProto.FLOAT, [1, 1, tokens, tokens],
               [0.0 if column <= row else -1e9 for row in range(tokens) for column in range(tokens)])
    h = w.op("Gather", w.weight("embed.weight", words, width), "tokens")
    h = w.op("Add", h, w.weight("positions.weight", tokens, width))
    for i in range(layers):
        h = w.op("Add", h, attention(w, w.norm(h, f"h.{i}.ln1", width), f"h.{i}.attention", width))
        wide = w.op("Gelu", w.linear(w.norm(h, f"h.{i}.ln2", width), f"h.{i}.up", width, 4 * width))
        h = w.op("Add", h, w.linear(wide, f"h.{i}.down", 4 * width, width))
    h = w.norm(h, "norm", width)
    w.nodes.append(helper.make_node("MatMul", [h, w.weight("head.weight", width, words)], ["logits"], name="head"))
    graph = helper.make_graph(
        w.nodes, "gpt", [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", tokens])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", tokens, words])], w.initializers)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "model.onnx")
    with open(folder / "weights.bin", "wb") as data:
        data.truncate(w.bytes)
    return w


def status(process: int) -> dict:
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "VmHWM"))}


def measure(command: list) -> None:
    """Runs a command and prints its seconds and the most memory that was seen in steps of 5 ms."""
    start, most = time.perf_counter(), {"RssAnon": 0, "VmHWM": 0}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        pid, code, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        for key, value in status(process.pid).items():
            most[key] = max(most[key], value)
        time.sleep(0.005)
    seconds = time.perf_counter() - start
    # A process begins with what its parent held as its largest size, so that only a larger one is its own.
    print(f"{' '.join(command[1:])}\n    exit {os.waitstatus_to_exitcode(code)}: {seconds:.2f} s, {usage.ru_utime:.2f} s user, "
          f"{usage.ru_stime:.2f} s system, {most['VmHWM'] / 1e3:.0f} MB resident, {most['RssAnon'] / 1e3:.0f} MB anonymous; "
          f"largest process, or this one, {usage.ru_maxrss / 1e3:.0f} MB", flush=True)


def written(folder: pathlib.Path, data: pathlib.Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    own = sum(path.stat().st_size for path in files if not path.samefile(data))
    return f"    {own / 1e6:.1f} MB written, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in the folder"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("steps", nargs="+", choices=["inspect", "lint", "plan", "generate", "build"])
    parser.add_argument("--graphpipe", default=str(ROOT / "build/release/bin/graphpipe"))
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--planners", nargs="+", default=["auto"])
    parser.add_argument("--devices", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = write_model(folder, tokens=arguments.tokens, **SIZES[arguments.size])
        print(f"{model.parameters / 1e9:.2f} billion parameters, {model.count} nodes, "
              f"{(folder / 'model.onnx').stat().st_size / 1e6:.1f} MB of graph, {model.bytes / 1e9:.1f} GB of weights", flush=True)
        tool, onnx, plan, out = arguments.graphpipe, str(folder / "model.onnx"), str(folder / "plan.json"), folder / "out"
        for step in arguments.steps:
            if step == "plan":
                for planner in arguments.planners:
                    measure([tool, "plan", onnx, "--cluster", "default", "--devices", str(arguments.devices), "--batch", "16",
                             "--micro-batch", "2", "--loss", "cross_entropy:logits,labels,axis=2", "--planner", planner, "-o", plan])
            elif step == "generate":
                measure([tool, "generate", plan, "-o", str(out)])
                print(written(out, folder / "weights.bin"), flush=True)
            elif step == "build":
                measure([tool, "build", str(out)])
                print(written(out, folder / "weights.bin"), flush=True)
            else:
                measure([tool, step, onnx])


if __name__ == "__main__":
    main()
