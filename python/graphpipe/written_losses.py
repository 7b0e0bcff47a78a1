"""Losses of torch.nn.functional that are exported in other words than its own."""

from __future__ import annotations

from typing import Any

from . import cross_entropy, gaussian_nll


def written_out() -> Any:
    """While it is entered, calls that the exporter would not keep, or would refuse, are written out."""
    import torch

    functions: dict[Any, Any] = {torch.nn.functional.cross_entropy: cross_entropy.write_out, torch.nn.functional.gaussian_nll_loss: gaussian_nll.write_out}

    class WritesOut(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            written = functions[function](*args, **(kwargs or {})) if function in functions else None
            return function(*args, **(kwargs or {})) if written is None else written

    return WritesOut()
