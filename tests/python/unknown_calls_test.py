"""graphpipe.export of calls that PyTorch's exporter does not know, or mistakes. Needs torch and onnx."""

import sys
import tempfile
import unittest
from pathlib import Path

import onnx
import torch
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import graphpipe  # noqa: E402
from graphpipe.gaussian_nll import write_out  # noqa: E402


class Measures(torch.nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.linear, self.table, self.compute = torch.nn.Linear(3, 4), torch.nn.Parameter(torch.randn(30, 4)), compute

    def forward(self, x):
        return self.compute(self.linear(x), self.table)


class UnknownCalls(unittest.TestCase):
    def test_calls_that_the_exporter_does_not_know_are_written_in_others(self):
        cases = {"few rows": lambda z, table: torch.cdist(z, table[:5]).mean() + torch.cdist(z, z).sum(),
                 "another norm": lambda z, table: torch.cdist(z, table, p=1.0).mean(),
                 "by a product": lambda z, table: torch.cdist(z, table).min(1)[0].sum(),
                 "a root": lambda z, table: torch.cdist(z, z, p=0.5).sum(),
                 "remainder by a fraction": lambda z, table: (z * (torch.arange(z.shape[0]) % (z.shape[0] / 2))[:, None]).sum(),
                 "the larger, and no NaN": lambda z, table: torch.fmax(z, torch.where(table[0] > 0, table[0], torch.nan)).sum(),
                 "the smaller": lambda z, table: (torch.fmin(z, z[:, :1]) * torch.fmin(torch.full_like(z, torch.nan), z)).sum(),
                 "the larger of integers, and of two types": lambda z, table: (
                     z * torch.fmax(torch.fmax((z > 0).long(), torch.ones_like(z, dtype=torch.long) - 1), z)).sum(),
                 "products": lambda z, table: (torch.cumprod(z, 1) * torch.cumprod(table[:7, :, None], 0)[-1, :, 0]).sum(),
                 "products of integers": lambda z, table: (torch.cumprod((z > 0).long() + 1, -1) * torch.cumprod(z[:, :1], 1) * torch.cumprod(z.sum(), 0)).sum(),
                 "products of zeros": lambda z, table: torch.cumprod(torch.relu(z), 1, dtype=torch.float64).float().sum(),
                 "remainder of truth values": lambda z, table: (z * ((z > 0) % z.shape[0])).sum(),
                 "remainder": lambda z, table: (z * ((torch.arange(z.shape[0])[:, None] + 1) % z.shape[0])).sum()}
        with tempfile.TemporaryDirectory() as folder:
            for name, compute in cases.items():
                module, x = Measures(compute), torch.randn(5, 3)  # another batch than the example's
                path = graphpipe.export(module, {"x": x[:4]}, Path(folder) / "model.onnx")
                (found,) = ReferenceEvaluator(str(path)).run(None, {"x": x.numpy()})
                self.assertTrue(torch.allclose(torch.tensor(found), module(x), atol=1e-4), name)
            losses = Measures(lambda z, table: torch.nn.functional.multilabel_margin_loss(z, torch.tensor([[2, -1, 0, 1]] * 4)))
            with self.assertRaisesRegex(ValueError, "multilabel_margin_loss"):
                graphpipe.export(losses, {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx", fixed_batch=["x"])

    def test_attention_of_other_than_four_axes_is_that_of_four(self):
        attention = torch.nn.functional.scaled_dot_product_attention
        several = lambda z: z[:, None, None, None].expand(-1, 3, 2, 5, -1) * torch.arange(1.0, 6).reshape(5, 1)
        one = lambda z: z[:, None] * torch.arange(1.0, 6).reshape(5, 1)
        choice, bias = torch.rand(2, 5, 5) > 0.3, torch.randn(3, 1, 5, 5)
        choice[..., 0] = True
        cases = {"no heads": lambda z, table: attention(one(z), one(z) + 1, one(z), scale=0.3),
                 "no heads, causal": lambda z, table: attention(one(z), one(z), one(z), is_causal=True),
                 "no heads, a mask of each sample": lambda z, table: attention(one(z), one(z), one(z), one(z) @ one(z).mT),
                 "several axes": lambda z, table: attention(several(z), several(z), several(z)),
                 "several axes, a mask of one": lambda z, table: attention(several(z), several(z), several(z), choice),
                 "several axes, one mask": lambda z, table: attention(several(z), several(z), several(z), choice[0]),
                 "several axes, a mask of ones": lambda z, table: attention(several(z), several(z), several(z), several(z)[:, :1, :1] @ one(z).mT[:, None, None]),
                 "several axes, an added mask": lambda z, table: attention(several(z), several(z), several(z), attn_mask=bias)}
        with tempfile.TemporaryDirectory() as folder:
            for name, compute in cases.items():
                module, x = Measures(compute), torch.randn(5, 3)
                with self.subTest(name):
                    path = graphpipe.export(module, {"x": x[:4]}, Path(folder) / "model.onnx")
                    (found,) = ReferenceEvaluator(str(path)).run(None, {"x": x.numpy()})
                    self.assertTrue(torch.allclose(torch.tensor(found), module(x), atol=1e-4))

    def test_the_likelihood_of_normal_values_is_exported_with_its_gradient(self):
        loss = torch.nn.functional.gaussian_nll_loss
        cases = {"each its own": lambda z, table: loss(z, z * 0 + 1, z.square(), eps=0.5),
                 "one a row": lambda z, table: loss(z, z * 0 + 1, z.square().sum(1), full=True, reduction="sum"),
                 "one for all": lambda z, table: loss(z, z * 0 + 1, z.square().sum(1, keepdim=True), True, 1e-3, "none")}
        with tempfile.TemporaryDirectory() as folder:
            for name, compute in cases.items():
                module, x = Measures(compute), torch.randn(5, 3)
                with self.subTest(name):
                    path = graphpipe.export(module, {"x": x[:4]}, Path(folder) / "model.onnx")
                    (found,) = ReferenceEvaluator(str(path)).run(None, {"x": x.numpy()})
                    self.assertTrue(torch.allclose(torch.tensor(found), module(x), atol=1e-4))
        # PyTorch clamps where it computes no gradients.
        variances = [torch.tensor([0.0, 1e-9, 2.0], requires_grad=True) for _ in range(2)]
        for function, variance in zip((loss, write_out), variances):
            function(torch.ones(3), torch.zeros(3), variance).backward()
        self.assertTrue(torch.equal(variances[0].grad, variances[1].grad))

    def test_calls_in_branches_are_written_in_others_too(self):
        branches = Measures(lambda z, table: torch.cond(z.sum() > 0, lambda z: torch.cdist(z, table), lambda z: torch.cdist(z, table) * 2, (z,)))
        module, x = branches, torch.randn(5, 3)
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(module, {"x": x[:4]}, Path(folder) / "model.onnx")
            for each in (x, -x):
                (found,) = ReferenceEvaluator(str(path)).run(None, {"x": each.numpy()})
                self.assertTrue(torch.allclose(torch.tensor(found), module(each), atol=1e-4))

    def test_numbers_are_drawn_from_the_range_that_the_module_says(self):
        def noise(z, table):
            drawn = torch.empty(2000, 4)
            drawn.uniform_(-3, -1)
            return z.sum() * 0 + drawn

        slopes = Measures(lambda z, table: torch.nn.functional.rrelu(z * 0 - torch.ones(2000, 1, 4), 0.2, 0.4, training=True))
        with tempfile.TemporaryDirectory() as folder:
            for module, low, high in ((Measures(noise), -3, -1), (slopes, -0.4, -0.2)):
                path = graphpipe.export(module, {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx")
                (found,) = ReferenceEvaluator(str(path)).run(None, {"x": torch.randn(4, 3).numpy()})
                self.assertTrue(low <= found.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < found.max() <= high)

    def test_random_slopes_hold_at_zero_too(self):
        for in_place in (False, True):
            module = Measures(lambda z, table: torch.nn.functional.rrelu(z, 0.2, 0.4, training=True, inplace=in_place))
            with self.subTest(in_place=in_place), tempfile.TemporaryDirectory() as folder:
                path = graphpipe.export(module, {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx")
                producers = {name: node for node in onnx.load(path).graph.node for name in node.output}
                (chosen,) = (node for node in producers.values() if node.op_type == "Where")
                self.assertEqual([producers[name].op_type for name in chosen.input][:2], ["LessOrEqual", "Mul"])

    def test_distances_of_powers_below_one_have_a_gradient_where_rows_are_equal(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(Measures(lambda z, table: torch.cdist(z, z, p=0.5).sum()), {"x": torch.randn(4, 3)},
                                    Path(folder) / "model.onnx")
            # Neither of the powers, whose slopes at zero are infinite, is of a zero.
            producers = {name: node for node in onnx.load(path).graph.node for name in node.output}
            bases = [producers[node.input[0]].op_type for node in producers.values() if node.op_type == "Pow"]
            self.assertEqual(bases, ["Where", "Where"])

    def test_a_branch_of_python_that_data_decide_is_refused_with_its_place(self):
        class Decides(Measures):
            def forward(self, x):
                y = self.linear(x)
                return y * 2 if x.sum() > 3 else y

        place = r"decides at unknown_calls_test.py:\d+ \(return y \* 2 if x.sum\(\) > 3 else y\)"
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, place):
            graphpipe.export(Decides(None), {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx")

    def test_a_call_that_no_others_stand_for_is_named(self):
        losses = Measures(lambda z, table: torch.nn.functional.ctc_loss(
            z.log_softmax(-1).unsqueeze(1).expand(-1, 3, -1), torch.ones(3, 2, dtype=torch.long), torch.full((3,), 4), torch.full((3,), 2)))
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "no operator for ctc_loss"):
            graphpipe.export(losses, {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx", fixed_batch=["x"])

    def test_what_stands_for_a_call_is_said(self):
        for compute, words in ((lambda z, table: z.median(1)[0], "no operator for median; .*, x.sort"),
                               (lambda z, table: torch.hypot(z, z + 1), r"no operator for hypot; .*, \(x \* x")):
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, words):
                graphpipe.export(Measures(compute), {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx")

    def test_an_error_of_forward_is_told_with_its_place(self):
        class Fails(Measures):
            def forward(self, x):
                return self.linear(x) if not torch.compiler.is_compiling() else self.compute[:, None]

        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, r"fails at unknown_calls_test.py:\d+ \(return "):
            graphpipe.export(Fails(None), {"x": torch.randn(4, 3)}, Path(folder) / "model.onnx")

    def test_an_argument_with_the_name_of_a_parameter_is_refused(self):
        class Masks(Measures):
            def forward(self, x, table):
                return self.linear(x).sum() + (self.table * table).sum()

        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "'table', which is also"):
            graphpipe.export(Masks(None), {"x": torch.randn(4, 3), "table": torch.randn(30, 4)}, Path(folder) / "model.onnx")


if __name__ == "__main__":
    unittest.main()
