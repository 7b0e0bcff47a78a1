#!/usr/bin/env python3
"""Exports small models in the ways users do and trains each in PyTorch: tests/data/exports/NAME/, as make_references.py.

    python tests/data/make_exports.py tests/data/exports [NAME...]

bags: nn.EmbeddingBag of each mode, the dynamo exporter. lstm: a bidirectional LSTM, TorchScript, opset 17. decoder:
RMSNorm, rotary embedding and grouped queries, TorchScript, opset 15 (eval and constant folding, as many still export).
unet: ConvTranspose and GroupNorm, TorchScript in training mode. bert: Hugging Face's, TorchScript; no token is 0, whose row
PyTorch does not train (padding_idx), which ONNX cannot say. gpt2_labels: Hugging Face's with its own loss over labels, of
which another number counts in every sample, the dynamo exporter. tasks: a loss of two tasks with labels of their own, weighed by
their uncertainty, and of a third over all samples, the dynamo exporter; stacked_tasks: the same in one tensor. messages: what the dynamo exporter writes no operator for and says
in a node's metadata: a table whose padding is not trained, means of
scattered messages, and a value that is detached. one_graph: one sample, without a
batch, the dynamo exporter. picked: rows that masks pick (masked_scatter, experts with index_add, x[mask] = y), the dynamo exporter;
last_of_each: the same and x[mask].view(B, -1, ...)[:, -1], TorchScript, which index_add leaves without its reduction.
optimised: as the dynamo exporter writes by default, so that parameters which began alike have one tensor, zero biases are left out
and weights transposed. folded: likewise, so that tensors are there which it has computed from parameters, some for several. decided: a loop that data end and a branch that they choose, quantized: eight bits of inputs and of a weight, both as text.
The order of an If's outputs in bags varies from export to export, so its bytes do.
Made with torch 2.11.0, onnx 1.23.2, onnxscript 0.7.2, transformers 5.23.0.
"""

import copy
import io
import json
import pathlib
import sys
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional as F

import make_references as references
from models import Example
import export

SAMPLES = 16


def cross_entropy(outputs, labels):
    logits, label = outputs[0], labels["label"]
    return F.cross_entropy(logits.flatten(0, 1), label.flatten()) if logits.dim() == 3 else F.cross_entropy(logits, label)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 6, mode=mode) for mode in ("sum", "mean", "max"))
        self.dense, self.head = nn.Linear(5, 6), nn.Linear(24, 1)

    def forward(self, dense, sparse):
        looked_up = [bag(sparse[:, i]) for i, bag in enumerate(self.bags)]
        return self.head(torch.cat([F.relu(self.dense(dense)), *looked_up], 1)).squeeze(1)


def bags():
    inputs = {"dense": torch.randn(SAMPLES, 5), "sparse": torch.randint(0, 20, (SAMPLES, 3, 4))}
    return Example(Bags(), inputs, {"click": torch.rand(SAMPLES).round()}, ["logit"], "bce:logit,click",
                   lambda outputs, labels: F.binary_cross_entropy_with_logits(outputs[0], labels["click"]))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(30, 8), nn.Linear(12, 10)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)

    def forward(self, tokens):
        return self.head(self.lstm(self.table(tokens))[0])


