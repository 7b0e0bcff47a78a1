"""Calls of an exported program for which PyTorch's exporter to ONNX has no operator, or another than the call's, in words that it
knows."""

from __future__ import annotations

from typing import Any, Callable

LARGE = 25  # rows from which on PyTorch computes distances by a product


class Writer:
    """Puts calls in front of a node of a graph, with the values that the exporter asks for."""

    def __init__(self, graph: Any, before: Any) -> None:
        self._graph, self._before = graph, before

    def __call__(self, target: Any, *operands: Any, **options: Any) -> Any:
        import torch

        with self._graph.inserting_before(self._before):
            node = self._graph.call_function(target, operands, options)
        values = torch.fx.node.map_arg(operands, lambda each: each.meta["val"])
        node.meta = {**self._before.meta, "val": target(*values, **options)}
        return node


def _but_of_zeros(call: Writer, value: Any, function: Callable[[Any], Any]) -> Any:
    """The function of what is not zero; where it is zero, zero with a gradient of zero."""
    import torch

    aten = torch.ops.aten
    is_zero = call(aten.eq.Scalar, value, 0.0)
    found = function(call(aten.masked_fill.Scalar, value, is_zero, 1.0))
    return call(aten.masked_fill.Scalar, found, is_zero, 0.0)


def _distances(call: Writer, node: Any) -> Any:
    """torch.cdist, with the gradient of zero that it has where two rows are equal."""
    import torch

    aten = torch.ops.aten
    given: tuple[Any, ...] = (*node.args, *(2.0, None)[len(node.args) - 2:])
    rows, columns, power, mode = given
    sizes = [each.meta["val"].shape[-2] for each in (rows, columns)]
    is_large = any(isinstance(size, int) and size > LARGE for size in sizes)
    if power != 2 or mode == 2 or not (is_large or mode == 1):
        difference = call(aten.sub.Tensor, call(aten.unsqueeze.default, rows, -2), call(aten.unsqueeze.default, columns, -3))
        if not 0 < power < 1:
            return call(aten.linalg_vector_norm.default, difference, power, [-1])
        # The slopes of these powers have no bound near zero.
        powers = _but_of_zeros(call, call(aten.abs.default, difference), lambda size: call(aten.pow.Tensor_Scalar, size, power))
        return _but_of_zeros(call, call(aten.sum.dim_IntList, powers, [-1]),
                             lambda total: call(aten.pow.Tensor_Scalar, total, 1 / power))
    squares = [call(aten.sum.dim_IntList, call(aten.mul.Tensor, each, each), [-1], True) for each in (rows, columns)]
    both = call(aten.add.Tensor, squares[0], call(aten.transpose.int, squares[1], -2, -1))
    product = call(aten.matmul.default, rows, call(aten.transpose.int, columns, -2, -1))
    found = call(aten.clamp_min.default, call(aten.sub.Tensor, both, call(aten.mul.Tensor, product, 2.0)), 0.0)
    return _but_of_zeros(call, found, lambda squared: call(aten.sqrt.default, squared))


def _remainder(call: Writer, node: Any) -> Any:
    """By a number that depends on the batch. It may be a fraction where the value has integers: the result is what tells the type."""
    import torch

    aten, of_type = torch.ops.aten, node.meta["val"].dtype
    value, divisor = node.args
    if value.meta["val"].dtype != of_type:
        value = call(aten._to_copy.default, value, dtype=of_type)
    return call(aten.remainder.Tensor, value, call(aten.full_like.default, value, divisor))


def _extremum(call: Writer, node: Any) -> Any:
    """torch.fmax and fmin: the first one where they are equal, which alone has a gradient there."""
    import torch

    aten, of_type = torch.ops.aten, node.meta["val"].dtype
    first, second = (each if each.meta["val"].dtype == of_type else call(aten._to_copy.default, each, dtype=of_type)
                     for each in node.args)
    is_first = call(aten.ge.Tensor if node.target is aten.fmax.default else aten.le.Tensor, first, second)
    if of_type.is_floating_point:
        is_first = call(aten.logical_or.default, is_first, call(aten.isnan.default, second))
    return call(aten.where.self, is_first, first, second)


def _products(call: Writer, node: Any) -> Any:
    """torch.cumprod: each element times the one before it, then times the one two before, four before and so on, which has its gradient
    where there are zeros, too. None: as it is, along the batch."""
    import torch

    aten, of_type = torch.ops.aten, node.meta["val"].dtype
    value, axis = node.args[:2]
    shape = value.meta["val"].shape
    size = shape[axis] if shape else 1
    if not isinstance(size, int):
        return None
    found = value if value.meta["val"].dtype == of_type else call(aten._to_copy.default, value, dtype=of_type)
    reach = 1
    while reach < size:
        ones = call(aten.full_like.default, call(aten.slice.Tensor, found, axis, 0, reach), 1.0)
        before = call(aten.cat.default, [ones, call(aten.slice.Tensor, found, axis, 0, size - reach)], axis)
        found = call(aten.mul.Tensor, found, before)
        reach *= 2
    return found if found is not value else call(aten.clone.default, value)


