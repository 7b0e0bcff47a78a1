"""F.cross_entropy in words that PyTorch's exporter to ONNX keeps: of smoothed labels it leaves the smoothing out, and with probabilities
as labels it fixes the batch."""

from __future__ import annotations

from typing import Any


def _reduced(losses: Any, reduction: str) -> Any:
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def _of_probabilities(logarithms: Any, label: Any, weight: Any, reduction: str, smoothing: float) -> Any:
    """Weights of classes are no part of the divisor here, as PyTorch has it."""
    if weight is not None:
        logarithms = logarithms * weight.reshape([-1] + [1] * (logarithms.ndim - 2))
    losses = -(label * logarithms).sum(1)
    if smoothing:
        # A mean, as the number of classes may be that of the samples: those of a contrastive loss are the other ones of the batch.
        losses = losses * (1 - smoothing) - logarithms.mean(1) * smoothing
    return _reduced(losses, reduction)


def _of_weighted_classes(logarithms: Any, label: Any, weight: Any, reduction: str, ignored: int, smoothing: float) -> Any:
    """The class of the label has one weight, which is that of the divisor too; in the mean of the smoothed part each class has its own."""
    import torch

    counts = label != ignored
    own = weight[torch.where(counts, label, 0)] * counts
    likelihood = torch.nn.functional.nll_loss(logarithms, label, weight, ignore_index=ignored, reduction="none")
    spread = -(logarithms * weight.reshape([-1] + [1] * (logarithms.ndim - 2))).mean(1)
    spread = spread.masked_fill(~counts, 0)  # a product would be no number where an ignored row's scores are infinite
    losses = likelihood * (1 - smoothing) + spread * smoothing
    return losses.sum() / own.sum() if reduction == "mean" else _reduced(losses, reduction)


def _of_classes(scores: Any, label: Any, reduction: str, ignored: int, smoothing: float) -> Any:
    """With the labels smoothed by s, the likelihood loss of (1 - s) times the logarithms of the probabilities and s times their
    mean, whatever is ignored and however it is reduced."""
    import torch

    if scores.ndim > 2 and reduction != "none":  # as one list of positions, which the exporter does not take apart
        scores, label = scores.movedim(1, -1).reshape(-1, scores.shape[1]), label.reshape(-1)
    logarithms = scores.log_softmax(1)
    smoothed = logarithms * (1 - smoothing) + logarithms.mean(1, keepdim=True) * smoothing
    return torch.nn.functional.nll_loss(smoothed, label, ignore_index=ignored, reduction=reduction)


def _reduction_of(size_average: Any, reduce: Any) -> str:
    """What these two meant before F.cross_entropy had a reduction; each is True where it is not given."""
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def write_out(input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
              reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Any:
    """The arguments are those of F.cross_entropy. None: the exporter keeps this call, or PyTorch refuses it."""
    of_probabilities = target.is_floating_point()
    fits = target.ndim == input.ndim and target.shape[1:] == input.shape[1:] if of_probabilities else target.ndim == input.ndim - 1
    is_kept = not of_probabilities and label_smoothing == 0
    if size_average is not None or reduce is not None:
        reduction = _reduction_of(size_average, reduce)
    if is_kept or input.ndim < 2 or not fits or not 0 <= label_smoothing <= 1 or reduction not in ("none", "mean", "sum"):
        return None
    if of_probabilities:
        return _of_probabilities(input.log_softmax(1), target, weight, reduction, label_smoothing)
    if weight is not None:
        return _of_weighted_classes(input.log_softmax(1), target, weight, reduction, ignore_index, label_smoothing)
    return _of_classes(input, target, reduction, ignore_index, label_smoothing)
