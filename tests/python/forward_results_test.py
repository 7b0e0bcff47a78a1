"""graphpipe.export names outputs as forward does, and leaves out what models that generate keep for the next word. Needs
torch and onnx."""

import collections
import sys
import tempfile
import types
import unittest
from pathlib import Path

import onnx
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import graphpipe  # noqa: E402


class Returns(torch.nn.Module):
    def __init__(self, results):
        super().__init__()
        self.linear, self.results = torch.nn.Linear(3, 4), results

    def forward(self, x):
        return self.results(self.linear(x), x)


class Cache:
    """No type that PyTorch's exporter knows, as transformers' DynamicCache."""


class Generates(torch.nn.Module):
    """As the causal language models of transformers: a part and its parent have one configuration, another has its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 4)
        self.config = self.first.config = types.SimpleNamespace(use_cache=True)
        self.second.config = types.SimpleNamespace(use_cache=False)

    def forward(self, x):
        logits = self.second(self.first(x))
        return {"logits": logits, "past": Cache()} if self.config.use_cache else {"logits": logits}


class ForwardResults(unittest.TestCase):
    def exported(self, module, **options):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(module, {"x": torch.randn(2, 3)}, Path(folder) / "model.onnx", **options)
            onnx.checker.check_model(str(path))
            return onnx.load(path).graph

    def outputs(self, module, **options):
        return [output.name for output in self.exported(module, **options).output]

    def made_by(self, module):
        """The operator that makes each output."""
        graph = self.exported(module)
        nodes = {name: node.op_type for node in graph.node for name in node.output}
        return {output.name: nodes[output.name] for output in graph.output}

    def test_keys_of_a_dict_are_the_names(self):
        named = Returns(lambda y, x: {"logits": y, "nothing": None, "hidden": (y * 2, y * 3), "loss": y.sum()})
        self.assertEqual(self.outputs(named), ["logits", "hidden_0", "hidden_1", "loss"])
        self.assertEqual(self.outputs(named, output_names=["a", "b", "c", "d"]), ["a", "b", "c", "d"])

    def test_names_that_something_else_has_are_left_to_it(self):
        self.assertEqual(self.outputs(Returns(lambda y, x: {"x": y, "out": y * 2}))[1], "out")
        self.assertEqual(len(set(self.outputs(Returns(lambda y, x: {"x": y, "y": x * 2, "linear.weight": x * 3})))), 3)

    def test_values_within_the_graph_give_way(self):
        made_by = self.made_by(Returns(lambda y, x: {"mean": y - y.mean(), "root": y.abs().sqrt()}))
        self.assertEqual(made_by, {"mean": "Sub", "root": "Sqrt"})

    def test_no_output_has_the_key_of_another(self):
        # PyTorch's names of the two are "linear" and "exp".
        self.assertEqual(self.made_by(Returns(lambda y, x: {"exp": y, "linear": y.exp()})), {"exp": "Gemm", "linear": "Exp"})
        within = Returns(lambda y, x: {"exp": torch.cond(x.sum() > 0, torch.exp, torch.sqrt, (y,)), "linear": y})
        self.assertEqual(self.made_by(within), {"exp": "If", "linear": "Gemm"})

    def test_one_value_under_two_keys_is_two_outputs(self):
        self.assertEqual(self.made_by(Returns(lambda y, x: {"a": y, "b": y, "c": y})), {"a": "Gemm", "b": "Identity", "c": "Identity"})
        twice = Returns(lambda y, x: (y, y * 2, y))
        self.assertEqual(self.outputs(twice, output_names=["a", "b", "c"]), ["a", "b", "c"])
        self.assertEqual(len(set(self.outputs(twice))), 3)

    def test_given_names_are_those_of_outputs_alone(self):
        # PyTorch's name of what the exponential reads is "linear".
        for results, names in ((lambda y, x: (y.exp(), y * 2), ["linear", "b"]), (lambda y, x: (y, y, y.exp()), ["a", "b", "linear"]),
                               (lambda y, x: (y, y), ["a"])):
            outputs = self.outputs(Returns(results), output_names=names)
            self.assertEqual(outputs[:len(names)], names)
            self.assertEqual(len(set(outputs)), len(outputs))

    def test_an_input_that_forward_returns_keeps_its_name(self):
        graph = self.exported(Returns(lambda y, x: (y, x, x)), output_names=["a", "b", "c"])
        self.assertEqual([value.name for value in (*graph.input, *graph.output)], ["x", "a", "b", "c"])
        self.assertEqual(self.outputs(Returns(lambda y, x: (y, x)), output_names=["a", "x"]), ["a", "x"])

    def test_names_that_outputs_cannot_have_are_refused(self):
        for names in (["x", "b"], ["linear.weight", "b"], ["a", "a"]):
            with self.assertRaisesRegex(ValueError, f"output_names has '{names[0]}', which .* choose another name"):
                self.outputs(Returns(lambda y, x: (y, y * 2)), output_names=names)

    def test_more_names_than_results_are_refused(self):
        with self.assertRaisesRegex(ValueError, "has 3 names, and forward returns 2 tensors; leave 'c' out"):
            self.outputs(Returns(lambda y, x: (y, y * 2)), output_names=["a", "b", "c"])

    def test_keys_of_other_containers_are_names_too(self):
        Pair = collections.namedtuple("Pair", "logits aux")
        self.assertEqual(self.outputs(Returns(lambda y, x: Pair(y, (y * 2, y * 3)))), ["logits", "aux_0", "aux_1"])
        self.assertEqual(self.outputs(Returns(lambda y, x: collections.defaultdict(list, logits=y, aux=y * 2))), ["logits", "aux"])

    def test_results_without_keys_keep_the_names_of_the_exporter(self):
        self.assertEqual(self.outputs(Returns(lambda y, x: y)), ["linear"])
        self.assertEqual(len(self.outputs(Returns(lambda y, x: (y, x * 2)))), 2)

    def test_caches_are_left_out_and_configurations_stay_as_they_are(self):
        module = Generates()
        self.assertEqual(self.outputs(module), ["logits"])
        self.assertEqual((module.config.use_cache, module.second.config.use_cache), (True, False))


if __name__ == "__main__":
    unittest.main()
