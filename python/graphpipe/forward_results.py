"""What a module's forward returns: the names of its results in the file, and no caches among them."""

import collections
import contextlib
import itertools
from typing import Any, Iterator, Optional, Sequence


@contextlib.contextmanager
def without_caches(module: Any) -> Iterator[None]:
    """Models of transformers that generate return what a later call for the next word would need, unless their
    configuration says otherwise. Trainings never do, and PyTorch's exporter refuses the type."""
    # Parts share configurations; each is here once, so that it gets back what it had.
    configs = [getattr(part, "config", None) for part in module.modules()]
    found: "dict[int, Any]" = {id(config): config for config in configs if getattr(config, "use_cache", None) is True}
    try:
        for config in found.values():
            config.use_cache = False
        yield
    finally:
        for config in found.values():
            config.use_cache = True


def _keys(spec: Any) -> "list[Optional[str]]":
    """Of a dict, transformers' outputs among them, of a defaultdict and of a named tuple."""
    keys = getattr(spec.context, "_fields", spec.context)
    if spec.type is collections.defaultdict:
        keys = keys[1]  # behind the default
    is_named = isinstance(keys, (list, tuple)) and len(keys) == spec.num_children and all(isinstance(key, str) for key in keys)
    return list(keys) if is_named else [None] * spec.num_children


def _names(program: Any) -> "list[Optional[str]]":
    """The keys of what forward returns, for each result that is a tensor; None where there is no key."""
    spec = program.call_spec.out_spec
    keys = _keys(spec)
    names: "list[Optional[str]]" = []
    for key, child in zip(keys, spec.children()):
        names += [key] if child.is_leaf() else [key and f"{key}_{leaf}" for leaf in range(child.num_leaves)]
    results = [output for output in program.graph_signature.output_specs if output.kind.name == "USER_OUTPUT"]
    return [name for name, output in zip(names, results) if type(output.arg).__name__ != "ConstantArgument"]


def _set_apart(graph: Any, index: int) -> None:
    """Makes an output a value of its own, which may have a name of its own."""
    from onnxscript import ir

    value = graph.outputs[index]
    copy = ir.Node("", "Identity", [value])
    graph.append(copy)
    copy.outputs[0].shape, copy.outputs[0].type = value.shape, value.type
    graph.outputs[index] = copy.outputs[0]


def _set_repeated_apart(graph: Any) -> None:
    for index, value in enumerate(graph.outputs):
        if any(value is other for other in graph.outputs[:index]):
            _set_apart(graph, index)


def _given_names(graph: Any) -> "set[str]":
    """Of inputs and parameters."""
    return {value.name for part in (graph, *graph.subgraphs()) for value in (*part.inputs, *part.initializers.values())}


def _rename(graph: Any, chosen: "dict[str, Any]") -> None:
    """Values within the graph lose a name that an output takes: left as it is, it could be the key of another output."""
    made = [value for node in graph.all_nodes() for value in node.outputs]
    taken = _given_names(graph) | set(chosen) | {value.name for value in made}
    for value in made:
        if value.name in chosen and value is not chosen[value.name]:
            value.name = next(name for name in (f"{value.name}_{i}" for i in itertools.count(1)) if name not in taken)
            taken.add(value.name)
    for name, value in chosen.items():
        value.name = name


def name_as(written: Any, names: Sequence[str]) -> None:
    """Gives the first outputs these names; inputs and parameters that forward returns keep theirs. Errors: ValueError for names that
    outputs cannot have, and for more names than outputs."""
    graph = written.model.graph
    _set_repeated_apart(graph)
    if len(names) > len(graph.outputs):
        raise ValueError(f"output_names has {len(names)} names, and forward returns {len(graph.outputs)} "
                         f"tensor{'s' if len(graph.outputs) != 1 else ''}; leave {names[len(graph.outputs)]!r} out")
    given, chosen = _given_names(graph), {}
    for index, name in zip(range(len(graph.outputs)), names):
        if graph.outputs[index].producer() is None:
            if graph.outputs[index].name == name:
                continue
            _set_apart(graph, index)
        if name in given or name in chosen:
            raise ValueError(f"output_names has {name!r}, which {'an input or a parameter' if name in given else 'another output'} is "
                             "called; choose another name")
        chosen[name] = graph.outputs[index]
    _rename(graph, chosen)


def name_outputs(written: Any) -> None:
    """Names the outputs of the exporter's program as forward does, except for inputs and parameters that it returns."""
    graph, names = written.model.graph, _names(written.exported_program)
    _set_repeated_apart(graph)
    if len(names) != len(graph.outputs):
        return
    given = _given_names(graph)
    chosen: "dict[str, Any]" = {}
    for value, name in zip(graph.outputs, names):
        if name and name not in given and name not in chosen and value.producer() is not None:
            chosen[name] = value
    _rename(graph, chosen)
