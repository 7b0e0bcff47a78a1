#!/usr/bin/env python3
"""Writes tests/data/op_reference.txt: what ONNX's reference evaluator gives for the examples of the op dictionary.

    build/dev/tests/write_op_cases json > cases.json
    python tests/data/make_op_reference.py cases.json

Needs onnx 1.23.2 and numpy. One line per case: name, number of outputs, then for each output its type, its shape
("-" for a scalar) and its elements. Rows that are no ONNX operator have a formula below, or 0 outputs: those are
gradient ops, which the tests reach through the gradients of their forward ops.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

OPSET = 21
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i16": np.int16,
         "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
NAMES = {np.dtype(kind): name for name, kind in NUMPY.items()}
# Attributes of ours that ONNX takes as inputs: their order, and the type of each.
AS_INPUTS = {
    "Reshape": [("shape", np.int64)],
    "Expand": [("shape", np.int64)],
    "Squeeze": [("axes", np.int64)],
    "Unsqueeze": [("axes", np.int64)],
    "Split": [("sizes", np.int64)],
    "Slice": [("starts", np.int64), ("ends", np.int64), ("axes", np.int64), ("steps", np.int64)],
    "Pad": [("pads", np.int64), ("value", None)],
    "Tile": [("repeats", np.int64)],
    "Clip": [("min", None), ("max", None)],
    "TopK": [("k", "list")],
    "CumSum": [("axis", np.int64)],
    "CumProd": [("axis", np.int64)],
    "Trilu": [("k", np.int64)],
    "Resize": [("roi", np.float32), ("scales", np.float32), ("sizes", np.int64)],
    "Dropout": [("ratio", np.float32), ("training_mode", np.bool_)],
    "OneHot": [("depth", np.int64), ("values", "to")],
}
AS_INPUTS.update({"Reduce" + kind: [("axes", np.int64)] for kind in
                  "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()})


def array(spec):
    return np.array(spec["values"], dtype=NUMPY[spec["dtype"]]).reshape(spec["shape"])


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def cross_entropy(logits, labels, attributes):
    axis = attributes.get("axis", 1)
    rows = np.moveaxis(logits.astype(np.float64), axis, -1).reshape(-1, logits.shape[axis])
    labels = labels.reshape(-1)
    counted = labels != attributes.get("ignore_index", -100)
    log_probabilities = np.log(softmax(rows, -1))
    return -sum(log_probabilities[i, labels[i]] for i in np.flatnonzero(counted))


def contrastive(x):
    x = x.astype(np.float64)
    mean = lambda axis: -np.mean(np.diag(np.log(softmax(x, axis))))
    return len(x) * (mean(0) + mean(1)) / 2


def linear(x, weight, turned):
    return x.astype(np.float64) @ (weight.T if turned else weight)


def attention(inputs, attributes):
    """The result, and the logarithm of each row's sum of exponentials."""
    q, k, v = (x.astype(np.float64) for x in inputs[:3])
    if q.ndim > 3:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = attributes["scale"] * q @ np.swapaxes(k, -1, -2)
    if len(inputs) > 3 and inputs[3] is not None:
        scores = scores + inputs[3]
    if attributes.get("causal", 0):
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return [(softmax(scores, -1) @ v).astype(np.float32),
            np.log(np.exp(scores).sum(axis=-1)).astype(np.float32)]


def rotary(x, cosine, sine):
    first, second = np.split(x.astype(np.float64), 2, -1)
    return (x * cosine + np.concatenate([-second, first], -1) * sine).astype(np.float32)


def dft(x, attributes):
    """numpy's transforms; the reference evaluator has no one-sided inverse of another length."""
    axis, length = attributes["axis"], attributes["dft_length"]
    inverse, onesided = attributes["inverse"], attributes["onesided"]
    x = x.astype(np.float64)
    signal = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    if onesided and inverse:
        return np.fft.irfft(signal, length, axis)[..., None]
    result = (np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft)(signal, length, axis)
    return np.stack([result.real, result.imag], -1)


