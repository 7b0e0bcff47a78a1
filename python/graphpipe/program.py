"""Compiled folders: run, verified, and their weights taken back into a module."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, Optional, Union

from .command import Flag, call
from .plan import Plan
from .results import PlanSummary, Run, Verification, parsed

PathLike = Union[str, "os.PathLike[str]"]


class Program:
    """A folder that `compile` or `build` made: the program that every device starts."""

    def __init__(self, folder: PathLike, summary: Optional[PlanSummary] = None, model: Optional[PathLike] = None) -> None:
        self.folder = Path(folder)
        self.plan = Plan(self.folder / "plan.json", summary, model)

    def run(self, **flags: Flag) -> Run:
        """`graphpipe run` with these flags: data="folder", steps=100, lr=0.01, save="weights.safetensors"..."""
        return parsed(Run, call("run", self.folder, **flags))

    def verify(self, **flags: Flag) -> Verification:
        """Whether the pipeline computes what one process computes; `passed` says it."""
        return parsed(Verification, call("verify", self.folder, **flags))

    def export(self, weights: PathLike, path: PathLike) -> Path:
        """FILE.onnx: the model with trained weights; FILE.safetensors: the weights under the module's names."""
        call("export", self.folder, weights=os.fspath(weights), output=os.fspath(path))
        return Path(path)

    def load_into(self, module: Any, weights: PathLike) -> None:
        """Puts weights that a run saved into the module that was exported, ties included. Parameters that the loss does not
        depend on were not part of the training and stay as they are.
        Errors: ValueError where the weights are of another module: they have names or shapes that it has not."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.export(weights, Path(folder) / "weights.safetensors")
            tensors = read_safetensors(path)
        _load(module, tensors)

    def __repr__(self) -> str:
        return f"Program({str(self.folder)!r}, {self.plan!r})"


def _load(module: Any, tensors: dict[str, Any]) -> None:
    import torch

    unknown = sorted(set(tensors) - set(module.state_dict()))
    if any(tensor.is_meta for tensor in module.state_dict().values()):
        raise ValueError("the module is on the device meta, and holds no values; make it with module.to_empty(device='cpu')")
    if unknown and all(re.fullmatch(r"embedding(_\d+)?|\w+_(rows|part)", name) for name in unknown):
        raise ValueError(f"{unknown} are rows of tables, or parts of parameters, of the module, which the exporter's optimiser had looked "
                         "up or cut out beforehand: export with optimize=False, and these train under their names")
    if unknown or not tensors:
        raise ValueError(f"the weights are not of this module: it lacks {unknown or 'all of them'}")
    shapes = {name: module.state_dict()[name].shape for name in tensors}
    for name, tensor in tensors.items():
        if not _may_be(shapes[name], tensor.shape):
            raise ValueError(f"{name}: the module has shape {tuple(shapes[name])}, the weights {tuple(tensor.shape)}")
    with torch.no_grad():
        module.load_state_dict({name: tensor.reshape(shapes[name]) for name, tensor in tensors.items()}, strict=False)


def _may_be(shape: Any, found: Any) -> bool:
    """Of a parameter that was expanded or reshaped beforehand a file does not say which axes of size 1 it had. One that has
    as many axes in another order is another layer's."""
    wanted, given = [[size for size in each if size != 1] for each in (shape, found)]
    return wanted == given and (shape == found or len(shape) != len(found))


def read_safetensors(path: PathLike) -> dict[str, Any]:
    """The tensors of a safetensors file, as torch tensors of their own memory."""
    import json
    import struct

    import torch

    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
             "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32,
             "U64": torch.uint64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool}
    data = Path(path).read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + header_bytes])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in types:
            raise ValueError(f"{name}: torch has no type for {entry['dtype']}")
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=types[entry["dtype"]]) if end > begin else \
            torch.empty(0, dtype=types[entry["dtype"]])
        out[name] = flat.reshape(entry["shape"])
    return out
