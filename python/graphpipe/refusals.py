"""Why PyTorch's exporter refuses a module, and what to write instead."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any, Optional


def _place_in_forward(error: Exception) -> str:
    """Where the module's code was when PyTorch's exporter gave up: "model.py:12 (if mask.any():)"; "" where nothing tells. The text of
    the error names a line of ours where it reads a call of torch."""
    import torch

    place = ""
    raised: Optional[BaseException] = error
    while raised is not None:
        frames = traceback.extract_tb(raised.__traceback__)
        ours = [index for index, frame in enumerate(frames) if Path(frame.filename) == Path(__file__).with_name("exporting.py")]
        for frame in frames[ours[-1] + 1:] if ours else frames:
            path = Path(frame.filename)
            if not {Path(torch.__file__).parent, Path(__file__).parent} & set(path.parents) and path.name != "contextlib.py":
                place = f"{path.name}:{frame.lineno} ({frame.line})"
        raised = raised.__cause__ or raised.__context__
    return place


def way_out(error: Exception, module: Any) -> str:
    """Of refusals whose words do not say what to do."""
    import torch

    story = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    averages = [name for name, part in module.named_modules()
                if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.momentum is None and part.running_mean is not None]
    if averages and "data-dependent" in story:
        return (f"{', '.join(averages)}: BatchNorm with momentum=None reads how many steps it has seen, which no ONNX file can say; "
                "give it a number, such as momentum=0.1. ")
    if "_detect_is_causal_mask" in story:
        return ("PyTorch looks into the mask to see whether it is causal; say that it need not: is_causal=False for a TransformerEncoder, "
                "tgt_is_causal=False for a TransformerDecoder, both src_ and tgt_ for a Transformer. ")
    if "Could not guard on data-dependent" in story or "Could not extract specialized integer from data-dependent" in story:
        place = _place_in_forward(error)
        return (f"forward decides{' at ' + place if place else ''} by values that data have, and a file holds one way alone; compute both, "
                "and choose by torch.where, or decide by shapes and by numbers of Python. ")
    if "transformers" in story and "Cannot view a tensor" in story:  # T5 and Swin of transformers 5
        return 'it mistakes how the results of fused attention lie in memory; make the model with attn_implementation="eager". '
    if "for the complex-valued input" in story:
        return "it does not know this operator for complex numbers; compute with their real and imaginary parts there (view_as_real). "
    if "transformers.grouped_mm" in story:  # Mixtral of transformers 5
        return 'it has no products of groups of experts; make the model with experts_implementation="batched_mm". '
    unknown = re.search(r"Error when translating node .*target=torch\.ops\.(?:aten|prims)\.(\w+)", str(error)) or re.fullmatch(
        r"aten\._?(\w+)\.\w+", str(error.__cause__))  # of which a size depends on data
    if unknown:
        others = {"kthvalue": ", x.sort(dim).values.select(dim, k - 1)", "hypot": ", (x * x + y * y).sqrt()",
                  "median": ", x.sort(dim).values.select(dim, (x.shape[dim] - 1) // 2)", "randperm": ", torch.rand(n).argsort()"}
        return (f"it has no operator for {unknown[1]}; compute the same by others of torch{others.get(unknown[1], '')}, or outside the module "
                "and give it as an input. ")
    place = _place_in_forward(error) if type(error).__name__ == "TorchExportError" else ""
    return f"forward fails at {place}: " if place else ""