# What they draw is ours to choose; the tests check them by other laws.
RANDOM = {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike"}

# Further outputs are what our gradients need, not ONNX's: indices within a plane, statistics of the batch.
ONE_OUTPUT = {"MaxPool", "BatchNormalization"}

# Ops of ours with a meaning that is not ONNX's, or not in this form.
FORMULAS = {
    "Linear": lambda x, a: (linear(x[0], x[1], a["transB"]) + (x[2] if len(x) > 2 else 0)).astype(np.float32),
    "LinearGradInput": lambda x, a: linear(x[0], x[1], not a["transB"]).astype(np.float32),
    "Full": lambda x, a: np.full(a["shape"], a.get("value", 0), NUMPY[a.get("to", "f32")]),
    "Iota": lambda x, a: (np.arange(a["shape"][0]) * a.get("delta", 1) + a.get("start", 0)).astype(
        NUMPY[a.get("to", "f32")]),
    "Rotary": lambda x, a: rotary(*x),
    "HardTanh": lambda x, a: np.clip(x[0], np.float32(a["min"]), np.float32(a["max"])),
    "Silu": lambda x, a: (x[0] / (1 + np.exp(-x[0].astype(np.float64)))).astype(np.float32),
    "Scale": lambda x, a: x[0] * np.float32(a["factor"]),
    "ScaleBySamples": lambda x, a: x[0] * np.float32(5),
    "ScaleLossTerm": lambda x, a: x[0] * x[1][a["term"]],
    "CrossEntropyLossSum": lambda x, a: np.float32(cross_entropy(x[0], x[1], a)),
    "MeanSquaredErrorSum": lambda x, a: np.float32(((x[0].astype(np.float64) - x[1]) ** 2).sum()),
    "BceWithLogitsSum": lambda x, a: np.float32(
        (np.logaddexp(0, x[0].astype(np.float64)) - x[0].astype(np.float64) * x[1]).sum()),
    # The reference evaluator drops an axis of rank 3.
    "Detach": lambda x, a: x[0],
    "Gate": lambda x, a: x[0],
    "GlobalMaxPool": lambda x, a: x[0].max(axis=tuple(range(2, x[0].ndim)), keepdims=True),
    "NumberPlaces": lambda x, a: (np.cumsum(x[0], 1, dtype=np.int64) - 1) * x[0],
    "BitCast": lambda x, a: x[0].view(NUMPY[a["to"]]),
    "DFT": lambda x, a: dft(x[0], a).astype(np.float32),
    "Frames": lambda x, a: np.moveaxis(np.lib.stride_tricks.sliding_window_view(x[0], a["length"], a["axis"]), -1,
                                       a["axis"] + 1)[(slice(None),) * a["axis"] + (slice(None, None, a["step"]),)],
    "ContrastiveLossSum": lambda x, a: np.float32(contrastive(x[0])),
}


def run_onnx(case):
    op, attributes = case["op"], dict(case["attributes"])
    feeds, names = {}, []

    def add(value):
        names.append(f"x{len(names)}" if value is not None else "")
        if value is not None:
            feeds[names[-1]] = value

    for spec in case["inputs"]:
        add(None if spec is None else array(spec))
    to = NUMPY[attributes.pop("to", "f32")] if op == "OneHot" else None
    if op == "OneHot":
        attributes["values"] = [attributes.pop("off", 0.0), attributes.pop("on", 1.0)]
    for name, kind in AS_INPUTS.get(op, []):
        kind = to if kind == "to" else kind
        value = attributes.pop(name, None)
        if kind == "list":
            value, kind = [value], np.int64
        add(None if value is None else np.array(value, dtype=kind or feeds["x0"].dtype))
    while names and not names[-1]:
        names.pop()
    if op == "Cast":
        attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(NUMPY[attributes["to"]]))
    since = onnx.defs.get_schema(op, OPSET).since_version if onnx.defs.has(op, OPSET, "") else None
    opset = OPSET if since else onnx.defs.get_schema(op).since_version
    outputs = [f"y{i}" for i in range(case["outputs"])]
    most = onnx.defs.get_schema(op, opset).max_output
    node = helper.make_node(op, names, outputs[:most], **attributes)
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for name, value in feeds.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs[:most]]
    graph = helper.make_graph([node], "case", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, feeds)


def tensor_text(value):
    value = np.asarray(value)
    shape = ",".join(map(str, value.shape)) or "-"
    elements = " ".join(f"{x:.9g}" if value.dtype.kind == "f" else str(int(x)) for x in value.reshape(-1))
    return f"{NAMES[value.dtype]} {shape} {elements}".rstrip()


