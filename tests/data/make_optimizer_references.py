#!/usr/bin/env python3
"""Writes tests/data/optimizer_references.txt: weights after updates by torch.optim, and what its schedules give.

    python tests/data/make_optimizer_references.py tests/data/optimizer_references.txt

Made with torch 2.11.0. torch.optim has no LAMB and no row-wise Adagrad: they are written here from their papers. Muon is
written here too, in float32, because torch.optim.Muon iterates in bfloat16, whose rounding depends on the machine; the
script checks that the two agree to bfloat16's rounding.

    update OPTIMIZER table|plain|DIMS flags...      one parameter, 20 updates of the gradients below, in float32
    after N elements...                             the weight after N updates
    schedule flags...                               followed by one line: the factors of the learning rate of 30 steps

A gradient's element i at update t is sin(1 + (7 i i mod 97) + t / 2), the weight's first element i is cos(i) / 2.
"""

import math
import sys

import torch

STEPS, RECORDED = 20, (1, 5, 20)


def start(dims: tuple[int, ...]) -> torch.Tensor:
    count = math.prod(dims)
    return torch.tensor([math.cos(i) / 2 for i in range(count)], dtype=torch.float64).float().reshape(dims)


def gradient(dims: tuple[int, ...], step: int) -> torch.Tensor:
    values = [math.sin(1 + (7 * i * i % 97) + step / 2) for i in range(math.prod(dims))]
    return torch.tensor(values, dtype=torch.float64).float().reshape(dims)


class Lamb:
    """You et al., Large Batch Optimization for Deep Learning, 2020, Algorithm 2, with phi(x) = x; 1 where a norm is 0."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        (self.weight,), self.lr, self.betas, self.eps, self.decay = parameters, lr, betas, eps, weight_decay
        self.m, self.v, self.steps = torch.zeros_like(self.weight), torch.zeros_like(self.weight), 0

    @torch.no_grad()
    def step(self):
        gradient, self.steps = self.weight.grad, self.steps + 1
        self.m = self.betas[0] * self.m + (1 - self.betas[0]) * gradient
        self.v = self.betas[1] * self.v + (1 - self.betas[1]) * gradient * gradient
        m, v = (x / (1 - beta**self.steps) for x, beta in zip((self.m, self.v), self.betas))
        update = m / (v.sqrt() + self.eps) + self.decay * self.weight
        norms = self.weight.norm().item(), update.norm().item()
        self.weight -= self.lr * (norms[0] / norms[1] if min(norms) > 0 else 1) * update


class RowWiseAdagrad:
    """Adagrad with one sum per row, the mean of the squares of its gradient: Naumov et al., Deep Learning Recommendation
    Model, 2019, in the form of Khudia et al., FBGEMM, 2021 (EXACT_ROWWISE_ADAGRAD)."""

    def __init__(self, parameters, lr, eps=1e-8, weight_decay=0.0):
        (self.weight,), self.lr, self.eps, self.decay = parameters, lr, eps, weight_decay
        self.sum = torch.zeros(self.weight.shape[0], 1)

    @torch.no_grad()
    def step(self):
        gradient = self.weight.grad + self.decay * self.weight
        self.sum += gradient.square().mean(dim=1, keepdim=True)
        self.weight -= self.lr * gradient / (self.sum.sqrt() + self.eps)


class Muon:
    """Jordan et al., Muon, 2024, with the learning rate of Liu et al., Muon is Scalable for LLM Training, 2025, section
    2.2, and torch.optim.Muon's order of operations, in float32."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.1):
        (self.weight,), self.lr, self.momentum, self.decay = parameters, lr, momentum, weight_decay
        self.buffer = torch.zeros_like(self.weight)

    @torch.no_grad()
    def step(self):
        gradient = self.weight.grad
        self.buffer.lerp_(gradient, 1 - self.momentum)
        x = gradient.lerp(self.buffer, self.momentum)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        x = x.T if tall else x
        self.weight *= 1 - self.lr * self.decay
        self.weight -= self.lr * 0.2 * math.sqrt(max(self.weight.shape)) * x


def train(make, dims: tuple[int, ...]) -> dict[int, torch.Tensor]:
    weight = start(dims).requires_grad_()
    optimizer, out = make([weight]), {}
    for step in range(STEPS):
        weight.grad = gradient(dims, step)
        optimizer.step()
        if step + 1 in RECORDED:
            out[step + 1] = weight.detach().clone()
    return out


