"""Gradients that a module computes by a rule of its own (`torch.autograd.Function`, hooks), of which no ONNX file says anything."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping


class Seen:
    """What forward used while it was watched."""

    def __init__(self) -> None:
        # Of Functions: the class, what its forward got but for ctx, and which of these have a gradient.
        self.calls: list[tuple[Any, tuple[Any, ...], tuple[bool, ...]]] = []
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


def _is_of_pytorch(function: Any) -> bool:
    """One that `torch.vmap` makes of another is too, and runs the forward of that other."""
    return bool(function.__module__.startswith("torch."))


def _functions(base: Any) -> Iterator[Any]:
    """All Functions but those of PyTorch."""
    for function in base.__subclasses__():
        if not _is_of_pytorch(function):
            yield function
        yield from _functions(function)


def _has_context(function: Any) -> bool:
    """Whether forward takes ctx; else setup_context does."""
    import torch

    return function.setup_context is torch.autograd.Function.setup_context


def _replace(owner: Any, name: str, value: Any, ending: contextlib.ExitStack) -> None:
    """Until the end the class has this attribute; then what it had of its own again, if anything."""
    before = owner.__dict__.get(name)
    setattr(owner, name, value)
    ending.callback(lambda: delattr(owner, name) if before is None else setattr(owner, name, before))


def _note_forwards(seen: Seen, ending: contextlib.ExitStack) -> None:
    """Modules keep `apply` itself under other names, so it is the forward of Functions that is replaced: of all, since one may
    have another's forward and its own backward, and of those that forward itself defines."""
    import torch

    base = torch.autograd.Function

    def watch(function: Any, forward: Any) -> None:
        def note(*arguments: Any, **options: Any) -> Any:
            values = arguments[1:] if _has_context(function) else arguments
            seen.calls.append((function, values, tuple(isinstance(v, torch.Tensor) and v.requires_grad for v in values)))
            return forward(*arguments, **options)

        note.of = forward  # type: ignore[attr-defined]
        _replace(function, "forward", staticmethod(note), ending)

    # Their forwards are looked up before any is replaced: it would be noted twice.
    for function, forward in [(function, function.forward) for function in _functions(base)]:
        watch(function, forward)
    _replace(base, "__init_subclass__", classmethod(lambda function, **_: None if _is_of_pytorch(function) else watch(
        function, getattr(function.forward, "of", function.forward))), ending)


@contextlib.contextmanager
def watched() -> Iterator[Seen]:
    """Notes which Functions run, and whether hooks are put on values. A part that torch.utils.checkpoint(use_reentrant=True) runs
    without gradients, to run it again in the backward, runs as it is: exported without gradients it would not train."""
    import torch
    from torch.utils.checkpoint import CheckpointFunction

    seen = Seen()
    hook = torch.Tensor.register_hook

    def noting_hook(self: Any, function: Any) -> Any:
        seen.hooks = True
        return hook(self, function)

    with contextlib.ExitStack() as ending:
        _replace(torch.Tensor, "register_hook", noting_hook, ending)
        _replace(CheckpointFunction, "apply", staticmethod(lambda run, preserve, *arguments: run(*arguments)), ending)
        _note_forwards(seen, ending)
        yield seen


def _gradients(compute: Any, arguments: tuple[Any, ...], trained: tuple[bool, ...], factor: float,
               weight: float) -> tuple[list[Any], list[bool]]:
    """Of a fixed weighting of the results, with respect to the arguments that have a gradient. These are multiplied by `factor`, the
    weights by `weight`, and what is found is divided by it. Then for each tensor of the results whether it has a gradient."""
    import torch

    leaves = [(factor * a.detach()).requires_grad_() if has_gradient else a for a, has_gradient in zip(arguments, trained)]
    wanted = [a for a, has_gradient in zip(leaves, trained) if has_gradient]
    # What forward writes in place must be no leaf.
    results = compute(*(a.view_as(a) if has_gradient else a for a, has_gradient in zip(leaves, trained)))
    results = [r for r in (results if isinstance(results, tuple) else (results,)) if isinstance(r, torch.Tensor)]
    passes = [r.requires_grad for r in results]
    results = [r for r in results if r.requires_grad]
    if not wanted or not results:
        return [torch.zeros_like(a) for a in wanted], passes
    weights = [weight * torch.linspace(-1, 2, r.numel(), dtype=r.dtype).reshape(r.shape) for r in results]
    found = torch.autograd.grad(results, wanted, weights, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g / weight for a, g in zip(wanted, found)], passes


def _is_that_of_forward(function: Any, arguments: tuple[Any, ...], trained: tuple[bool, ...]) -> bool:
    """Whether backward gives what PyTorch computes for the operators of forward, at these arguments."""
    import torch

    def operators(*values: Any) -> Any:
        return function.forward(_Context(), *values) if _has_context(function) else function.forward(*values)

    def agree(factor: float, weight: float) -> bool:
        torch.manual_seed(0)
        own, own_passes = _gradients(function.apply, arguments, trained, factor, weight)
        torch.manual_seed(0)
        plain, plain_passes = _gradients(operators, arguments, trained, factor, weight)
        # A forward without gradients, such as that of a checkpoint, is exported so.
        if any(own_passes) and own_passes != plain_passes:
            return False
        # Where PyTorch's own has no number, a better one is no other training.
        return all(torch.allclose(a[b.isfinite()], b[b.isfinite()], rtol=1e-3, atol=1e-5) for a, b in zip(own, plain))

    try:
        # Large values reach where they are cut off or rounded; so do large gradients.
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            return all(agree(factor, weight) for factor, weight in ((1, 1), (10, 1), (1000, 1), (1, 1000)))
    except Exception:  # a forward that cannot run so may do anything
        return False


def check_functions(module: Any, inputs: Mapping[str, Any]) -> None:
    """Runs forward on the example inputs, and compares the backward of each Function with the gradient of its forward, which is what
    a file stands for. Buffers are left as they were. Errors: ValueError where one differs."""
    import torch

    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.enable_grad(), watched() as seen:
        module(**inputs)
    with torch.no_grad():
        for buffer, before in kept:
            buffer.copy_(before)
    differing = sorted({call[0].__name__ for call in seen.calls if not _is_that_of_forward(*call)})
    if differing:
        raise ValueError(f"{', '.join(differing)}: the backward of this torch.autograd.Function is not the gradient of its forward, "
                         "which is all that a file holds: the training would be another one; write it by operators, for instance "
                         "x + (f(x) - x).detach() for a straight-through gradient, or (1 + a) * x.detach() - a * x for a reversed one; "
                         "where it only computes activations again (checkpoints), switch it off for the export")
