"""graphpipe.export of modules that list the samples of a batch. Needs torch and onnx."""

import sys
import tempfile
import unittest
from pathlib import Path

import onnx
import torch
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import graphpipe  # noqa: E402


class Lists(torch.nn.Module):
    def __init__(self, compute, norm=torch.nn.Identity):
        super().__init__()
        self.linear, self.norm, self.compute = torch.nn.Linear(4, 4), norm(4), compute

    def forward(self, x):
        return self.compute(self.norm(self.linear(x)))


class SampleLists(unittest.TestCase):
    def test_a_list_of_the_samples_may_be_put_together_again(self):
        cases = {"joined": lambda y: torch.cat(list(y[:, None] * torch.ones(3, 1)), dim=0).reshape(-1, 12),
                 "stacked": lambda y: torch.stack([sample for sample in y]) * 2,
                 "counted by shape": lambda y: torch.stack(tuple(y)) / y.shape[0]}
        with tempfile.TemporaryDirectory() as folder:
            for name, compute in cases.items():
                module, x = Lists(compute), torch.randn(5, 4)
                with self.subTest(name):
                    path = graphpipe.export(module, {"x": x[:3]}, Path(folder) / "model.onnx", output_names=["y"])
                    (first, *_) = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
                    self.assertTrue(first.dim_param)
                    found = ReferenceEvaluator(str(path)).run(["y"], {"x": x.numpy()})[0]
                    self.assertTrue(torch.allclose(torch.tensor(found), module(x), atol=1e-4))

    def test_a_list_that_is_also_returned_is_one_tensor_and_statistics_stay(self):
        module = Lists(lambda y: {"whole": torch.stack(list(y)), "parts": list(y)}, torch.nn.BatchNorm1d)
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(module, {"x": torch.randn(3, 4)}, Path(folder) / "model.onnx")
            self.assertEqual([len(output.type.tensor_type.shape.dim) for output in onnx.load(path).graph.output], [2, 2])
        self.assertEqual(module.norm.running_mean.tolist(), [0] * 4)

    def test_what_is_computed_of_single_samples_or_of_their_number_is_refused_and_leaves_nothing(self):
        cases = {"each": lambda y: torch.stack([sample * 2 for sample in y]),
                 "some": lambda y: torch.stack(list(y) + [torch.zeros(4)]),
                 "beside each other": lambda y: torch.stack(list(y), dim=1),
                 "backwards": lambda y: torch.stack(list(reversed(list(y)))),
                 "their number": lambda y: torch.stack(list(y)) / len(list(y))}
        with tempfile.TemporaryDirectory() as folder:
            for name, compute in cases.items():
                with self.subTest(name), self.assertRaisesRegex(ValueError, "one by one, in a list"):
                    graphpipe.export(Lists(compute), {"x": torch.randn(3, 4)}, Path(folder) / "model.onnx")
                self.assertEqual(list(Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
