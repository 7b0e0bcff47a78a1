"""What a module knows and an ONNX file does not say: what is frozen, ties, padding rows, the module path of every
operator. It stands beside the model as MODEL.onnx.module.json (docs/files.md)."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Iterator

SCHEMA = "graphpipe.module/1"


def path_of(model: "os.PathLike[str] | str") -> Path:
    return Path(os.fspath(model) + ".module.json")


def _ties(module: Any) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _tables(module: Any) -> Iterator[tuple[str, Any]]:
    import torch

    for name, part in module.named_modules():
        if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            yield (f"{name}.weight" if name else "weight"), part


def check(module: Any) -> None:
    """Errors: ValueError for what no ONNX file holds and no program of ours does."""
    for name, part in _tables(module):
        if part.max_norm is not None or part.scale_grad_by_freq:
            what = "max_norm" if part.max_norm is not None else "scale_grad_by_freq"
            raise ValueError(f"{name}: {what} of an embedding would be lost, and the table would train in another way; "
                             "export the module without it")


def _module_paths(model: Any) -> list[dict[str, str]]:
    """Of every node the innermost module, from the scopes that PyTorch's exporter notes at it."""
    paths = []
    for node in model.graph.node:
        for entry in node.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                scopes = [scope for scope in _literal_list(entry.value)[:-1] if scope]
                if scopes:
                    paths.append({"node": node.name, "path": scopes[-1]})
    return paths


def _literal_list(text: str) -> list[str]:
    value = ast.literal_eval(text)
    return [str(item) for item in value] if isinstance(value, list) else []


def _read_names(graph: Any) -> set[str]:
    """What nodes read, and those in bodies of others (`torch.cond`): the exporter leaves out those that no output needs, but not
    their parameters."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input, *(_read_names(attribute.g) for attribute in node.attribute if attribute.HasField("g")))
    return names


def _padding_rows(module: Any, parameters: dict[str, Any], known: set[str]) -> list[dict[str, Any]]:
    rows = []
    for _, part in _tables(module):
        # A table that is tied may stand in the file under another of its names.
        names = [name for name, p in parameters.items() if p is part.weight and name in known]
        if part.padding_idx is not None and part.weight.requires_grad and names:
            rows.append({"parameter": names[0], "row": int(part.padding_idx)})
    return rows


def _unused(module: Any, read: set[str]) -> list[str]:
    """What the module has and computes nothing of, such as the layers of a backbone behind the one whose features are taken.
    Nothing is folded into other tensors by an export without optimisations, so what no node takes is unused."""
    tied = {name for names in _ties(module) if read.intersection(names) for name in names}
    entries = [*module.named_parameters(remove_duplicate=False),
               *((name, buffer) for name, buffer in module.named_buffers() if name.endswith(("running_mean", "running_var")))]
    return sorted(name for name, tensor in entries if tensor.is_floating_point() and name not in read and name not in tied)


def write(model: "os.PathLike[str] | str", module: Any) -> Path:
    """Writes the facts of `module` beside the model that was exported from it."""
    import onnx

    loaded = onnx.load(os.fspath(model), load_external_data=False)
    known = {tensor.name for tensor in loaded.graph.initializer} & _read_names(loaded.graph)
    parameters = {name: p for name, p in module.named_parameters(remove_duplicate=False) if p.is_floating_point()}
    facts = {
        "schema": SCHEMA,
        "model": hashlib.sha256(Path(model).read_bytes()).hexdigest(),
        "frozen": sorted(name for name, p in parameters.items() if name in known and not p.requires_grad),
        "padding_rows": _padding_rows(module, parameters, known),
        "ties": [{"names": names} for names in _ties(module)],
        "modules": _module_paths(loaded),
    }
    unused = _unused(module, known)
    if unused:
        facts["unused"] = unused
    path = path_of(model)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
