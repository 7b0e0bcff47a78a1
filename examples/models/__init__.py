"""The example models, each small enough for two cores: a name, a module, seeded data, a loss.

A model file defines `example()`, which returns an Example. Nothing here knows how GraphPipe plans or trains.
"""

import dataclasses
import importlib
from typing import Callable

import torch

NAMES = ("clip_like", "mmt", "dlrm", "resnet", "gpt2_like")


@dataclasses.dataclass
class Example:
    module: torch.nn.Module
    # Input name -> tensor; the first axis is the samples.
    inputs: dict[str, torch.Tensor]
    # Label name -> tensor; empty where the loss needs none.
    labels: dict[str, torch.Tensor]
    output_names: list[str]
    # The loss as GraphPipe's --loss takes it, and the same in PyTorch: (outputs, labels) -> mean over the samples.
    loss_flag: str
    loss: Callable


def load(name: str) -> Example:
    if name not in NAMES:
        raise SystemExit(f"unknown example '{name}'; choose one of {', '.join(NAMES)}")
    torch.manual_seed(20250325)
    return importlib.import_module(f"models.{name}").example()
