"""graphpipe.export against PyTorch's exporter: the batch stays open, or the module is refused. Needs torch and onnx."""

import copy
import itertools
import json
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import onnx
import torch
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import graphpipe  # noqa: E402
from graphpipe.program import _load  # noqa: E402
from graphpipe.refusals import way_out  # noqa: E402


class AsksForItsLength(torch.nn.Module):
    """As the contrastive loss of CLIP in transformers does."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return torch.nn.functional.cross_entropy(y @ y.T, torch.arange(len(y)))


class FixesIt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        rows = [self.linear(x[i]) for i in range(x.shape[0])]
        return torch.stack(rows)


class Chooses(torch.nn.Module):
    """One of two branches, which alone read the second layer."""

    def __init__(self, without_gradients=False):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.without_gradients = without_gradients

    def forward(self, x):
        def doubled(h):
            if not self.without_gradients:
                return 2 * self.second(h)
            with torch.no_grad():
                return 2 * self.second(h)

        h = self.first(x)
        return torch.cond(h.sum() > 0, doubled, lambda h: self.second(h), (h,))


class Rotates(torch.nn.Module):
    """By complex numbers, as Llama 4 and DeepSeek V2 of transformers do."""

    def __init__(self, operator=None):
        super().__init__()
        self.linear, self.operator = torch.nn.Linear(4, 4), operator or (lambda angles: angles.unsqueeze(-2))

    def forward(self, x):
        turned = torch.polar(torch.ones(3, 2), torch.arange(6.0).reshape(3, 2))
        values = torch.view_as_complex(self.linear(x).reshape(-1, 3, 1, 2, 2))
        return torch.view_as_real(values * self.operator(turned)).flatten(2)


class MixesTypes(torch.nn.Module):
    """Parameters and whole numbers, as graph networks do: (1 + epsilon) x."""

    def __init__(self):
        super().__init__()
        self.scale, self.bias = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return (1 + self.scale) * x + self.bias * torch.arange(4)


class ClampsWhatIsNotFinite(torch.nn.Module):
    """As the detectors of transformers do. What is no condition of Python's is computed."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        if not torch.isfinite(y).all():
            y = y.clamp(-1, 1)
        return torch.where(torch.isfinite(y).all(), y, torch.where(torch.isfinite(y).all(1, keepdim=True), y, 0 * y))


class ComputesWithFiniteness(torch.nn.Module):
    """Whether all values are finite, as a number like others."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        are_finite, was_finite = torch.isfinite(y).all(), torch.isfinite(x).all()
        return y * (are_finite & was_finite) + 1.0 * are_finite + (are_finite | was_finite) * y + (are_finite == was_finite)


class AsksAboutMask(torch.nn.Module):
    """A mask that is not finite, which a branch asks about."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf"), 0.0, 0.0]))

    def forward(self, x):
        y = self.linear(x)
        return y if torch.isfinite(self.mask).all() else y.masked_fill(~torch.isfinite(self.mask), 0.0)


class LeavesLayersOut(torch.nn.Module):
    """As the decoders of OPT, BART and Whisper in transformers do."""

    def __init__(self, layerdrop):
        super().__init__()
        self.layerdrop = layerdrop
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            if self.training:
                dropout_probability = torch.rand([])
                if dropout_probability < self.layerdrop:
                    continue
            x = layer(x)
        return x


class PutsPicturesIn(torch.nn.Module):
    """As InternVL and Gemma 3 in transformers do: the features of a picture are put in place of its tokens, once these are counted."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)

    def forward(self, ids, picture):
        is_place = ids == 9
        torch._check_tensor_all(is_place.sum() * 4 == picture.numel())
        return self.words(ids).masked_scatter(is_place.unsqueeze(-1), picture)


class FusedAttention(torch.nn.Module):
    """As T5 and Swin in transformers, and windows with relative positions in timm, have it: with a mask that trains."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 24)
        self.mask = torch.nn.Parameter(torch.zeros(2, 3, 3))

    def forward(self, x):
        q, k, v = self.first(x).view(x.shape[0], 3, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask.unsqueeze(0))
        return seen.reshape(x.shape[0], -1, 3, 4).transpose(1, 2).contiguous().reshape(x.shape[0], 3, 8)


