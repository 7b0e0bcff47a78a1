"""A small residual convolutional network with BatchNorm: skip connections and samples that mix."""

import torch
from torch import nn

from models import Example

CLASSES = 10


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.layers = nn.Sequential(Residual(8, 8, 1), Residual(8, 12, 2), Residual(12, 16, 1))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, image):
        x = self.layers(self.stem(image))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def loss(outputs, labels):
    return nn.functional.cross_entropy(outputs[0], labels["label"])


def example() -> Example:
    module = ResNet()
    inputs = {"image": torch.randn(16, 3, 12, 12)}
    labels = {"label": torch.randint(0, CLASSES, (16,))}
    return Example(module, inputs, labels, ["logits"], "cross_entropy:logits,label", loss)
