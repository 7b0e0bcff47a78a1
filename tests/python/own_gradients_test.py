"""graphpipe.export of modules whose gradients are not those of what forward computes. Needs torch and onnx."""

import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import onnx
import torch
import torch.utils.checkpoint
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import graphpipe  # noqa: E402


class Reversed(torch.autograd.Function):
    """As for adversarial training of domains."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(x, bound):
        return x.clamp(-float(bound), float(bound))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class LeanSwish(torch.autograd.Function):
    """Its gradient is that of its forward; it only keeps less for it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * s * (1 + x * (1 - s))


class Unlike(LeanSwish):
    """Has another's forward."""

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class CutOff(torch.autograd.Function):
    """Where gradients are large it is another one."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-5, 5)


class Scaled(torch.autograd.Function):
    """By factors that have no gradient, as masks and tables of positions."""

    @staticmethod
    def forward(ctx, x, factors):
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


class ComputesAgain(torch.autograd.Function):
    """A checkpoint of someone's own."""

    @staticmethod
    def forward(ctx, run, x, *parameters):
        ctx.run, ctx.parameters = run, parameters
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            found = torch.autograd.grad(ctx.run(x), (x, *ctx.parameters), gradient, allow_unused=True)
        return (None, *found)


def defined_within(x):
    class Backwards(Reversed):
        @staticmethod
        def backward(ctx, gradient):
            return -3 * gradient

    return Backwards.apply(x)


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.second, self.first(x), use_reentrant=True)


class Applies(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.norm, self.function = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), function

    def forward(self, x):
        return self.norm(self.function(self.linear(x)))


def looked_up_for_each(x):
    """As transformers looks its masks up, by a Function of PyTorch."""
    table = x > 0
    with TransformGetItemToIndex():
        of_row = torch.vmap(lambda row, place: table[row, place], (None, 0))
        return x * torch.vmap(of_row, (0, None))(torch.arange(x.shape[0]), torch.arange(4))


def with_hook(x):
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * 0.1)
    return x * 2


def halved_in_place(x):
    x = x.clone()
    with torch.no_grad():
        x[:, :2].mul_(0.5)
    return x


def masked(x):
    with torch.no_grad():
        mask = torch.zeros_like(x)
        mask[:, 0] = 1
        kept = (x * 2).clamp_(min=0)
    return x * mask + kept


def detached_in_place(x):
    y = x.sin()
    y.detach_()
    return x.cos() * y


class Normalizes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        with torch.no_grad():
            self.weight.copy_(torch.nn.functional.normalize(self.weight, dim=0))
        return x @ self.weight


class OwnGradients(unittest.TestCase):
    def exported(self, module):
        with tempfile.TemporaryDirectory() as folder:
            return onnx.load(graphpipe.export(module, {"x": torch.randn(3, 4)}, Path(folder) / "model.onnx")).graph

    def refused(self, module, words):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, words):
                graphpipe.export(module, {"x": torch.randn(3, 4)}, Path(folder) / "model.onnx")
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_a_function_whose_backward_is_not_the_gradient_of_its_forward_is_refused(self):
        self.refused(Applies(Reversed.apply), "^Reversed: the backward")
        # At the examples, which are small, nothing is cut off.
        self.refused(Applies(lambda x: StraightThrough.apply(x.tanh(), 2.0)), "^StraightThrough: the backward")
        self.refused(Applies(CutOff.apply), "^CutOff: the backward")
        self.refused(Applies(Unlike.apply), "^Unlike: the backward")
        self.refused(Applies(defined_within), "^Backwards: the backward")
        part = torch.nn.Linear(4, 4)
        self.refused(Applies(lambda x: ComputesAgain.apply(part, x, *part.parameters())), "^ComputesAgain: .*checkpoints")
        self.refused(Applies(lambda x: ComputesAgain.apply(torch.tanh, x)), "^ComputesAgain: .*checkpoints")

    def test_other_functions_are_exported_and_the_module_is_left_as_it_was(self):
        forward = LeanSwish.__dict__["forward"]
        module = Applies(LeanSwish.apply)
        before = [buffer.clone() for buffer in module.buffers()]
        self.assertIn("Sigmoid", [node.op_type for node in self.exported(module).node])
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, module.buffers())))
        self.assertIs(LeanSwish.__dict__["forward"], forward)
        self.assertNotIn("forward", Unlike.__dict__)
        self.exported(Applies(lambda x: Scaled.apply(x, torch.ones(4))))
        self.exported(Applies(looked_up_for_each))

    def test_a_part_that_is_checkpointed_trains(self):
        nodes = self.exported(Checkpointed()).node
        self.assertEqual([node.op_type for node in nodes if node.op_type == "Identity"], [])
        self.assertEqual(len([node for node in nodes if node.op_type in ("Gemm", "MatMul")]), 2)

    def test_hooks_on_gradients_are_refused(self):
        self.refused(Applies(with_hook), "register_hook")
        module = Applies(torch.relu)
        hook = module.linear.weight.register_hook(lambda gradient: gradient * 0)
        self.refused(module, "'linear.weight' has a hook")
        hook.remove()
        hook = module.linear.register_full_backward_hook(lambda *_: None)
        self.refused(module, "^linear has a hook")
        hook.remove()
        self.exported(module)

    def test_writes_into_values_that_have_a_gradient_are_refused_where_none_is_computed(self):
        self.refused(Applies(halved_in_place), r"^forward writes in place \(mul_\) under no_grad")
        self.refused(Normalizes(), "^forward writes into the parameter 'weight' under no_grad")
        self.exported(Applies(masked))

    def test_what_is_detached_in_place_is_detached(self):
        nodes = self.exported(Applies(detached_in_place)).node
        sine = next(node.output[0] for node in nodes if node.op_type == "Sin")
        self.assertIn(sine, [node.input[0] for node in nodes if node.op_type == "Identity"])
        self.assertNotIn(sine, [name for node in nodes if node.op_type == "Mul" for name in node.input])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