optim = torch.optim
# Name of ours, what the parameter is, its shape, flags of `run`, and the other implementation.
UPDATES = [
    ("sgd", "plain", (5,), "--lr 0.1", lambda p: optim.SGD(p, lr=0.1)),
    ("sgd", "plain", (3, 4), "--lr 0.1 --momentum 0.9 --weight-decay 0.01",
     lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)),
    ("sgd", "plain", (3, 4), "--lr 0.05 --momentum 0.8 --nesterov --weight-decay 0.01",
     lambda p: optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.01, nesterov=True)),
    ("adam", "plain", (3, 4), "", lambda p: optim.Adam(p)),
    ("adam", "plain", (5,), "--lr 0.02 --betas 0.8,0.95 --eps 1e-6 --weight-decay 0.1",
     lambda p: optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adamw", "plain", (3, 4), "", lambda p: optim.AdamW(p)),
    ("adamw", "plain", (5,), "--lr 0.01 --betas 0.8,0.95 --eps 1e-6 --weight-decay 0.1",
     lambda p: optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("lamb", "plain", (3, 4), "", lambda p: Lamb(p, lr=1e-3)),
    ("lamb", "plain", (2, 3, 2), "--lr 0.02 --betas 0.8,0.95 --eps 1e-5 --weight-decay 0.1",
     lambda p: Lamb(p, lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)),
    ("adagrad", "plain", (3, 4), "", lambda p: optim.Adagrad(p)),
    ("adagrad", "table", (3, 4), "--lr 0.1 --eps 1e-6 --weight-decay 0.1",
     lambda p: optim.Adagrad(p, lr=0.1, eps=1e-6, weight_decay=0.1)),
    ("row-wise-adagrad", "table", (4, 3), "", lambda p: RowWiseAdagrad(p, lr=0.01)),
    ("row-wise-adagrad", "table", (4, 3), "--lr 0.1 --eps 1e-5 --weight-decay 0.1",
     lambda p: RowWiseAdagrad(p, lr=0.1, eps=1e-5, weight_decay=0.1)),
    ("row-wise-adagrad", "plain", (4, 3), "--lr 0.1 --eps 1e-10", lambda p: optim.Adagrad(p, lr=0.1)),
    ("muon", "plain", (3, 5), "", lambda p: Muon(p, lr=1e-3)),
    ("muon", "plain", (6, 4), "--lr 0.02 --momentum 0.8 --weight-decay 0.05",
     lambda p: Muon(p, lr=0.02, momentum=0.8, weight_decay=0.05)),
    ("muon", "plain", (5,), "--lr 0.02", lambda p: optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)),
    ("muon", "table", (6, 4), "--lr 0.02", lambda p: optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)),
]


def check_muon() -> None:
    torchs = train(lambda p: optim.Muon(p, lr=0.02, momentum=0.8, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"), (6, 4))
    ours = train(lambda p: Muon(p, lr=0.02, momentum=0.8, weight_decay=0.05), (6, 4))
    for step, weight in ours.items():
        moved = (weight - start((6, 4))).norm()
        if (weight - torchs[step]).norm() > 0.03 * moved:
            sys.exit(f"Muon in float32 is not torch.optim.Muon after {step} updates")


def factors(schedule) -> list[float]:
    weight = torch.zeros(1).requires_grad_()
    optimizer = optim.SGD([weight], lr=1.0)
    scheduler, out = schedule(optimizer), []
    for _ in range(30):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return out


rates = optim.lr_scheduler


def warm_up(optimizer, steps, then):
    first = rates.LinearLR(optimizer, start_factor=1 / steps, end_factor=1, total_iters=steps - 1)
    return rates.SequentialLR(optimizer, [first, then], milestones=[steps])


# cosine and linear end after a fixed number of steps; PyTorch's cosine would rise again.
SCHEDULES = [
    ("", lambda o: rates.ConstantLR(o, factor=1)),
    ("--warmup 5", lambda o: warm_up(o, 5, rates.ConstantLR(o, factor=1))),
    ("--lr-schedule linear:20", lambda o: rates.LinearLR(o, start_factor=1, end_factor=0, total_iters=20)),
    ("--lr-schedule linear:20,0.25", lambda o: rates.LinearLR(o, start_factor=1, end_factor=0.25, total_iters=20)),
    ("--lr-schedule cosine:30,0.1", lambda o: rates.CosineAnnealingLR(o, T_max=30, eta_min=0.1)),
    ("--lr-schedule cosine:30 --warmup 6", lambda o: warm_up(o, 6, rates.CosineAnnealingLR(o, T_max=24))),
    ("--lr-schedule step:7,0.5", lambda o: rates.StepLR(o, step_size=7, gamma=0.5)),
]


def numbers(values) -> str:
    return " ".join(repr(float(value)) for value in values)


def main() -> None:
    torch.set_num_threads(1)
    check_muon()
    lines = []
    for name, kind, dims, flags, make in UPDATES:
        lines.append(f"update {name} {kind} {'x'.join(map(str, dims))} {flags}".rstrip())
        for step, weight in train(make, dims).items():
            lines.append(f"after {step} {numbers(weight.flatten())}")
    for flags, schedule in SCHEDULES:
        lines.append(f"schedule {flags}".rstrip())
        lines.append(f"factors {numbers(factors(schedule))}")
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