def _attention_mask(call: Writer, mask: Any, sizes: "list[int]") -> Any:
    """Of all heads of several axes as one; `sizes` are those axes of the queries."""
    import torch

    aten = torch.ops.aten
    rank = mask.meta["val"].ndim
    if rank <= 2:
        return mask
    for _ in range(len(sizes) + 3 - rank):
        mask = call(aten.unsqueeze.default, mask, 0)
    own = list(mask.meta["val"].shape[1:-2])
    if not sizes:
        return call(aten.unsqueeze.default, mask, 1)
    if own != sizes and any(size != 1 for size in own):
        mask = call(aten.expand.default, mask, [-1, *sizes, -1, -1])
    return call(aten.flatten.using_ints, mask, 1, -3)


def _attention(call: Writer, node: Any) -> Any:
    """The exporter knows scaled_dot_product_attention of four axes alone: heads of several axes become one, and of none one. None: as it
    is, for axes that would have to be broadcast."""
    import torch

    aten = torch.ops.aten
    operands, mask = list(node.args[:3]), node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    shapes = [each.meta["val"].shape for each in operands]
    rank, sizes = len(shapes[0]), list(shapes[0][1:-2])
    are_alike = all(len(shape) == rank and list(shape[1:-2]) == sizes for shape in shapes)
    is_known = all(isinstance(size, int) for size in sizes) and (mask is None or mask.meta["val"].ndim <= max(rank, 2))
    if rank in (2, 4) or not are_alike or not is_known or node.kwargs.get("enable_gqa"):
        return None
    one_axis = [call(aten.flatten.using_ints, each, 1, -3) if sizes else call(aten.unsqueeze.default, each, 1) for each in operands]
    options = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
    one_mask = None if mask is None else _attention_mask(call, mask, sizes)
    found = call(node.target, *one_axis, one_mask, *node.args[4:], **options)
    return call(aten.unflatten.int, found, 1, sizes) if sizes else call(aten.squeeze.dim, found, 1)


def _drawn(call: Writer, like: Any, low: float, high: float) -> Any:
    """Numbers between the two, of the shape of a value."""
    import torch

    aten = torch.ops.aten
    return call(aten.add.Tensor, call(aten.mul.Tensor, call(aten.rand_like.default, like), high - low), low)


def _uniform(call: Writer, node: Any) -> Any:
    """The exporter knows numbers between 0 and 1 alone. They are written in place, as the call does: others read them there."""
    import torch

    given: tuple[Any, ...] = (*node.args, *(0.0, 1.0)[len(node.args) - 1:])
    value, low, high = given
    drawn = _drawn(call, value, node.kwargs.get("from", low), node.kwargs.get("to", high))
    return call(torch.ops.aten.copy_.default, value, drawn)


def _random_slopes(call: Writer, node: Any) -> Any:
    """F.rrelu while it trains."""
    import torch

    aten = torch.ops.aten
    given: tuple[Any, ...] = node.args
    value, low, high = given[:3]
    sloped = call(aten.mul.Tensor, value, _drawn(call, value, low, high))
    found = call(aten.where.self, call(aten.le.Scalar, value, 0.0), sloped, value)  # at zero as well, where only gradients tell
    return found if node.target is aten.rrelu.default else call(aten.copy_.default, value, found)


def rewrite(exported: Any) -> None:
    """Those in branches of torch.cond and bodies of loops, too. Errors: ValueError for a call that the exporter writes otherwise than
    PyTorch computes it."""
    import torch

    for part in exported.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _rewrite_calls(part.graph)
            part.recompile()


def _rewrite_calls(graph: Any) -> None:
    import torch

    aten = torch.ops.aten
    for node in list(graph.nodes):
        made = None
        if node.target is aten.multilabel_margin_loss.default:
            raise ValueError("PyTorch's exporter writes multilabel_margin_loss otherwise than PyTorch computes it (it counts what stands "
                             "behind the first -1 of the labels); write the loss by other operators, such as multilabel_soft_margin_loss")
        if node.target in (aten.cdist.default, aten._cdist_forward.default):
            made = _distances(Writer(graph, node), node)
        elif node.target is aten.uniform_.default:
            made = _uniform(Writer(graph, node), node)
        elif node.target in (aten.rrelu.default, aten.rrelu_.default) and len(node.args) > 3 and node.args[3]:
            made = _random_slopes(Writer(graph, node), node)
        elif node.target is aten.remainder.Scalar and isinstance(node.args[1], torch.fx.Node):
            made = _remainder(Writer(graph, node), node)
        elif node.target in (aten.fmax.default, aten.fmin.default):
            made = _extremum(Writer(graph, node), node)
        elif node.target is aten.cumprod.default:
            made = _products(Writer(graph, node), node)
        elif node.target is aten.scaled_dot_product_attention.default:
            made = _attention(Writer(graph, node), node)
        if made is not None:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
