"""A PyTorch module as an ONNX file that trains as the module does."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence

from . import forward_results, module_facts, own_gradients, refusals, sample_lists, unknown_calls, written_losses


def _argument_names(module: Any, count: int) -> list[str]:
    names = [p.name for p in inspect.signature(module.forward).parameters.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(names) < count:
        raise TypeError(f"{type(module).__name__}.forward names {len(names)} arguments, and {count} inputs are given; "
                        "pass them as a dict by their names")
    return names[:count]


@contextlib.contextmanager
def _without_layerdrop(module: Any) -> Iterator[None]:
    """Models of transformers draw a number for each layer, and leave the layer out where it is below `layerdrop`, which is
    0 in most. No file holds such a branch, so the number is 1 while they are exported. Errors: ValueError where layers
    would be left out."""
    import torch

    rates = {name or type(part).__name__: rate for name, part in module.named_modules()
             for rate in (getattr(part, "layerdrop", None), getattr(getattr(part, "config", None), "layerdrop", None))
             if isinstance(rate, (int, float))}
    for name, rate in rates.items():
        if rate > 0:
            raise ValueError(f"{name}: layerdrop is {rate}, so the layers of a step are random, and no plan holds them; set it to 0")
    drawn = torch.rand
    if rates:
        torch.rand = lambda *size, **options: 1.0 if size in (([],), ((),)) else drawn(*size, **options)
    try:
        yield
    finally:
        torch.rand = drawn


class _AllFinite:
    """Whether all values are finite: in a condition of Python's they are taken to be, else it is the tensor that says so."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        import torch

        plain = [torch.utils._pytree.tree_map(lambda v: v.value if isinstance(v, cls) else v, part) for part in (arguments, options or {})]
        return function(*plain[0], **plain[1])


def _operator_of_tensor(name: str) -> Any:
    def compute(self: _AllFinite, *others: Any) -> Any:
        return getattr(self.value, name)(*(other.value if isinstance(other, _AllFinite) else other for other in others))

    return compute


# Python looks for these in the class alone; without them, m == True would be false without a word.
for _name in ("invert", "eq", "ne", "lt", "le", "gt", "ge", *(side + name for name in ("and", "or", "xor", "add", "sub", "mul", "truediv")
                                                              for side in ("", "r"))):
    setattr(_AllFinite, f"__{_name}__", _operator_of_tensor(f"__{_name}__"))


@contextlib.contextmanager
def _with_finite_values(module: Any) -> Iterator[None]:
    """Detectors of transformers (DETR and its kin) clamp what a layer computes `if not torch.isfinite(x).all()`. No file holds such a
    branch, and a training whose values are not finite has ended anyway. That is not said of a module with buffers that are not finite,
    such as a mask of attention: it may ask about these."""
    import torch

    is_finite = torch.isfinite
    if not all(is_finite(buffer).all() for buffer in module.buffers() if buffer.is_floating_point() and not buffer.is_meta):
        yield
        return

    def asked(values: Any) -> Any:
        found = is_finite(values)
        found.all = lambda *axes, **options: type(found).all(found, *axes, **options) if axes or options else _AllFinite(type(found).all(found))
        return found

    torch.isfinite = asked
    try:
        yield
    finally:
        torch.isfinite = is_finite