class Tied(torch.nn.Module):
    """As language models whose output layer is the table of their words."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 4, padding_idx=0)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.words(ids).mean(1))


class Export(unittest.TestCase):
    def test_the_batch_stays_open(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(AsksForItsLength(), torch.randn(6, 4), Path(folder) / "model.onnx")
            first = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0]
            self.assertTrue(first.dim_param)
            self.assertTrue(Path(f"{path}.module.json").exists())

    def test_a_module_that_fixes_the_batch_is_refused_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "batch of 'x' at 6"):
                graphpipe.export(FixesIt(), {"x": torch.randn(6, 4)}, Path(folder) / "model.onnx")
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_cross_entropy_of_probabilities_is_exported_as_pytorch_computes_it(self):
        class Distils(torch.nn.Module):
            def __init__(self, turned, **options):
                super().__init__()
                self.scores, self.turned = torch.nn.Linear(4, 7), turned
                self.loss = torch.nn.CrossEntropyLoss(**options)

            def forward(self, x, label):
                scores = self.scores(x)
                return self.loss(*(each.transpose(1, 2) if self.turned else each for each in (scores, label)))

        more = {"x": torch.randn(5, 3, 4), "label": torch.randn(5, 3, 7).softmax(2)}  # another batch than the example's
        with tempfile.TemporaryDirectory() as folder:
            for reduction, turned, smoothing, weight in itertools.product(("mean", "sum", "none"), (False, True), (0.0, 0.2),
                                                                          (None, torch.rand(7))):
                options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight}
                module, inputs = Distils(turned, **options), more if turned else {name: value[:, 0] for name, value in more.items()}
                path = graphpipe.export(module, {name: value[:3] for name, value in inputs.items()}, Path(folder) / "model.onnx")
                (found,) = ReferenceEvaluator(str(path)).run(None, {name: value.numpy() for name, value in inputs.items()})
                self.assertTrue(torch.allclose(torch.tensor(found), module(**inputs), atol=1e-5), (turned, options))
            module, inputs = Distils(False, size_average=False), {name: value[:, 0] for name, value in more.items()}
            path = graphpipe.export(module, {name: value[:3] for name, value in inputs.items()}, Path(folder) / "model.onnx")
            (found,) = ReferenceEvaluator(str(path)).run(None, {name: value.numpy() for name, value in inputs.items()})
            self.assertTrue(torch.allclose(torch.tensor(found), module(**inputs), atol=1e-5))
            for refused, classes in ((Distils(False), 6), (Distils(False, reduction="average"), 7)):  # by PyTorch, too
                with self.assertRaisesRegex(ValueError, "PyTorch's exporter refuses"):
                    graphpipe.export(refused, {"x": torch.randn(3, 4), "label": torch.rand(3, classes)}, Path(folder) / "model.onnx")

    def test_layers_that_are_never_left_out_are_exported(self):
        drawn = torch.rand
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(LeavesLayersOut(0.0), torch.randn(6, 4), Path(folder) / "model.onnx")
            self.assertEqual(len(onnx.load(path).graph.initializer), 4)
            with self.assertRaisesRegex(ValueError, "layerdrop is 0.1"):
                graphpipe.export(LeavesLayersOut(0.1), torch.randn(6, 4), Path(folder) / "other.onnx")
        self.assertIs(torch.rand, drawn)

    def test_buffers_that_forward_updates_are_refused_and_those_of_batch_norm_are_not(self):
        class Remembers(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = torch.nn.BatchNorm1d(4)
                self.register_buffer("seen", torch.zeros(4))

            def forward(self, x):
                x = self.norm(x)
                if self.training:
                    self.seen.mul_(0.5).add_(x.detach().mean(0))
                return x - self.seen

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "updates the buffer 'seen'"):
                graphpipe.export(Remembers(), torch.randn(6, 4), Path(folder) / "model.onnx")
            self.assertEqual(list(Path(folder).iterdir()), [])
            norm = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                graphpipe.export(norm, {"input": torch.randn(6, 4)}, Path(folder) / "norm.onnx")
            norm[1].eval()
            with self.assertWarnsRegex(UserWarning, "batchnorm='eval'"):
                graphpipe.export(norm, {"input": torch.randn(6, 4)}, Path(folder) / "frozen.onnx")
            self.assertFalse(norm[1].training)

    def test_what_is_computed_without_gradients_is_detached(self):
        class WithoutGradients(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

            def forward(self, x):
                with torch.no_grad():
                    kept = self.first(x).relu()
                    half = x / 2
                return self.second(kept) + half

        with tempfile.TemporaryDirectory() as folder:
            graph = onnx.load(graphpipe.export(WithoutGradients(), torch.randn(2, 3), Path(folder) / "model.onnx")).graph
        detached = [node.input[0] for node in graph.node if node.op_type == "Identity"]
        relu = next(node.output[0] for node in graph.node if node.op_type == "Relu")
        self.assertIn(relu, detached)
        self.assertNotIn(relu, [name for node in graph.node if node.op_type == "Gemm" for name in node.input])

    def test_an_input_without_a_batch_may_have_any_size(self):
        class Shared(torch.nn.Module):
            def forward(self, x, table):
                return x @ table

        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(Shared(), {"x": torch.randn(6, 4), "table": torch.randn(4, 3)},
                                    Path(folder) / "model.onnx", fixed_batch=["table"])
            sizes = {value.name: value.type.tensor_type.shape.dim[0] for value in onnx.load(path).graph.input}
            self.assertTrue(sizes["x"].dim_param)
            self.assertEqual(sizes["table"].dim_value, 4)

    def test_a_module_without_a_batch_is_one_sample(self):
        class Neighbours(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)

            def forward(self, features, edges):
                return torch.zeros_like(features).index_add(0, edges[1], self.linear(features)[edges[0]])

        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(Neighbours(), {"features": torch.randn(5, 4), "edges": torch.randint(5, (2, 7))},
                                    Path(folder) / "model.onnx", fixed_batch=["features", "edges"])
            dims = [dim for value in onnx.load(path).graph.input for dim in value.type.tensor_type.shape.dim]
            self.assertEqual([dim.dim_value for dim in dims], [5, 4, 2, 7])

    def test_a_mask_that_the_exporter_cannot_look_into_is_refused_with_the_way_out(self):
        class Decoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
                self.layers = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

            def forward(self, x):
                return self.layers(x, mask=torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1]))

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "is_causal=False"):
                graphpipe.export(Decoder(), {"x": torch.randn(2, 4, 8)}, Path(folder) / "model.onnx")

    def test_statistics_of_norms_that_no_file_can_hold_are_refused(self):
        def norm_of(norm):
            return torch.nn.Sequential(torch.nn.Conv1d(3, 4, 1), norm)

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "updates the buffer '1.running_mean', '1.running_var'"):
                graphpipe.export(norm_of(torch.nn.InstanceNorm1d(4, track_running_stats=True)), torch.randn(2, 3, 5), Path(folder) / "m.onnx")
            self.assertEqual(list(Path(folder).iterdir()), [])
            with self.assertRaisesRegex(ValueError, "1: BatchNorm with momentum=None .* momentum=0.1"):
                graphpipe.export(norm_of(torch.nn.BatchNorm1d(4, momentum=None)), torch.randn(2, 3, 5), Path(folder) / "m.onnx")
            graphpipe.export(norm_of(torch.nn.InstanceNorm1d(4, affine=True)), torch.randn(2, 3, 5), Path(folder) / "m.onnx")

    def test_what_models_of_transformers_need_is_said(self):
        module = torch.nn.Identity()
        view = "Cannot view a tensor with shape torch.Size([4, 12, 4, 8]) and strides (384, 8, 96, 1) as a tensor with shape (4, 12, 32)!"
        self.assertIn('attn_implementation="eager"', way_out(ValueError(view + ' File "transformers/models/t5/modeling_t5.py"'), module))
        self.assertEqual(way_out(ValueError(view), module), "")
        self.assertIn("batched_mm", way_out(ValueError("torch.ops.transformers.grouped_mm_fallback.default"), module))
        lacks = ValueError("Error when translating node %k : [num_users=1] = call_function[target=torch.ops.aten.kthvalue.default](args = (%x, 2, 1))")
        self.assertRegex(way_out(lacks, module), "no operator for kthvalue; .*x.sort")

    def test_a_tie_is_one_parameter_in_the_file_and_in_the_module_that_takes_weights_back(self):
        module = Tied()
        taken = copy.deepcopy(module)
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(module, {"ids": torch.randint(10, (6, 3))}, Path(folder) / "model.onnx")
            (table,) = [tensor.name for tensor in onnx.load(path).graph.initializer if list(tensor.dims) == [10, 4]]
            facts = json.loads(Path(f"{path}.module.json").read_text())
        self.assertEqual(facts["ties"], [{"names": ["words.weight", "head.weight"]}])
        self.assertEqual(facts["padding_rows"], [{"parameter": table, "row": 0}])
        trained = torch.randn(10, 4)
        _load(taken, {table: trained})
        self.assertIs(taken.words.weight, taken.head.weight)
        self.assertTrue(torch.equal(taken.head.weight, trained))
        with self.assertRaisesRegex(ValueError, "lacks all of them"):
            _load(taken, {})

    def test_layers_that_are_not_used_are_said_to_be_so(self):
        class Features(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
                self.norm, self.rest = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
                self.tied = torch.nn.Linear(4, 4, bias=False)
                self.tied.weight = self.first.weight

            def forward(self, x):
                return self.norm(self.first(x))

        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(Features(), torch.randn(6, 4), Path(folder) / "model.onnx")
            facts = json.loads(Path(f"{path}.module.json").read_text())
        self.assertEqual(facts["unused"], ["last.bias", "last.weight", "rest.bias", "rest.running_mean", "rest.running_var",
                                           "rest.weight"])

    def test_rotations_by_complex_numbers_are_exported(self):
        with tempfile.TemporaryDirectory() as folder:
            graphpipe.export(Rotates(), torch.randn(2, 3, 4), Path(folder) / "model.onnx")
            with self.assertRaisesRegex(ValueError, "real and imaginary parts"):
                graphpipe.export(Rotates(lambda angles: angles.view(3, 1, 2).cumsum(0)), torch.randn(2, 3, 4), Path(folder) / "other.onnx")

    def test_parameters_and_whole_numbers_are_exported(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(MixesTypes(), torch.randn(6, 4), Path(folder) / "model.onnx")
            self.assertEqual({tensor.name for tensor in onnx.load(path).graph.initializer} & {"scale", "bias"}, {"scale", "bias"})

    def test_values_are_taken_to_be_finite_where_a_branch_asks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(ClampsWhatIsNotFinite(), torch.randn(6, 4), Path(folder) / "model.onnx")
            operators = [node.op_type for node in onnx.load(path).graph.node]
        self.assertNotIn("Clip", operators)
        self.assertEqual(operators.count("Where"), 2)

    def test_whether_values_are_finite_is_a_number_like_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(ComputesWithFiniteness(), torch.randn(6, 4), Path(folder) / "model.onnx")
            operators = [node.op_type for node in onnx.load(path).graph.node]
        self.assertTrue({"And", "Or", "Equal"} <= set(operators), operators)

    def test_a_module_with_values_that_are_not_finite_is_not_said_to_have_finite_ones(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "data-dependent"):
            graphpipe.export(AsksAboutMask(), torch.randn(6, 4), Path(folder) / "model.onnx")

    def test_what_branches_read_is_used(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(Chooses(), torch.randn(6, 4), Path(folder) / "model.onnx")
            self.assertNotIn("unused", json.loads(Path(f"{path}.module.json").read_text()))

    def test_a_branch_without_gradients_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "branch of torch.cond"):
                graphpipe.export(Chooses(without_gradients=True), torch.randn(6, 4), Path(folder) / "model.onnx")

    def test_what_a_module_checks_of_its_numbers_is_left_out(self):
        ids = torch.tensor([[1, 9, 2], [9, 3, 4]])
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(PutsPicturesIn(), {"ids": ids, "picture": torch.randn(2, 1, 4)}, Path(folder) / "model.onnx")
            self.assertNotIn("ReduceSum", [node.op_type for node in onnx.load(path).graph.node])

    def test_fused_attention_with_a_mask_that_trains_is_exported(self):
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(FusedAttention(), torch.randn(2, 3, 8), Path(folder) / "model.onnx")
            self.assertIn("mask", [tensor.name for tensor in onnx.load(path).graph.initializer])

    def test_labels_are_smoothed_as_the_module_smooths_them(self):
        class Smooths(torch.nn.Module):
            def __init__(self, reduction="mean", turned=False, weight=None):
                super().__init__()
                self.scores, self.turned = torch.nn.Linear(4, 7), turned
                self.loss = torch.nn.CrossEntropyLoss(weight, label_smoothing=0.2, ignore_index=3, reduction=reduction)

            def forward(self, x, label):
                scores = self.scores(x)
                return self.loss(scores.transpose(1, 2) if self.turned else scores, label)

        label = torch.tensor([2, 3, 6, 0])
        with tempfile.TemporaryDirectory() as folder:
            for reduction, turned, weight in itertools.product(("mean", "sum", "none"), (False, True), (None, torch.rand(7))):
                x, y = (torch.randn(4, 5, 4), label[:, None] * torch.ones(5, dtype=int)) if turned else (torch.randn(4, 4), label)
                module = Smooths(reduction, turned, weight)
                path = graphpipe.export(module, {"x": x, "label": y}, Path(folder) / "model.onnx")
                (found,) = ReferenceEvaluator(str(path)).run(None, {"x": x.numpy(), "label": y.numpy()})
                self.assertTrue(torch.allclose(torch.tensor(found), module(x, y), atol=1e-5), (reduction, turned, weight))

    def test_ignored_rows_of_smoothed_labels_may_have_infinite_scores(self):
        class Masks(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scores, self.loss = torch.nn.Linear(4, 7), torch.nn.CrossEntropyLoss(torch.rand(7), label_smoothing=0.2)

            def forward(self, x, label):
                return self.loss(self.scores(x).masked_fill((label == -100)[:, None] & (torch.arange(7) > 0), -torch.inf), label)

        x, label, module = torch.randn(4, 4), torch.tensor([2, -100, 6, 0]), Masks()
        self.assertTrue(module(x, label).isfinite())
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(module, {"x": x, "label": label}, Path(folder) / "model.onnx")
            (found,) = ReferenceEvaluator(str(path)).run(None, {"x": x.numpy(), "label": label.numpy()})
            self.assertTrue(torch.allclose(torch.tensor(found), module(x, label), atol=1e-5))

    def test_labels_are_smoothed_where_the_classes_are_the_samples_of_the_batch(self):
        class Contrasts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.images, self.texts = torch.nn.Linear(4, 6), torch.nn.Linear(5, 6)

            def forward(self, image, text):
                scores = self.images(image) @ self.texts(text).T
                return torch.nn.functional.cross_entropy(scores, torch.arange(scores.shape[0]), label_smoothing=0.1)

        module, samples = Contrasts(), {"image": torch.randn(3, 4), "text": torch.randn(3, 5)}
        with tempfile.TemporaryDirectory() as folder:
            path = graphpipe.export(module, samples, Path(folder) / "model.onnx")
            (found,) = ReferenceEvaluator(str(path)).run(None, {name: tensor.numpy() for name, tensor in samples.items()})
        self.assertTrue(torch.allclose(torch.tensor(found), module(**samples), atol=1e-5))

    def test_weights_may_have_more_or_fewer_axes_of_size_one_but_no_other_shape(self):
        norm = torch.nn.LayerNorm(3)
        _load(norm, {"weight": torch.tensor([[[1.0, 2.0, 3.0]]])})
        self.assertEqual(norm.weight.tolist(), [1, 2, 3])
        _load(norm, {"weight": torch.tensor([[[3.0], [2.0], [1.0]]])})
        self.assertEqual(norm.weight.tolist(), [3, 2, 1])
        with self.assertRaisesRegex(ValueError, "shape"):
            _load(norm, {"weight": torch.ones(3, 3)})
        with self.assertRaisesRegex(ValueError, "shape"):
            _load(torch.nn.Linear(8, 1), {"weight": torch.nn.Linear(1, 8).weight})
        with self.assertRaisesRegex(ValueError, "rows of tables"):
            _load(norm, {"weight": torch.ones(3), "embedding_1": torch.ones(1, 3)})
        for name in ("embedding_1_rows", "embedding"):
            with self.assertRaisesRegex(ValueError, "rows of tables"):
                _load(norm, {"weight": torch.ones(3), name: torch.ones(1, 3)})
        with self.assertRaisesRegex(ValueError, "lacks .*embedding_table"):
            _load(norm, {"weight": torch.ones(3), "embedding_table": torch.ones(1, 3)})


if __name__ == "__main__":
    unittest.main()
