"""A recommendation model: dense towers and embedding bags side by side, then an interaction network, after DLRM."""

import torch
from torch import nn

from models import Example

SPARSE, ROWS, BAG, EMBED, WIDTH = 3, 50, 4, 8, 24


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(13, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(ROWS, EMBED) for _ in range(SPARSE))
        self.top = nn.Sequential(
            nn.Linear(WIDTH + SPARSE * EMBED, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
        )

    def forward(self, features, site, user, item):
        bags = [table(ids).sum(1) for table, ids in zip(self.tables, (site, user, item))]
        return self.top(torch.cat([self.dense(features), *bags], dim=-1)).squeeze(-1)


def loss(outputs, labels):
    return nn.functional.binary_cross_entropy_with_logits(outputs[0], labels["click"])


def example() -> Example:
    module = Dlrm()
    inputs = {"features": torch.randn(16, 13)}
    inputs |= {name: torch.randint(0, ROWS, (16, BAG)) for name in ("site", "user", "item")}
    labels = {"click": torch.randint(0, 2, (16,)).float()}
    return Example(module, inputs, labels, ["logit"], "bce:logit,click", loss)
