"""Gradients that a module computes by a rule of its own (`torch.autograd.Function`, hooks), of which no ONNX file says anything."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping


class Seen:
    """What forward used while it was watched."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []  # of Functions: the class, what its forward got but for ctx
        self.hooks = False


class _Context:
    """Stands in for the ctx of a Function whose forward is run as ordinary operators."""

    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *_: Any) -> None:
        pass

    save_for_forward = mark_dirty = mark_non_differentiable = set_materialize_grads = save_for_backward


def check_hooks(module: Any) -> None:
    """Errors: ValueError where a parameter or a part has a hook on its gradient."""
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ValueError(f"the parameter {name!r} has a hook on its gradient, which no file holds: it would train in another "
                             "way; remove the hook (freeze parts of a parameter by making them a buffer)")
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise ValueError(f"{name or type(part).__name__} has a hook on its backward, which no file holds; remove the hook")


def _functions(base: Any) -> Iterator[Any]:
    """All Functions with a forward of their own, but for those of PyTorch."""
    for function in base.__subclasses__():
        if not function.__module__.startswith("torch.") and "forward" in function.__dict__:
            yield function
        yield from _functions(function)


def _has_context(function: Any) -> bool:
    """Whether forward takes ctx; else setup_context does."""
    import torch

    return function.setup_context is torch.autograd.Function.setup_context


@contextlib.contextmanager
def watched() -> Iterator[Seen]:
    """Notes which Functions run, and whether hooks are put on values. Modules keep `apply` itself under other names, so it is
    their forward that is replaced."""
    import torch

    seen = Seen()
    hook = torch.Tensor.register_hook
    forwards = {function: function.__dict__["forward"] for function in _functions(torch.autograd.Function)}

    def noting(function: Any) -> Any:
        forward = function.forward

        def note(*arguments: Any, **options: Any) -> Any:
            seen.calls.append((function, arguments[1:] if _has_context(function) else arguments))
            return forward(*arguments, **options)

        return staticmethod(note)

    def noting_hook(self: Any, function: Any) -> Any:
        seen.hooks = True
        return hook(self, function)

    for function in forwards:
        setattr(function, "forward", noting(function))
    setattr(torch.Tensor, "register_hook", noting_hook)
    try:
        yield seen
    finally:
        for function, forward in forwards.items():
            setattr(function, "forward", forward)
        setattr(torch.Tensor, "register_hook", hook)


def _gradients(compute: Any, arguments: tuple[Any, ...], factor: int) -> list[Any]:
    """Of a fixed weighting of the results, with respect to the arguments that may have one, which are multiplied by `factor`."""
    import torch

    leaves = [(factor * a.detach()).requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    wanted = [a for a in leaves if isinstance(a, torch.Tensor) and a.requires_grad]
    # What forward writes in place must be no leaf.
    results = compute(*(a.view_as(a) if isinstance(a, torch.Tensor) and a.requires_grad else a for a in leaves))
    results = [r for r in (results if isinstance(results, tuple) else (results,)) if isinstance(r, torch.Tensor) and r.requires_grad]
    if not wanted or not results:
        return [torch.zeros_like(a) for a in wanted]
    weights = [torch.linspace(-1, 2, r.numel(), dtype=r.dtype).reshape(r.shape) for r in results]
    found = torch.autograd.grad(results, wanted, weights, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(wanted, found)]


def _is_that_of_forward(function: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether backward gives what PyTorch computes for the operators of forward, at these arguments."""
    import torch

    def operators(*values: Any) -> Any:
        return function.forward(_Context(), *values) if _has_context(function) else function.forward(*values)

    def agree(factor: int) -> bool:
        torch.manual_seed(0)
        own = _gradients(function.apply, arguments, factor)
        torch.manual_seed(0)
        plain = _gradients(operators, arguments, factor)
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in zip(own, plain))

    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            return agree(1) and agree(10)  # large values reach where they are cut off or rounded
    except Exception:  # a forward that cannot run so may do anything
        return False


def check_functions(module: Any, inputs: Mapping[str, Any]) -> None:
    """Runs forward on the example inputs, and compares the backward of each Function with the gradient of its forward, which is what
    a file stands for. Buffers are left as they were. Errors: ValueError where one differs."""
    import torch

    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.no_grad():
        with watched() as seen:
            module(**inputs)
        for buffer, before in kept:
            buffer.copy_(before)
    differing = sorted({function.__name__ for function, arguments in seen.calls if not _is_that_of_forward(function, arguments)})
    if differing:
        raise ValueError(f"{', '.join(differing)}: the backward of this torch.autograd.Function is not the gradient of its forward, "
                         "which is all that a file holds: the training would be another one; write it by operators, for instance "
                         "x + (f(x) - x).detach() for a straight-through gradient, or (1 + a) * x.detach() - a * x for a reversed one")