def conv_transpose_by_group(case):
    """The reference evaluator does not run groups of a ConvTranspose: each is a case of its own."""
    x, w = array(case["inputs"][0]), array(case["inputs"][1])
    groups = case["attributes"]["group"]
    parts = []
    for xs, ws in zip(np.split(x, groups, axis=1), np.split(w, groups, axis=0)):
        attributes = {**case["attributes"], "group": 1}
        inputs = [{"dtype": "f32", "shape": v.shape, "values": v.reshape(-1)} for v in (xs, ws)]
        parts.append(run_onnx({**case, "attributes": attributes, "inputs": inputs})[0])
    result = np.concatenate(parts, axis=1)
    if len(case["inputs"]) > 2 and case["inputs"][2] is not None:
        result += array(case["inputs"][2]).reshape((1, -1) + (1,) * (result.ndim - 2))
    return [result]


def lrn_of_rank_4(case):
    """The reference evaluator's LRN takes rank 4 only; trailing axes of size 1 change nothing."""
    spec = case["inputs"][0]
    padded = {**spec, "shape": spec["shape"] + [1] * (4 - len(spec["shape"]))}
    return [run_onnx({**case, "inputs": [padded]})[0].reshape(spec["shape"])]


def pad_with_cuts(case):
    """The reference evaluator does not know negative pads: rows are cut first."""
    attributes, rank = case["attributes"], len(case["inputs"][0]["shape"])
    pads = attributes["pads"]
    cut = tuple(slice(max(-pads[i], 0), size - max(-pads[i + rank], 0))
                for i, size in enumerate(case["inputs"][0]["shape"]))
    x = array(case["inputs"][0])[cut]
    spec = {"dtype": "f32", "shape": x.shape, "values": x.reshape(-1)}
    return run_onnx({**case, "inputs": [spec], "attributes": {**attributes, "pads": [max(p, 0) for p in pads]}})


def one_hot_of_bools(case):
    """The reference evaluator does not take values of bool: 0 and 1 are cast."""
    return [run_onnx({**case, "attributes": {**case["attributes"], "to": "i64"}})[0].astype(np.bool_)]


def regions_per_sample(case):
    """ONNX names the sample of each region."""
    attributes = dict(case["attributes"])
    each, samples = attributes.pop("per_sample"), case["inputs"][0]["shape"][0]
    of = {"dtype": "i64", "shape": [samples * each], "values": [row // each for row in range(samples * each)]}
    return run_onnx({**case, "inputs": [*case["inputs"][:2], of], "attributes": attributes})


def results_of(case):
    results = all_results_of(case)
    return results[:1] if case["op"] in ONE_OUTPUT else results


def all_results_of(case):
    if case["op"] in RANDOM:
        return []
    if case["op"] == "ConvTranspose" and case["attributes"].get("group", 1) > 1:
        return conv_transpose_by_group(case)
    if case["op"] == "Pad" and min(case["attributes"]["pads"]) < 0:
        return pad_with_cuts(case)
    if case["op"] == "OneHot" and case["attributes"].get("to") == "bool":
        return one_hot_of_bools(case)
    if case["op"] == "RoiAlign" and "per_sample" in case["attributes"]:
        return regions_per_sample(case)
    if case["op"] == "LRN" and len(case["inputs"][0]["shape"]) < 4:
        return lrn_of_rank_4(case)
    if case["op"] == "Attention":
        return attention([None if spec is None else array(spec) for spec in case["inputs"]], case["attributes"])
    if case["op"] in FORMULAS:
        inputs = [None if spec is None else array(spec) for spec in case["inputs"]]
        return [FORMULAS[case["op"]](inputs, case["attributes"])]
    return run_onnx(case) if onnx.defs.has(case["op"]) else []


def main():
    folder = pathlib.Path(__file__).parent
    lines = [f"# Written by make_op_reference.py with onnx {onnx.__version__}"]
    failures = []
    for case in json.load(open(sys.argv[1])):
        try:
            results = results_of(case)
        except Exception as error:  # every case is reported, not only the first
            failures.append(f"{case['name']}: {type(error).__name__} {str(error)[:200]}")
            continue
        lines.append(" ".join([case["name"], str(len(results)), *map(tensor_text, results)]))
    (folder / "op_reference.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 1} cases")
    for failure in failures:
        print("failed:", failure)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
