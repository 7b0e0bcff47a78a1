#!/usr/bin/env python3
"""Writes tests/data/policy_references.txt: twenty steps of every optimizer, in PyTorch, as synchronous and as delayed updates.

    python tests/data/make_policy_references.py tests/data/policy_references.txt

Made with torch 2.11.0. The model is that of tests/runtime/chain_plan.h with a batch of 8 samples, the optimizers are those of
make_optimizer_references.py (torch.optim where it has them), one for each parameter; the first weight counts as a table.

    case STAGES MODE OPTIMIZER flags...
    losses ...            of every step: the mean over its samples, each with the weights that its forward had
    weight NAME ...       after the last step

A mode says which weights a sample's forward and backward have, and after which samples an update follows:

    synchronous     those that the step begins with; one update, by PyTorch's gradient of the whole batch
    stashing        PipeDream (Narayanan et al., SOSP 2019, section 3.3): stage s of P lacks the last P - 1 - s updates; an
                    update after every sample
    vertical-sync   the same paper: all stages lack the last P - 1 updates
    double-buffer   PipeDream-2BW (Narayanan et al., ICML 2021, section 3.1): W(t+1) = W(t) - f(gradient at W(t-1)), updates of
                    P samples
    server          two workers on one stage: each sample lacks the update of the one before it

Each step drains the pipeline: its first samples lack nothing. The runs of Adam, AdamW and LAMB have a large epsilon: with a
small one the sign of a gradient that is rounding alone decides a whole update.
"""

import math
import sys

import torch

from make_optimizer_references import Lamb, Muon, RowWiseAdagrad, numbers

WIDTH, BATCH, STEPS = 6, 8, 20
optim = torch.optim

# Of a parameter that is a table, a matrix or else: the flags of `run`, and the other implementation.
OPTIMIZERS = {
    "sgd": ("--lr 0.05 --momentum 0.9 --nesterov --weight-decay 0.01", lambda p, kind: optim.SGD(
        [p], lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)),
    "adam": ("--lr 0.01 --betas 0.8,0.95 --eps 0.03 --weight-decay 0.1", lambda p, kind: optim.Adam(
        [p], lr=0.01, betas=(0.8, 0.95), eps=0.03, weight_decay=0.1)),
    "adamw": ("--lr 0.01 --betas 0.8,0.95 --eps 0.03 --weight-decay 0.1", lambda p, kind: optim.AdamW(
        [p], lr=0.01, betas=(0.8, 0.95), eps=0.03, weight_decay=0.1)),
    "lamb": ("--lr 0.01 --betas 0.8,0.95 --eps 0.03 --weight-decay 0.1", lambda p, kind: Lamb(
        [p], lr=0.01, betas=(0.8, 0.95), eps=0.03, weight_decay=0.1)),
    "adagrad": ("--lr 0.02 --eps 1e-6 --weight-decay 0.1", lambda p, kind: optim.Adagrad(
        [p], lr=0.02, eps=1e-6, weight_decay=0.1)),
    "row-wise-adagrad": ("--lr 0.02 --eps 1e-6 --weight-decay 0.1", lambda p, kind: (
        RowWiseAdagrad if kind == "table" else optim.Adagrad)([p], lr=0.02, eps=1e-6, weight_decay=0.1)),
    "muon": ("--lr 0.01 --momentum 0.9 --betas 0.9,0.95 --eps 1e-8 --weight-decay 0.1", lambda p, kind: Muon(
        [p], lr=0.01, momentum=0.9, weight_decay=0.1) if kind == "matrix" else optim.AdamW(
        [p], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
}
# Samples of an update, and how many of the last samples' weights a stage does not have yet.
MODES = {
    4: {
        "synchronous": (BATCH, lambda stage: 0),
        "stashing": (1, lambda stage: 3 - stage),
        "vertical-sync": (1, lambda stage: 3),
        "double-buffer": (4, lambda stage: 4),
    },
    1: {"synchronous": (BATCH, lambda stage: 0), "server": (1, lambda stage: 1)},
}


def column(count: int, value) -> torch.Tensor:
    """The numbers of a float32 program, to compute with in float64: what this script writes depends on no processor."""
    return torch.tensor([value(i) for i in range(count)], dtype=torch.float64).float().double()


def first_weights(stages: int) -> list[list[torch.Tensor]]:
    def waves(shape, phase):
        return column(math.prod(shape), lambda i: 0.4 * math.cos(i * 1.3 + phase)).reshape(shape)

    matrices = [[waves((WIDTH, WIDTH), 2 * s)] for s in range(stages)]
    return [m + ([waves((WIDTH,), 2 * s + 1)] if s + 1 < stages else []) for s, m in enumerate(matrices)]


def loss_of(weights, x, t, samples: int) -> torch.Tensor:
    for matrix, bias in weights[:-1]:
        x = torch.tanh(torch.nn.functional.linear(x, matrix, bias))
    return (torch.nn.functional.linear(x, weights[-1][0]) - t).square().sum() / (WIDTH * samples)


class Chain:
    def __init__(self, stages: int, make):
        self.weights = first_weights(stages)
        self.optimizers = []
        for s, stage in enumerate(self.weights):
            for weight in stage:
                kind = "table" if s == 0 and weight.dim() == 2 else "matrix" if weight.dim() == 2 else "vector"
                weight.requires_grad_()
                self.optimizers.append(make(weight, kind))

    def parameters(self):
        return [weight for stage in self.weights for weight in stage]

    def copy(self, stage: int):
        return [weight.detach().clone().requires_grad_() for weight in self.weights[stage]]

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()
        for weight in self.parameters():
            weight.grad = None

    def step_together(self, x, t) -> float:
        loss = loss_of(self.weights, x, t, BATCH)
        loss.backward()
        self.update()
        return loss.item()

    def step_delayed(self, x, t, samples: int, lag) -> float:
        stages = range(len(self.weights))
        versions, total = [[self.copy(s) for s in stages]], 0.0
        for m in range(BATCH):
            used = [versions[max(0, (m - lag(s)) // samples)][s] for s in stages]
            loss = loss_of(used, x[m : m + 1], t[m : m + 1], samples)
            flat = [weight for stage in used for weight in stage]
            for weight, gradient in zip(self.parameters(), torch.autograd.grad(loss, flat)):
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
            total += loss.item() * samples / BATCH
            if (m + 1) % samples == 0:
                self.update()
                versions.append([self.copy(s) for s in stages])
        return total


def record(stages: int, mode: str, name: str) -> list[str]:
    flags, make = OPTIMIZERS[name]
    samples, lag = MODES[stages][mode]
    chain, losses = Chain(stages, make), []
    x, t = (column(STEPS * BATCH * WIDTH, lambda i: math.sin(i * 0.7 + phase)).reshape(-1, WIDTH) for phase in (0, 0.4))
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        one = chain.step_together if mode == "synchronous" else lambda x, t: chain.step_delayed(x, t, samples, lag)
        losses.append(one(x[rows], t[rows]))
    lines = [f"case {stages} {mode} {name} {flags}", f"losses {numbers(losses)}"]
    for s, stage in enumerate(chain.weights):
        for letter, weight in zip("wb", stage):
            lines.append(f"weight {letter}{s} " + " ".join(f"{value:.8g}" for value in weight.flatten().tolist()))
    return lines


def main() -> None:
    torch.set_num_threads(1)
    lines = []
    for stages, modes in MODES.items():
        for mode in modes:
            for name in OPTIMIZERS:
                lines += record(stages, mode, name)
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
