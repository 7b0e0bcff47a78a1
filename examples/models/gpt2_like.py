"""A decoder in the manner of GPT-2 whose token embedding is also its output layer: one weight, two uses."""

import torch
from torch import nn

from models import Example
from models.blocks import Block

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 48, 8, 16, 2, 3


class Gpt2Like(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS, causal=True) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(outputs, labels):
    # Positions labelled -100 do not count, as in PyTorch.
    return nn.functional.cross_entropy(outputs[0].flatten(0, 1), labels["label"].flatten(), ignore_index=-100)


def example() -> Example:
    module = Gpt2Like()
    tokens = torch.randint(0, VOCABULARY, (16, LENGTH + 1))
    label = tokens[:, 1:].clone()
    label[torch.rand(label.shape) < 0.15] = -100
    return Example(module, {"tokens": tokens[:, :-1].contiguous()}, {"label": label}, ["logits"],
                   "cross_entropy:logits,label", loss)
