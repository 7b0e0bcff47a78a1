"""F.cross_entropy(label_smoothing=...) as an exported program calls it, in words that PyTorch's exporter to ONNX keeps: of that call it
leaves the smoothing out."""

from __future__ import annotations

from typing import Any

NONE, MEAN = 0, 1  # of ATen's reductions


class _Writer:
    """Puts calls in front of a node of a graph, with the values that the exporter asks for."""

    def __init__(self, graph: Any, before: Any) -> None:
        self._graph, self._before = graph, before

    def __call__(self, target: Any, *operands: Any) -> Any:
        with self._graph.inserting_before(self._before):
            node = self._graph.call_function(target, operands)
        values = [each.meta["val"] if hasattr(each, "meta") else each for each in operands]
        node.meta = {**self._before.meta, "val": target(*values)}
        return node


def _of_classes(call: _Writer, scores: Any, label: Any, reduction: int, ignored: int, smoothing: float) -> Any:
    """With the labels smoothed by s, the likelihood loss of (1 - s) times the logarithms of the probabilities and s times their
    mean, whatever is ignored and however it is reduced."""
    import torch

    aten = torch.ops.aten
    value = scores.meta["val"]
    axes = range(value.ndim)
    if value.ndim > 2 and reduction != NONE:  # as one list of positions, which the exporter does not take apart
        scores = call(aten.reshape.default, call(aten.permute.default, scores, [0, *axes[2:], 1]), [-1, value.shape[1]])
        label = call(aten.reshape.default, label, [-1])
    logarithms = call(aten.log_softmax.int, scores, 1)
    # A mean, as the number of classes may be that of the samples: those of a contrastive loss are the other ones of the batch.
    spread = call(aten.mul.Tensor, call(aten.mean.dim, logarithms, [1], True), smoothing)
    smoothed = call(aten.add.Tensor, call(aten.mul.Tensor, logarithms, 1 - smoothing), spread)
    return call(aten.nll_loss_nd.default, smoothed, label, None, reduction, ignored)


def rewrite(exported: Any) -> None:
    """Weights of classes count otherwise in the two terms of smoothed labels, and probabilities are no indices: such calls stay, and the
    file's reader refuses them."""
    import torch

    graph = exported.graph
    for loss in [node for node in graph.nodes if node.target is torch.ops.aten.cross_entropy_loss.default]:
        given: tuple[Any, ...] = (*loss.args, *(None, MEAN, -100, 0.0)[len(loss.args) - 2:])
        scores, label, weight, reduction, ignored, smoothing = given
        is_plain = weight is None and not label.meta["val"].is_floating_point() and scores.meta["val"].ndim > 1
        if smoothing == 0 or not is_plain or loss.kwargs:
            continue
        loss.replace_all_uses_with(_of_classes(_Writer(graph, loss), scores, label, reduction, ignored, smoothing))
        graph.erase_node(loss)