@contextlib.contextmanager
def _without_device_queries() -> Iterator[None]:
    """Where an operator mixes types (1 + parameter), PyTorch's exporter runs it and takes the first operator that it sees. Of parameters
    that is, in PyTorch 2.11, the query of their device, for which it refuses the module."""
    import torch

    try:
        from torch.onnx._internal.fx.passes.type_promotion import _OpTraceDispatchMode as mode
        note, query = mode.__torch_dispatch__, torch.ops.prim.device.default
    except (ImportError, AttributeError):  # a later PyTorch
        yield
        return

    def note_operators(self: Any, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return function(*arguments, **(options or {})) if function is query else note(self, function, types, arguments, options)

    mode.__torch_dispatch__ = note_operators
    try:
        yield
    finally:
        mode.__torch_dispatch__ = note


def _written(node: Any) -> Any:
    """Of an operator that writes in place: the value whose memory it writes to, through views of it. Else None."""
    import torch

    def memory(node: Any) -> Any:
        while node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.args:
            results = node.target._schema.returns
            if not results or results[0].alias_info is None or not isinstance(node.args[0], torch.fx.Node):
                break
            node = node.args[0]
        return node

    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or not node.args:
        return None
    operands = node.target._schema.arguments
    writes = operands and operands[0].alias_info is not None and operands[0].alias_info.is_write
    return memory(node.args[0]) if writes and isinstance(node.args[0], torch.fx.Node) else None


def _check_writes(part: Any, operands: Sequence[Any], trained: "set[Any]", parameters: Mapping[str, str]) -> None:
    """Errors: ValueError where a part that computes no gradients writes in place into a value that has one: PyTorch's gradient passes as if
    nothing were written."""
    outer = dict(zip((node for node in part.graph.nodes if node.op == "placeholder"), operands))
    for node in part.graph.nodes:
        value = outer.get(_written(node))
        if value is None or value not in trained or not value.meta["val"].is_floating_point():
            continue
        if value.name in parameters:
            raise ValueError(f"forward writes into the parameter {parameters[value.name]!r} under no_grad(), of which a file holds nothing; "
                             "compute the value in a variable of its own, or change the parameter between the steps")
        raise ValueError(f"forward writes in place ({node.target.__name__.split('.')[0]}) under no_grad() into a value that has a gradient, which "
                         "PyTorch passes on as if nothing were written; write x = x + (f(x) - x).detach() for that, or f(x) without no_grad()")


def _check_branches(exported: Any) -> None:
    """Errors: ValueError where a branch or a loop's body computes something under no_grad, which the exporter takes for the rest."""
    import torch

    switch = torch.ops.higher_order.wrap_with_set_grad_enabled
    for name, part in exported.graph_module.named_modules():
        if name and not name.startswith("submod_") and isinstance(part, torch.fx.GraphModule) and any(
                node.target is switch for node in part.graph.nodes):
            raise ValueError("a branch of torch.cond or the body of a loop switches gradients on or off, which no file holds; detach what "
                             "it computes without them")


def _detach_results(exported: Any) -> None:
    """What a module computes of its parameters under no_grad has no gradient. The exporter puts such a part into the graph as if
    it were computed like the rest, so each result of it is detached; so is what `detach_` detaches in place, which it leaves out.
    Errors: ValueError where such a part has gradients again, or writes into values that have one."""
    import torch

    switch = torch.ops.higher_order.wrap_with_set_grad_enabled
    detach = torch.ops.aten.detach.default
    _check_branches(exported)
    graph = exported.graph
    parameters = exported.graph_signature.inputs_to_parameters
    of_parameters: set[Any] = set()
    trained: set[Any] = set()  # those of them that have a gradient
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach_.default:
            node.target = detach
        if node.name in parameters or of_parameters.intersection(node.all_input_nodes):
            of_parameters.add(node)
        is_cut = node.target is detach or (node.target is switch and not node.args[0])
        if node.name in parameters or (not is_cut and trained.intersection(node.all_input_nodes)):
            trained.add(node)
        if node.target is not switch or node.args[0] or node not in of_parameters:
            continue
        part = getattr(exported.graph_module, node.args[1].target)
        if any(inner.target is switch for inner in part.graph.nodes):
            raise ValueError("forward switches gradients on or off within a part that computes none; leave one of the two out")
        _check_writes(part, node.args[2:], trained, parameters)
        for result in list(node.users):
            if not isinstance(result.meta.get("val"), torch.Tensor):
                continue
            with graph.inserting_after(result):
                detached = graph.call_function(detach, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(detached, delete_user_cb=lambda user, kept=detached: user is not kept)


def _drop_checks(exported: Any) -> None:
    """What `torch._check_tensor_all` asserts of numbers, such as how many tokens stand for a picture, is no part of what trains, and the
    exporter has no words for it."""
    import torch

    graph = exported.graph
    for check in [node for node in graph.nodes if node.target is torch.ops.aten._is_all_true.default]:
        chain = [check]
        while chain[-1].users and len(chain[-1].users) == 1:
            chain.append(next(iter(chain[-1].users)))
        if chain[-1].target is not torch.ops.aten._assert_scalar.default:
            continue
        for node in reversed(chain):
            graph.erase_node(node)


def _copy_turned(exported: Any) -> None:
    """The results of fused attention lie otherwise in memory once the exporter has taken it apart, if its mask is trained: turned and
    reshaped, they were a view before, and cannot be one then, which it refuses. A copy between the two can."""
    import torch

    aten = torch.ops.aten
    reshapes, turns = (aten.view.default, aten.reshape.default), (aten.transpose.int, aten.permute.default)
    graph = exported.graph
    for reshape in list(graph.nodes):
        if reshape.target not in reshapes:
            continue
        turned = source = reshape.args[0]
        is_turned = False
        while source.target in (*reshapes, *turns, aten.contiguous.default):
            is_turned = is_turned or source.target in turns
            source = source.args[0]
        if not is_turned or source.target is not aten.scaled_dot_product_attention.default:
            continue
        with graph.inserting_before(reshape):
            copy = graph.call_function(aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
        copy.meta = dict(turned.meta)
        copy.meta["val"] = turned.meta["val"].clone(memory_format=torch.contiguous_format)
        reshape.replace_input_with(turned, copy)


def _stack_complex(exported: Any) -> None:
    """The exporter knows no `unsqueeze` of complex numbers (the rotations of Llama 4 and DeepSeek V2 in transformers); the stack of one
    is the same."""
    import torch

    aten = torch.ops.aten
    for node in list(exported.graph.nodes):
        value = node.meta.get("val")
        if node.target is not aten.unsqueeze.default or not isinstance(value, torch.Tensor) or not value.is_complex():
            continue
        node.target = aten.stack.default
        node.args = ([node.args[0]], node.args[1] % value.ndim)


@contextlib.contextmanager
def _with_detached_results() -> "Iterator[list[ValueError]]":
    """While the exporter reads a module. What is refused is noted too, since the exporter wraps it into errors of its own."""
    import torch

    read = torch.export.export
    refusals: list[ValueError] = []

    def read_and_detach(*arguments: Any, **options: Any) -> Any:
        exported = read(*arguments, **options)
        _drop_checks(exported)
        _copy_turned(exported)
        _stack_complex(exported)
        try:
            unknown_calls.rewrite(exported)
            _detach_results(exported)
        except ValueError as refusal:
            refusals.append(refusal)
            raise
        exported.graph_module.recompile()
        return exported

    torch.export.export = read_and_detach
    try:
        yield refusals
    finally:
        torch.export.export = read


def _remove(path: Path) -> None:
    path.unlink()
    path.with_name(path.name + ".data").unlink(missing_ok=True)


def _check_batch(path: Path, batched: Sequence[str]) -> None:
    """Errors: ValueError where the exporter has fixed the batch; the file, which is of no use, is removed."""
    import onnx

    first = {value.name: value.type.tensor_type.shape.dim[0] for value in onnx.load(path, load_external_data=False).graph.input
             if value.type.tensor_type.shape.dim}
    fixed = [name for name in batched if name in first and not first[name].dim_param]
    if not fixed:
        return
    _remove(path)
    raise ValueError(f"PyTorch's exporter fixed the batch of {', '.join(map(repr, fixed))} at {first[fixed[0]].dim_value}: forward "
                     "uses the number of samples as a Python number; take it from x.shape[0] and pass it on as it is, without int(), "
                     "range() or lists of it")


def _statistics(module: Any) -> set[str]:
    """The buffers of normalisations, which ONNX's BatchNormalization updates too."""
    import torch

    return {f"{name}.{buffer}" if name else buffer for name, part in module.named_modules()
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
            for buffer in ("running_mean", "running_var", "num_batches_tracked")}


def _instance_statistics(exported: Any) -> set[str]:
    """The buffers that instance norms update: one operator, of which the signature does not say that it writes."""
    import torch

    buffers = exported.graph_signature.inputs_to_buffers
    return {buffers[statistic.name] for node in exported.graph.nodes
            if node.target is torch.ops.aten.instance_norm.default and node.args[5]  # that trains
            for statistic in node.args[3:5] if statistic is not None and statistic.name in buffers}


def _check_buffers(module: Any, exported: Any, path: Path) -> None:
    """Errors: ValueError where forward updates a buffer of its own; the file, in which it stays as it is, is removed."""
    updated = (set(exported.graph_signature.buffers_to_mutate.values()) | _instance_statistics(exported)) - _statistics(module)
    if not updated:
        return
    _remove(path)
    raise ValueError(f"forward updates the buffer {', '.join(map(repr, sorted(updated)))}, which an ONNX file holds as it is: the "
                     "training, or what eval() computes after it, would be another one; compute it anew in each forward, or leave it out (spectral_norm has such "
                     "buffers, and an InstanceNorm with track_running_stats=True)")


def _check_results(module: Any, inputs: "Mapping[str, Any]", written: Any, path: Path) -> None:
    """Errors: ValueError where samples that forward lists are not what they are as a whole; the file is removed."""
    try:
        sample_lists.check(module, inputs, written.exported_program)
    except ValueError:
        _remove(path)
        raise


def _check_gradients(module: Any, inputs: "Mapping[str, Any]", seen: own_gradients.Seen, path: Path) -> None:
    """Errors: ValueError where forward has gradients of its own; the file, which does not say so, is removed."""
    try:
        if seen.hooks:
            raise ValueError("forward puts a hook on the gradient of a value (register_hook), which no file holds: the training would be "
                             "another one; leave it out, or write it by operators: a * x + (1 - a) * x.detach() has a times the gradient")
        if seen.calls:
            own_gradients.check_functions(module, inputs)
    except Exception:
        _remove(path)
        raise


def _warn_of_modes(module: Any) -> None:
    """Parts that do not train while the others do: the usual reason is a frozen BatchNorm."""
    import torch

    kinds = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)
    still = [name for name, part in module.named_modules() if isinstance(part, kinds) and not part.training]
    if module.training and still:
        warnings.warn(f"{', '.join(still)}: in eval(), but exported as it trains; compile(batchnorm='eval') makes all BatchNorms use "
                      "their running statistics, and Dropout is left out unless compile(dropout='on') asks for it", stacklevel=3)


def export(module: Any, inputs: "Sequence[Any] | Mapping[str, Any] | Any", path: "os.PathLike[str] | str", *,
           output_names: Optional[Sequence[str]] = None, fixed_batch: Sequence[str] = (), opset: Optional[int] = None) -> Path:
    """Exports a module for training, with the exporter's flags that keep its parameters as they are, and writes what the
    ONNX file cannot say beside it (module_facts.py).

    `inputs`: example tensors, as a dict by the names of forward's arguments, a sequence, or one tensor. The first axis
    of each is the batch, except for those that `fixed_batch` names; where it names all, the file is one sample as a whole,
    which lint, plan and compile take with one_sample=True. All parts are exported as they train; their modes and the random
    state are left as they were.
    `output_names`: of the tensors that forward returns, in order; else the keys of the dict that it returns, else PyTorch's.
    Returns the path. Errors: ValueError where the exporter refuses the module or fixes the batch, and where forward updates a
    buffer that is no statistic of a BatchNorm, or has gradients of its own (own_gradients.py).
    """
    import torch

    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, Mapping):
        inputs = dict(zip(_argument_names(module, len(inputs)), inputs))
    for name in fixed_batch:
        if name not in inputs:
            raise ValueError(f"fixed_batch names {name!r}; the inputs are {sorted(inputs)}")
    # An example of one sample would make the batch a constant.
    for name, tensor in inputs.items():
        if name not in fixed_batch and isinstance(tensor, torch.Tensor) and (tensor.ndim == 0 or tensor.shape[0] < 2):
            raise ValueError(f"the example for {name!r} has shape {list(tensor.shape)}: its first axis must be the batch, of "
                             "two samples or more; name it in fixed_batch if it has none")
    own_names = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    for name in inputs:
        if name in own_names:
            raise ValueError(f"forward takes {name!r}, which is also the name of a parameter or a buffer of the module: PyTorch's exporter "
                             "mistakes one for the other; rename the argument, or the parameter")
    module_facts.check(module)
    own_gradients.check_hooks(module)
    _warn_of_modes(module)
    batched = [name for name, tensor in inputs.items() if name not in fixed_batch and isinstance(tensor, torch.Tensor)]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(batch: Any) -> Any:
        written = torch.onnx.export(module.train(), (), kwargs=dict(inputs), dynamo=True, optimize=False, verbose=False,
                                    input_names=list(inputs),
                                    dynamic_shapes={name: {0: batch} if name in batched else None for name in inputs},
                                    opset_version=opset)
        if output_names:
            forward_results.name_as(written, output_names)
        else:
            forward_results.name_outputs(written)
        written.save(str(path), external_data=True)
        return written

    modes = [(part, part.training) for part in module.modules()]  # parts of a module that trains may be in eval()
    try:
        with torch.random.fork_rng(), warnings.catch_warnings(), _without_layerdrop(module), forward_results.without_caches(module), _with_finite_values(module), \
                _without_device_queries(), _with_detached_results() as refused, own_gradients.watched() as seen, \
                sample_lists.kept_whole(refused) as lists, written_losses.written_out():
            warnings.simplefilter("ignore")  # that it trains is the intention; the rest is about the exporter itself
            # First by name: a Dim makes the exporter take the example's size where forward asks for len(x). It takes
            # modules, though, that it refuses by name.
            try:
                written = write("batch")
            except torch.onnx.OnnxExporterError:
                if refused:
                    raise refused[0] from None
                written = write(torch.export.Dim("batch"))
            _check_gradients(module, inputs, seen, path)
            if lists:
                _check_results(module, inputs, written, path)
    except torch.onnx.OnnxExporterError as error:
        raise ValueError(f"PyTorch's exporter refuses {type(module).__name__}: {refusals.way_out(error, module)}{error.__cause__ or error}") from error
    finally:
        for part, was_training in modes:
            part.training = was_training
    _check_buffers(module, written.exported_program, path)
    _check_batch(path, batched)
    module_facts.write(path, module)
    return path
