"""Lists of all samples of a batch that forward puts together again at once, as LLaVA in transformers does with the features of
pictures. A list has as many items as the example has samples, so PyTorch's exporter would fix the batch."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping

REFUSAL = ("forward takes the samples of the batch one by one, in a list of as many as the example has; compute all of them at once, "
           "as f(x) in place of torch.stack([f(sample) for sample in x])")


class Samples:
    """The only item of such a list: all samples, of which nothing but torch.cat and torch.stack of the list can be computed."""

    def __init__(self, values: Any, refused: "list[ValueError]") -> None:
        self._values, self._refused = values, refused

    def _refuse(self) -> ValueError:
        self._refused.append(ValueError(REFUSAL))
        return self._refused[-1]

    def __getattr__(self, name: str) -> Any:
        raise self._refuse()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        import torch

        options = options or {}
        listed = [*arguments, *options.values()][0]
        samples = next((each for each in torch.utils._pytree.tree_leaves((arguments, options), is_leaf=lambda v: isinstance(v, cls))
                        if isinstance(each, cls)))
        axis = arguments[1] if len(arguments) > 1 else options.get("dim", options.get("axis", 0))
        is_list = isinstance(listed, (list, tuple)) and len(listed) == 1 and listed[0] is samples and axis == 0
        if is_list and function is torch.stack:
            return samples._values
        if is_list and function in (torch.cat, torch.concat, torch.concatenate):
            return samples._values.flatten(0, 1)
        raise samples._refuse()


def _refusing() -> Any:
    def refuse(self: Samples, *_: Any) -> Any:
        raise self._refuse()

    return refuse


# Python looks for these in the class alone.
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    for _side in ("", "r"):
        setattr(Samples, f"__{_side}{_name}__", _refusing())
for _name in ("neg", "invert", "abs", "eq", "ne", "lt", "le", "gt", "ge", "getitem", "len", "iter", "bool"):
    setattr(Samples, f"__{_name}__", _refusing())


@contextlib.contextmanager
def kept_whole(refused: "list[ValueError]") -> "Iterator[list[Any]]":
    """While the exporter reads a module. Yields what was listed; what is computed of single samples is added to `refused`."""
    import torch

    listed: "list[Any]" = []
    begun: "list[Any]" = []  # whose items are about to be taken
    iterate, length = torch.Tensor.__iter__, torch.Tensor.__len__

    def items(samples: Samples) -> Any:
        begun.clear()
        yield samples

    def take_whole(self: Any) -> Any:
        if self.ndim == 0 or isinstance(self.shape[0], int):
            return iterate(self)
        begun[:] = [self]
        listed.append(Samples(self, refused))
        return items(listed[-1])

    def count(self: Any) -> Any:
        if begun and begun[0] is self:
            raise TypeError  # list() asks how long it will be, which would fix the batch, and goes on without
        return length(self)

    # What forward returns may hold such a list.
    if Samples not in torch.utils._pytree.SUPPORTED_NODES:
        torch.utils._pytree.register_pytree_node(Samples, lambda samples: ([samples._values], samples._refused),
                                                 lambda values, refused: Samples(values[0], refused))
    torch.Tensor.__iter__, torch.Tensor.__len__ = take_whole, count
    try:
        yield listed
    finally:
        torch.Tensor.__iter__, torch.Tensor.__len__ = iterate, length


def check(module: Any, inputs: "Mapping[str, Any]", exported: Any) -> None:
    """Compares what the exported program and forward compute of the example: forward may have counted the items of a list. Buffers are left
    as they were. Errors: ValueError where they differ."""
    import torch

    def numbers(compute: Any) -> Any:
        torch.manual_seed(0)
        results = torch.utils._pytree.tree_leaves(compute(**inputs))
        return torch.cat([each.detach().double().flatten() for each in results if isinstance(each, torch.Tensor)])

    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.no_grad(), torch.random.fork_rng():
        found, wanted = numbers(exported.module()), numbers(module)
        for buffer, before in kept:
            buffer.copy_(before)
    if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(REFUSAL)
