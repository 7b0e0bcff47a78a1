"""An image encoder and a text encoder side by side, joined by a contrastive loss, in the manner of CLIP."""

import math

import torch
from torch import nn

from models import Example
from models.blocks import Block

WIDTH, HEADS, LAYERS = 16, 2, 2
VOCABULARY, LENGTH = 40, 8
SIZE, PATCH = 8, 4


class ImageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.positions = nn.Parameter(0.1 * torch.randn((SIZE // PATCH) ** 2, WIDTH))
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.project(self.norm(x).mean(1))


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS, causal=True) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, text):
        x = self.tokens(text) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.project(self.norm(x)[:, -1])


class ClipLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_encoder = ImageEncoder()
        self.text_encoder = TextEncoder()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        image = self.image_encoder(image)
        text = self.text_encoder(text)
        image = image / image.norm(dim=-1, keepdim=True)
        text = text / text.norm(dim=-1, keepdim=True)
        return self.logit_scale.exp() * image @ text.t()


def loss(outputs, labels):
    del labels
    (similarity,) = outputs
    target = torch.arange(similarity.shape[0])
    rows = nn.functional.cross_entropy(similarity, target)
    columns = nn.functional.cross_entropy(similarity.t(), target)
    return (rows + columns) / 2


def example() -> Example:
    module = ClipLike()
    inputs = {
        "image": torch.randn(16, 3, SIZE, SIZE),
        "text": torch.randint(0, VOCABULARY, (16, LENGTH)),
    }
    return Example(module, inputs, {}, ["similarity"], "contrastive:similarity", loss)
