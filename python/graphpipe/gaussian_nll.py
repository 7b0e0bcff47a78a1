"""F.gaussian_nll_loss in words that PyTorch's exporter to ONNX takes: it looks for a variance below zero, which data decide."""

from __future__ import annotations

import math
from typing import Any


def write_out(input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Any:
    """The arguments are those of F.gaussian_nll_loss. None: PyTorch may refuse the call, or a number is the variance, at which it does
    not look. The gradient of a variance below `eps` passes as if it were not clamped, as it does there."""
    sizes, own = list(input.shape), None if isinstance(var, float) else list(var.shape)
    if own is None or reduction not in ("none", "mean", "sum"):
        return None
    if own != sizes and own == sizes[:-1]:
        var, own = var.unsqueeze(-1), [*own, 1]
    if own != sizes and (len(own) != len(sizes) or sum(mine for size, mine in zip(sizes, own) if size != mine) != 1):
        return None
    kept = var.clamp(min=eps).detach() + (var - var.detach())
    losses = 0.5 * (kept.log() + (input - target) ** 2 / kept) + (0.5 * math.log(2 * math.pi) if full else 0.0)
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
