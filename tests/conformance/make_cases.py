"""Writes ONNX's own node tests into a folder: NAME/model.onnx, NAME/input_0.pb, NAME/output_0.pb, ...

Most tests give as an input what models hold as a constant: axes, shapes, weights. NAME/fixed.onnx is the model with all
inputs but the first as constants of the test's own values, NAME/constant.onnx the one with all inputs as constants. Of a
sequence its tensors are, and the model makes the sequence; an optional value is made likewise, or is absent. The tensors
of an output that is a sequence are files of their own, output_0_0.pb and so on, which the model calls NAME.0.

    python tests/conformance/make_cases.py FOLDER

Needs the onnx package of scripts/oracle. A line of FOLDER/cases.txt for each: its name and its relative and absolute
tolerance. Only the first data set of a test is taken; no node test has more.
"""

import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


# ONNX's expected values of these are a float32 transform themselves, off by 1.5e-6 where the exact one is 0: of the
# largest element, 45, that is less than one unit in the last place.
ABSOLUTE = {"test_dft_inverse": 2e-6, "test_dft_inverse_opset19": 2e-6}


def tensor_of(value, name):
    """The file says which of the model's inputs or outputs it is."""
    tensor = onnx.TensorProto()
    tensor.CopyFrom(value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value)))
    tensor.name = name
    return tensor


def write_value(path, value, name):
    """A tensor as a file, each of a sequence; an optional value that is absent has none."""
    if isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            write_value(path.with_name(f"{path.stem}_{number}.pb"), part, f"{name}.{number}")
    elif value is not None:
        path.write_bytes(tensor_of(value, name).SerializeToString())


def add_constant(graph, nodes, value, info):
    """Gives the graph a constant of this name: a tensor as an initializer, others by nodes that make them of tensors."""
    kind = info.type.optional_type.elem_type if info.type.HasField("optional_type") else info.type
    is_optional = info.type.HasField("optional_type")
    name = f"{info.name} value" if is_optional else info.name
    if kind.HasField("sequence_type") and value is not None:
        for number, part in enumerate(value):
            graph.initializer.add().CopyFrom(tensor_of(part, f"{info.name}.{number}"))
        parts = [f"{info.name}.{number}" for number in range(len(value))]
        element = {} if parts else {"dtype": kind.sequence_type.elem_type.tensor_type.elem_type}
        nodes.append(onnx.helper.make_node("SequenceConstruct" if parts else "SequenceEmpty", parts, [name], **element))
    elif value is not None:
        graph.initializer.add().CopyFrom(tensor_of(value, name))
    if is_optional:
        absent = {"type": kind} if value is None else {}
        nodes.append(onnx.helper.make_node("Optional", [] if value is None else [name], [info.name], **absent))


def fixed_model(model, inputs, kept):
    """The model with constants for all but the first so many inputs; None where that changes nothing, or cannot be."""
    infos = model.graph.input
    if len(inputs) != len(infos) or len(infos) <= kept:
        return None
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.input[kept:]
    nodes = []
    for info, value in zip(infos[kept:], inputs[kept:]):
        add_constant(fixed.graph, nodes, value, info)
    nodes.extend(fixed.graph.node)
    del fixed.graph.node[:]
    fixed.graph.node.extend(nodes)
    return fixed


def main(folder):
    warnings.simplefilter("ignore")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for case in sorted(collect_testcases(None), key=lambda case: case.name):
        if case.kind != "node" or case.model is None:
            continue
        place = folder / case.name
        place.mkdir(exist_ok=True)
        (place / "model.onnx").write_bytes(case.model.SerializeToString())
        lines.append(f"{case.name} {case.rtol:g} {ABSOLUTE.get(case.name, case.atol):g}\n")
        for inputs, outputs in case.data_sets[:1]:
            for name, kept in ("fixed", 1), ("constant", 0):
                if (fixed := fixed_model(case.model, inputs, kept)) is not None:
                    (place / f"{name}.onnx").write_bytes(fixed.SerializeToString())
            for kind, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
                for number, (value, info) in enumerate(zip(values, infos)):
                    write_value(place / f"{kind}_{number}.pb", value, info.name)
    (folder / "cases.txt").write_text("".join(lines))
    print(f"{len(lines)} node tests of onnx {onnx.__version__}")


if __name__ == "__main__":
    main(sys.argv[1])
