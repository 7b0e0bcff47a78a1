"""A multi-modal Transformer of four branches that are concatenated at the end, after GraphPipe's MMT
(ASPLOS 2025, section 7.1), scaled down."""

import torch
from torch import nn

from models import Example
from models.blocks import Block

BRANCHES, LAYERS, WIDTH, HEADS, LENGTH, CLASSES = 4, 2, 16, 2, 6, 10


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(LAYERS))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


class MultiModalTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(Branch() for _ in range(BRANCHES))
        self.head = nn.Linear(BRANCHES * WIDTH, CLASSES)

    def forward(self, video, audio, text, depth):
        parts = [branch(x) for branch, x in zip(self.branches, (video, audio, text, depth))]
        return self.head(torch.cat(parts, dim=-1))


def loss(outputs, labels):
    return nn.functional.cross_entropy(outputs[0], labels["label"])


def example() -> Example:
    module = MultiModalTransformer()
    inputs = {name: torch.randn(16, LENGTH, 12) for name in ("video", "audio", "text", "depth")}
    labels = {"label": torch.randint(0, CLASSES, (16,))}
    return Example(module, inputs, labels, ["logits"], "cross_entropy:logits,label", loss)