def lstm():
    return Example(Lstm(), {"tokens": torch.randint(0, 30, (SAMPLES, 5))},
                   {"label": torch.randint(0, 10, (SAMPLES, 5))}, ["logits"], "cross_entropy:logits,label",
                   cross_entropy)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Decoder(nn.Module):
    def __init__(self, words=32, width=16, heads=4, shared=2, length=6):
        super().__init__()
        self.heads, self.shared, self.depth = heads, shared, width // heads
        self.table, self.norm1, self.norm2 = nn.Embedding(words, width), RmsNorm(width), RmsNorm(width)
        self.q, self.o = nn.Linear(width, width, False), nn.Linear(width, width, False)
        self.k, self.v = (nn.Linear(width, shared * self.depth, False) for _ in range(2))
        self.gate, self.up, self.down = nn.Linear(width, 24, False), nn.Linear(width, 24, False), nn.Linear(24, width)
        self.head = nn.Linear(width, words, False)
        angles = torch.outer(torch.arange(length).float(), 100.0 ** -(torch.arange(0, self.depth, 2) / self.depth))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, tokens):
        samples, length = tokens.shape
        x = self.table(tokens)
        h = self.norm1(x)
        split = lambda y, heads: y.view(samples, length, heads, self.depth).transpose(1, 2)
        q, k = self.turn(split(self.q(h), self.heads)), self.turn(split(self.k(h), self.shared))
        k, v = (y.repeat_interleave(self.heads // self.shared, 1) for y in (k, split(self.v(h), self.shared)))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(seen.transpose(1, 2).reshape(samples, length, -1))
        h = self.norm2(x)
        return self.head(x + self.down(F.silu(self.gate(h)) * self.up(h)))


def decoder():
    return Example(Decoder(), {"tokens": torch.randint(0, 32, (SAMPLES, 6))},
                   {"label": torch.randint(0, 32, (SAMPLES, 6))}, ["logits"], "cross_entropy:logits,label",
                   cross_entropy)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.SiLU())
        self.down, self.inner, self.join = block(3, 4), block(4, 8), block(8, 4)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(4, 3, 1)

    def forward(self, image):
        a = self.down(image)
        b = self.inner(F.max_pool2d(a, 2))
        return self.out(self.join(torch.cat([a, self.up(b)], 1)))


def unet():
    return Example(UNet(), {"image": torch.randn(SAMPLES, 3, 8, 8)}, {"label": torch.randint(0, 3, (SAMPLES, 8, 8))},
                   ["mask"], "cross_entropy:mask,label", cross_entropy)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        self.model = BertForSequenceClassification(BertConfig(
            vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=12, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager"))

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def bert():
    mask = torch.ones(SAMPLES, 8, dtype=torch.int64)
    mask[::2, 6:] = 0
    return Example(Bert(), {"input_ids": torch.randint(1, 32, (SAMPLES, 8)), "attention_mask": mask},
                   {"label": torch.randint(0, 3, (SAMPLES,))}, ["logits"], "cross_entropy:logits,label", cross_entropy)


class Gpt2(nn.Module):
    """transformers' GPT-2 with its own loss: cross entropy of shifted labels, mean over those that are not -100."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model = GPT2LMHeadModel(GPT2Config(
            vocab_size=32, n_positions=10, n_embd=16, n_layer=2, n_head=2, n_inner=24, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0, attn_implementation="eager"))

    def forward(self, input_ids, labels):
        outputs = self.model(input_ids=input_ids, labels=labels, use_cache=False)
        return outputs.loss, outputs.logits


def gpt2_labels():
    tokens = torch.randint(0, 32, (SAMPLES, 8))
    labels = tokens.clone()
    for sample, prompt in enumerate([0, 5, 8, 8, 1, 7, 3, 6] * (SAMPLES // 8)):
        labels[sample, :prompt] = -100  # two neighbours without any label that counts
    return Example(Gpt2(), {"input_ids": tokens, "labels": labels}, {}, ["loss", "logits"], "output:loss",
                   lambda outputs, _: outputs[0][0])


class Tasks(nn.Module):
    """Two classes of a sample, weighed by their uncertainty (Kendall et al., CVPR 2018), and a number."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh())
        self.first, self.second, self.number = nn.Linear(16, 5), nn.Linear(16, 7), nn.Linear(16, 1)
        self.doubts = nn.ParameterList(nn.Parameter(torch.tensor(doubt)) for doubt in (0.3, -0.2))

    def losses(self, x, first, second, number):
        rows = self.body(x)
        return (F.cross_entropy(self.first(rows), first), F.cross_entropy(self.second(rows), second, ignore_index=-1),
                F.mse_loss(self.number(rows).squeeze(1), number))

    def forward(self, x, first, second, number):
        *losses, of_number = self.losses(x, first, second, number)
        weighed = sum(torch.exp(-doubt) * loss + doubt for doubt, loss in zip(self.doubts, losses))
        return weighed + 0.5 * of_number


class StackedTasks(Tasks):
    """Their losses side by side: each by itself, and weighed by a row."""

    def __init__(self):
        super().__init__()
        self.doubts = None
        self.row = nn.Parameter(torch.tensor([0.3, -0.2, 0.1]))

    def forward(self, x, first, second, number):
        losses = torch.stack(self.losses(x, first, second, number))
        return losses[0] + 0.5 * losses[1] + 0.25 * losses[2] + self.row @ losses


def tasks(module=Tasks):
    first, second = torch.randint(0, 5, (SAMPLES,)), torch.randint(0, 7, (SAMPLES,))
    places = torch.arange(SAMPLES)
    first[places % 8 < 3] = -100  # a micro-batch of two without any label that counts
    second[places % 3 > 0] = -1
    inputs = {"x": torch.randn(SAMPLES, 8), "first": first, "second": second, "number": torch.randn(SAMPLES)}
    return Example(module(), inputs, {}, ["loss"], "output:loss", lambda outputs, _: outputs[0])


class Messages(nn.Module):
    """A graph convolution: each node gets the mean of its neighbours' messages."""

    def __init__(self):
        super().__init__()
        self.table, self.dense, self.head = nn.Embedding(12, 6, padding_idx=3), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, kinds, senders, receivers):
        nodes = self.table(kinds)
        wide = lambda index: index.unsqueeze(-1).expand(-1, -1, 6)
        messages = torch.gather(torch.tanh(self.dense(nodes)), 1, wide(senders))
        means = nodes.scatter_reduce(1, wide(receivers), messages, "mean")
        weight = torch.sigmoid(nodes.sum(1).detach())  # of which no gradient comes back
        return self.head(means.sum(1) * weight).squeeze(1)


def messages():
    kinds = torch.randint(0, 5, (SAMPLES, 7))  # one in five is the padding
    senders, receivers = torch.randint(0, 7, (SAMPLES, 9)), torch.randint(0, 5, (SAMPLES, 9))
    return Example(Messages(), {"kinds": kinds, "senders": senders, "receivers": receivers},
                   {"target": torch.randn(SAMPLES)}, ["score"], "mse:score,target",
                   lambda outputs, labels: F.mse_loss(outputs[0], labels["target"]))


class Experts(nn.Module):
    """Two of three experts for each word, as transformers writes mixtures: the rows that a mask picks go through each."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, 3, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 12), nn.SiLU(), nn.Linear(12, width)) for _ in range(3))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = torch.topk(torch.softmax(self.gate(rows), -1), 2, dim=-1)
        masks = F.one_hot(chosen, 3).permute(2, 1, 0)
        sums = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            rank, row = torch.where(masks[i])
            sums.index_add_(0, row, expert(rows[row]) * weights[row, rank, None])
        return sums.reshape(x.shape)


class Pictures(nn.Module):
    """A picture's features in the places of word 9 (masked_scatter), and experts."""

    def __init__(self):
        super().__init__()
        self.table, self.features, self.experts = nn.Embedding(10, 8), nn.Linear(5, 8), Experts(8)
        self.head = nn.Linear(8, 3)

    def hidden(self, words, picture):
        x = self.table(words)
        x = x.masked_scatter((words == 9).unsqueeze(-1).expand_as(x), self.features(picture))
        return x + self.experts(x)


class Picked(Pictures):
    """Some places are written, by a parameter and by what was read there."""

    def __init__(self):
        super().__init__()
        self.mark = nn.Parameter(torch.randn(8))

    def forward(self, words, picture):
        x = self.hidden(words, picture).clone()
        x[words == 1] = self.mark
        x[words == 2] = x[words == 2] * 2
        return self.head(x.mean(1))


class LastOfEach(Pictures):
    """Of the last end of sentence, word 1, in each sample: transformers' heads that classify a BART's or T5's text."""

    def forward(self, words, picture):
        x = self.hidden(words, picture)
        return self.head(x[words == 1].view(words.shape[0], -1, x.shape[-1])[:, -1])


def words_with_places():
    """Seven words, of which two are 9 and two are 1, in any order."""
    rows = [torch.cat([torch.tensor([9, 9, 1, 1]), torch.randint(2, 9, (3,))])[torch.randperm(7)] for _ in range(SAMPLES)]
    return torch.stack(rows)


def picked(module=Picked):
    return Example(module(), {"words": words_with_places(), "picture": torch.randn(SAMPLES, 2, 5)},
                   {"label": torch.randint(0, 3, (SAMPLES,))}, ["logits"], "cross_entropy:logits,label", cross_entropy)


def last_of_each():
    return picked(LastOfEach)


class Decided(nn.Module):
    """Data decide after how many rounds a loop ends, and which branch is taken; both look at the whole batch."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(6, 6) * 0.55), nn.Parameter(torch.randn(6, 1))

    def forward(self, x, flags):
        for _ in range(5):
            x = torch.tanh(x @ self.weight)
            if x.abs().max() <= 0.75:
                break
        x = torch.sqrt(x.abs() + 0.125) if flags.max() > 0.5 else x @ self.weight
        return x @ self.head


# No exporter of PyTorch gives such a loop the bound that it has.
DECIDED = """<ir_version: 10, opset_import: ["" : 21]> decided (float[N,6] x, float[N] flags) => (float[N,1] score) {
  rounds = Constant<value_int = 5>()
  yes = Constant<value = bool {1}>()
  h = Loop(rounds, yes, x) <body = round (int64 i, bool go, float[N,6] before) => (bool on, float[N,6] after) {
    product = MatMul(before, weight)
    after = Tanh(product)
    sizes = Abs(after)
    largest = ReduceMax<keepdims = 0>(sizes)
    small = Constant<value_float = 0.75>()
    on = Greater(largest, small) }>
  flag = ReduceMax<keepdims = 0>(flags)
  limit = Constant<value_float = 0.5>()
  up = Greater(flag, limit)
  chosen = If(up) <then_branch = yes_branch () => (float[N,6] a) {
      size = Abs(h)
      eighth = Constant<value_float = 0.125>()
      more = Add(size, eighth)
      a = Sqrt(more) }, else_branch = no_branch () => (float[N,6] b) { b = MatMul(h, weight) }>
  score = MatMul(chosen, head)
}"""


def decided():
    return Example(Decided(), {"x": torch.randn(SAMPLES, 6), "flags": torch.randn(SAMPLES)},
                   {"target": torch.randn(SAMPLES, 1)}, ["score"], "mse:score,target",
                   lambda outputs, labels: F.mse_loss(outputs[0], labels["target"]))


class Quantized(nn.Module):
    """Inputs and the last weight have eight bits; what lies between is trained."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6) * 0.5)
        self.register_buffer("codes", torch.randint(-128, 128, (6, 3)).to(torch.int8))
        self.register_buffer("scale", torch.rand(3) * 0.02)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.0625, 0, -128, 127)
        return torch.tanh(x @ self.weight) @ (self.codes * self.scale)


QUANTIZED = """<ir_version: 10, opset_import: ["" : 21]> quantized (float[N,6] x) => (float[N,3] y) {
  step = Constant<value_float = 0.0625>()
  zero = Constant<value = int8 {0}>()
  coded = QuantizeLinear(x, step, zero)
  near = DequantizeLinear(coded, step, zero)
  product = MatMul(near, weight)
  hidden = Tanh(product)
  last = DequantizeLinear<axis = 1>(codes, scale)
  y = MatMul(hidden, last)
}"""


def quantized():
    return Example(Quantized(), {"x": torch.randn(SAMPLES, 6)}, {"target": torch.randn(SAMPLES, 3)}, ["y"], "mse:y,target",
                   lambda outputs, labels: F.mse_loss(outputs[0], labels["target"]))


class Optimised(nn.Module):
    """All that the exporter's optimiser merges, transposes and leaves out of a module that is not trained yet."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.inner = nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scale, self.gain = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))
        self.conv, self.norm1, self.norm2 = nn.Conv2d(2, 16, 3), nn.GroupNorm(4, 16), nn.GroupNorm(4, 16)
        for layer in (self.inner, self.conv):
            nn.init.zeros_(layer.bias)

    def forward(self, tokens, image):
        seen = self.norm2(torch.tanh(self.norm1(self.conv(image)))).mean((2, 3))
        hidden = self.encoder(self.table(tokens)) * self.scale + self.gain * seen[:, None]
        return F.linear(torch.tanh(self.inner(self.norm(hidden))), self.table.weight)


def optimised():
    inputs = {"tokens": torch.randint(0, 20, (SAMPLES, 5)), "image": torch.randn(SAMPLES, 2, 6, 6)}
    return Example(Optimised(), inputs, {"label": torch.randint(0, 20, (SAMPLES, 5))}, ["logits"],
                   "cross_entropy:logits,label", cross_entropy)


class FoldedBlock(nn.Module):
    """Parameters that calls take as views, as PoolFormer, Falcon and Mamba have them."""

    def __init__(self):
        super().__init__()
        self.layer_scale_1, self.layer_scale_2 = nn.Parameter(torch.full((8,), 0.5)), nn.Parameter(torch.full((8,), 0.5))
        self.kernel, self.a_log = nn.Parameter(torch.randn(8, 1, 3)), nn.Parameter(torch.arange(1.0, 9).log())
        self.widen, self.narrow = nn.Parameter(torch.randn(12, 8) / 3), nn.Parameter(torch.randn(8, 12) / 3)

    def forward(self, x):
        seen = F.conv1d(F.pad(x, (2, 0)), self.kernel.squeeze(1).unsqueeze(1), groups=8)
        x = x + self.layer_scale_1.unsqueeze(-1) * torch.tanh(seen)
        wide = torch.relu(x.transpose(1, 2) @ self.widen.T)
        x = x + self.layer_scale_2.unsqueeze(-1) * (wide @ self.narrow.T).transpose(1, 2)
        decay = -torch.exp(self.a_log)
        return torch.exp(torch.sigmoid(x) * decay[None, :, None])


class Folded(nn.Module):
    """What the exporter's optimiser computes from parameters; those of the two blocks begin alike, in part."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(FoldedBlock() for _ in range(2))
        self.classes, self.logit_scale = nn.Parameter(torch.randn(6, 8) / 3), nn.Parameter(torch.tensor(2.6592))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.mean(2) @ self.classes.t() * self.logit_scale.exp()


def folded():
    return Example(Folded(), {"x": torch.randn(SAMPLES, 8, 5)}, {"label": torch.randint(0, 6, (SAMPLES,))}, ["logits"],
                   "cross_entropy:logits,label", cross_entropy)


class OneGraph(nn.Module):
    """A graph convolution of one graph, without a batch: features [nodes, 4] and edges [2, edges] in, scores out."""

    def __init__(self):
        super().__init__()
        self.own, self.of_neighbours, self.head = nn.Linear(4, 8), nn.Linear(4, 8, bias=False), nn.Linear(8, 2)

    def forward(self, features, edges):
        messages = self.of_neighbours(features)[edges[0]]
        sums = torch.zeros(features.shape[0], 8).index_add(0, edges[1], messages)
        return self.head(torch.relu(self.own(features) + sums))


class EachGraph(OneGraph):
    def forward(self, features, edges):
        return torch.stack([OneGraph.forward(self, *graph) for graph in zip(features, edges)])


def one_graph():
    return Example(EachGraph(), {"features": torch.randn(SAMPLES, 5, 4), "edges": torch.randint(0, 5, (SAMPLES, 2, 9))},
                   {"target": torch.randn(SAMPLES, 5, 2)}, ["scores"], "mse:scores,target",
                   lambda outputs, labels: F.mse_loss(outputs[0], labels["target"]))


TRAINING = dict(do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)
# Name -> the example, and what TorchScript's exporter is told; None for the dynamo exporter, BY_DEFAULT and WITH_PLACES for it with its
# optimiser, for one sample without a batch the module that computes it, and for what no exporter writes the model as text.
BY_DEFAULT, WITH_PLACES = object(), object()
EXPORTS = {"bags": (bags, None), "lstm": (lstm, dict(opset_version=17, **TRAINING)),
           "decoder": (decoder, dict(opset_version=15)), "unet": (unet, TRAINING), "bert": (bert, TRAINING),
           "gpt2_labels": (gpt2_labels, None), "tasks": (tasks, None),
           "stacked_tasks": (lambda: tasks(StackedTasks), None),
           "messages": (messages, None), "one_graph": (one_graph, OneGraph),
           "picked": (picked, None), "last_of_each": (last_of_each, dict(opset_version=17, **TRAINING)),
           "optimised": (optimised, BY_DEFAULT), "folded": (folded, WITH_PLACES),
           "decided": (decided, DECIDED), "quantized": (quantized, QUANTIZED)}


def load(name: str) -> Example:
    torch.manual_seed(20250325)
    return EXPORTS[name][0]()


def export_script(example: Example, options: dict, path: pathlib.Path) -> None:
    module = copy.deepcopy(example.module).train("training" in options)
    names = list(example.inputs)
    stored = io.BytesIO()
    torch.onnx.export(module, tuple(tensor[:7] for tensor in example.inputs.values()), stored, dynamo=False,
                      input_names=names, output_names=example.output_names,
                      dynamic_axes={name: {0: "batch"} for name in names}, **options)
    model = onnx.load_from_string(stored.getvalue())
    for node in model.graph.node:
        node.doc_string = ""  # where in the exporting machine's files the node comes from
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def export_one_sample(example: Example, module: nn.Module, path: pathlib.Path) -> None:
    module.load_state_dict(example.module.state_dict())
    model = torch.onnx.export(module, tuple(tensor[0] for tensor in example.inputs.values()), dynamo=True, optimize=False,
                              input_names=list(example.inputs), output_names=example.output_names).model_proto
    remove_notes(model.graph)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def export_by_default(example: Example, path: pathlib.Path, places: bool) -> None:
    """Keeps what the exporter says of the calls that take parameters, or of all and of what was computed beforehand."""
    batch = torch.export.Dim("batch", min=2)
    model = torch.onnx.export(example.module.train(), tuple(tensor[:7] for tensor in example.inputs.values()), dynamo=True,
                              input_names=list(example.inputs), output_names=example.output_names,
                              dynamic_shapes=tuple({0: batch} for _ in example.inputs)).model_proto
    if places:
        shorten_notes(model.graph)
    else:
        remove_notes(model.graph, ["%p_"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


# What a scattered mean, and the table with padding of `messages`, were exported from.
TELLING_CALLS = ("aten.scatter_reduce.two](args", "aten.embedding.default](args = (%p_table_weight, %kinds, 3", "aten.detach.default")


def write_text(example: Example, model_text: str, path: pathlib.Path) -> None:
    model = onnx.parser.parse_model(model_text)
    for name, tensor in example.module.state_dict().items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(tensor.numpy(), name))
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def shorten_notes(graph) -> None:
    """Leaves the calls of nodes, their modules and lines, without the exporting machine's paths, and what was folded."""
    for node in graph.node:
        kept = [item for item in node.metadata_props if item.key.endswith(("fx_node", "name_scopes", "stack_trace"))]
        for item in kept:
            if item.key.endswith("stack_trace"):
                path, line = item.value.rsplit('File "', 1)[1].split('"', 1)
                item.value = f'File "{pathlib.Path(path).name}"{line}'
        kept = [copy.deepcopy(item) for item in kept]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)


def remove_notes(graph, telling=TELLING_CALLS) -> None:
    """Leaves what the dynamo exporter says of the graph, and drops what it says of each node but the calls that tell more."""
    for holder in [*graph.node, *graph.value_info, *graph.input, *graph.output]:
        kept = [item for item in holder.metadata_props if item.key.endswith("fx_node") and any(c in item.value for c in telling)]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                remove_notes(attribute.g, telling)


def write(name: str, folder: pathlib.Path) -> None:
    options = EXPORTS[name][1]
    if options is None:
        path = folder / "model.onnx"
        export.export_onnx(load(name), path, TELLING_CALLS)
        model = onnx.load(path)
        remove_notes(model.graph)
        path.write_bytes(model.SerializeToString(deterministic=True))
    elif options in (BY_DEFAULT, WITH_PLACES):
        export_by_default(load(name), folder / "model.onnx", options is WITH_PLACES)
    elif isinstance(options, str):
        write_text(load(name), options, folder / "model.onnx")
    elif isinstance(options, dict):
        export_script(load(name), options, folder / "model.onnx")
    else:
        export_one_sample(load(name), options(), folder / "model.onnx")
    example = load(name)
    export.write_data(example, folder / "data")
    losses, gradients, weights = references.train(example, references.BATCH, references.RUNS["sgd"])
    record = {"loss": example.loss_flag, "batch": references.BATCH, "steps": references.STEPS,
              "optimizers": {"sgd": {str(references.BATCH): {"losses": losses}}},
              "versions": {"torch": torch.__version__.split("+")[0], "onnx": onnx.__version__}}
    (folder / "reference.json").write_text(json.dumps(record, indent=1) + "\n")
    prefix = str(references.BATCH)
    tensors = {f"gradient/{prefix}/{key}": value for key, value in gradients.items() if value is not None}
    tensors |= {f"weight/{prefix}/{key}": value for key, value in weights.items()}
    references.write_safetensors(folder / "reference.safetensors", tensors)


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/exports")
    for name in sys.argv[2:] or EXPORTS:
        write(name, root / name)
        print(f"{root / name}: done")


if __name__ == "__main__":
    main()
