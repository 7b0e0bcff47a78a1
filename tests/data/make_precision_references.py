#!/usr/bin/env python3
"""Writes tests/data/precision: a small transformer in float32, its data, and what PyTorch's mixed precision makes of it.

    python tests/data/make_precision_references.py

Made with torch 2.11.0 on the CPU. torch.autocast for the CPU leaves softmax and norms in 16 bits where that for GPUs does
not: they stand outside of it here, so that both would do the same. `reference.json` holds the losses of 20 steps of SGD in
float32, in bfloat16, and in float16 with torch.amp.GradScaler, whose first scale is one at which gradients overflow; of the
last also the scale of every step, and which steps made no update.
"""

import json
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

FOLDER = pathlib.Path(__file__).parent / "precision"
BATCH, TOKENS, WORDS, WIDTH, HEADS = 8, 8, 32, 32, 2
STEPS, RATE, MOMENTUM, SCALE, GROWTH = 20, 0.05, 0.9, 2.0**24, 5


def wide(function, *inputs):
    with torch.autocast("cpu", enabled=False):
        return function(*(value.float() for value in inputs))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def heads(self, x):
        return x.reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.heads(part) for part in self.qkv(wide(self.first, x)).split(WIDTH, dim=-1))
        scores = torch.matmul(q, k.transpose(-2, -1)) * 0.25
        mixed = torch.matmul(wide(lambda s: functional.softmax(s, dim=-1), scores), v)
        x = x + self.out(mixed.transpose(1, 2).reshape(-1, TOKENS, WIDTH))
        return x + self.down(functional.gelu(self.up(wide(self.second, x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(wide(self.norm, x))


def make_model():
    torch.manual_seed(7)
    return Model()


def train(dtype, tokens, labels):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=GROWTH, enabled=dtype is torch.float16)
    losses, scales, skipped = [], [], []
    for step in range(STEPS):
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = model(tokens)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(before)
        if scaler.get_scale() < before:
            skipped.append(step + 1)
    result = {"losses": losses}
    return result if dtype is not torch.float16 else result | {"loss_scales": scales, "skipped_steps": skipped}


def main():
    torch.set_num_threads(1)
    random = np.random.default_rng(3)
    tokens = random.integers(0, WORDS, (BATCH, TOKENS))
    labels = (tokens * 5 + 3) % WORDS
    (FOLDER / "data").mkdir(parents=True, exist_ok=True)
    np.save(FOLDER / "data" / "tokens.npy", tokens)
    np.save(FOLDER / "data" / "label.npy", labels)
    tokens, labels = torch.from_numpy(tokens), torch.from_numpy(labels)
    torch.onnx.export(make_model().train(), (tokens,), str(FOLDER / "model.onnx"), dynamo=True, optimize=False,
                      input_names=["tokens"], output_names=["logits"], dynamic_shapes={"tokens": {0: "batch"}},
                      external_data=False, verbose=False)
    reference = {"steps": STEPS, "lr": RATE, "momentum": MOMENTUM, "loss_scale": SCALE, "loss_scale_growth": GROWTH,
                 "float32": train(None, tokens, labels), "bf16": train(torch.bfloat16, tokens, labels),
                 "fp16": train(torch.float16, tokens, labels)}
    (FOLDER / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")


main()
