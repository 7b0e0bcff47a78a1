"""What no program on this core can beat: the products of a training step at the best rate that oneDNN or BLAS reaches here,
and the bytes of everything else at the bandwidth of a copy. Only Winograd's method needs fewer products than convolutions
are defined by.

The products are those of PyTorch's eager step (torch.utils.flop_counter); the bytes are the operands and results of all its
other operators that are not views, the optimizer's included.
"""

import math
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula


def fastest(call, rounds: int = 20) -> float:
    """Seconds of the fastest of some calls."""
    call()
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


@register_flop_formula(torch.ops.aten.mkldnn_rnn_layer)
def recurrent_flops(x, input_weight, recurrent_weight, *_, **__) -> int:
    """Of one layer of an LSTM by oneDNN: each weight meets every row of every step."""
    return 2 * x[0] * x[1] * (math.prod(input_weight) + math.prod(recurrent_weight))


@register_flop_formula(torch.ops.aten.mkldnn_rnn_layer_backward)
def recurrent_backward_flops(x, input_weight, recurrent_weight, *_, **__) -> int:
    return 2 * recurrent_flops(x, input_weight, recurrent_weight)


def best_flops_per_second() -> float:
    best = 0.0
    for rows, inner, columns in ((512, 256, 1024), (512, 768, 3072), (1024, 1024, 1024)):
        a, b = torch.randn(rows, inner), torch.randn(columns, inner)
        flops = 2 * rows * inner * columns
        best = max(best, flops / fastest(lambda: a @ b.t()))
        if torch.backends.mkldnn.is_available():
            best = max(best, flops / fastest(lambda: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")))
    return best


def bytes_per_second() -> float:
    source = torch.zeros(1 << 24)
    target = torch.zeros_like(source)
    return 2 * source.nbytes / fastest(lambda: target.copy_(source))


class Traffic(TorchDispatchMode):
    """Bytes that operators other than products and views read and write."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in flop_registry and not func.is_view:
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
            self.bytes += sum({(each.data_ptr(), each.nbytes): each.nbytes for each in tensors}.values())
        return result


def seconds(step) -> float:
    """Of a training step, which is called."""
    with FlopCounterMode(display=False) as products, Traffic() as traffic:
        step()
    return products.get_total_flops() / best_flops_per_second() + traffic.bytes / bytes_per_second()
