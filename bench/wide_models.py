"""Models of real width for bench/step_time.py, in the form of examples/models: seeded, and written here, so that nothing is
downloaded. Their layers are those of the models that they are named after, a few of each.
"""

import torch
from torch import nn
from torch.nn import functional

from models import Example

SAMPLES = 32


class Attention(nn.Module):
    """Self-attention with q, k and v from one product, as GPT-2 and ViT have it."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A Transformer layer, norm before each part, or after it as in BERT."""

    def __init__(self, width: int, heads: int, causal: bool = False, norm_first: bool = True, dropout: float = 0):
        super().__init__()
        self.norm_first = norm_first
        self.dropped = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def feed_forward(self, x):
        return self.down(functional.gelu(self.up(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.dropped(self.attention(self.norm1(x)))
            return x + self.dropped(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.dropped(self.attention(x)))
        return self.norm2(x + self.dropped(self.feed_forward(x)))


class LlamaBlock(nn.Module):
    """RMSNorm, rotary positions, two heads of q for each of k and v, and a gated feed-forward part."""

    def __init__(self, width: int, heads: int, length: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, width // 2, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, self.size, 2) / self.size)
        self.register_buffer("cosine", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sine", torch.cat([angles, angles], -1).sin())

    def rotated(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-second, first], -1) * self.sine

    def heads_of(self, x):
        return x.view(x.shape[0], x.shape[1], -1, self.size).transpose(1, 2)

    def shared(self, x):
        batch, heads, length, size = x.shape
        return x[:, :, None].expand(batch, heads, 2, length, size).reshape(batch, 2 * heads, length, size)

    def forward(self, x):
        batch, length, width = x.shape
        rows = self.norm1(x)
        q, k = self.rotated(self.heads_of(self.q(rows))), self.rotated(self.heads_of(self.k(rows)))
        mixed = functional.scaled_dot_product_attention(q, self.shared(k), self.shared(self.heads_of(self.v(rows))),
                                                        is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        rows = self.norm2(x)
        return x + self.down(functional.silu(self.gate(rows)) * self.up(rows))


class Classifier(nn.Module):
    """Layers over rows, and a class from their mean."""

    def __init__(self, width: int, layers):
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


class Patches(nn.Module):
    """A picture as rows of a product over its 16 x 16 patches, with positions, as ViT begins."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.product = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(torch.randn((size // 16) ** 2, width) / 50)

    def forward(self, x):
        return self.product(x).flatten(2).transpose(1, 2) + self.positions


class Clip(nn.Module):
    """Two towers, of a picture and of a text, whose directions are compared."""

    def __init__(self, width: int = 512, layers: int = 2, size: int = 128, words: int = 49408):
        super().__init__()
        self.picture = nn.Sequential(Patches(width, size), *(Block(width, 8) for _ in range(layers)))
        self.words = nn.Embedding(words, width)
        self.text = nn.Sequential(*(Block(width, 8, causal=True) for _ in range(layers)))
        self.of_picture, self.of_text = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, pixels, ids):
        picture = functional.normalize(self.of_picture(self.picture(pixels).mean(1)), dim=-1)
        text = functional.normalize(self.of_text(self.text(self.words(ids)).mean(1)), dim=-1)
        return 10 * picture @ text.t()


class Branches(nn.Module):
    """Four towers side by side whose results are joined."""

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList(nn.Sequential(Block(256, 8), Block(256, 8)) for _ in range(4))
        self.head = nn.Linear(4 * 256, 10)

    def forward(self, x):
        return self.head(torch.cat([tower(x).mean(1) for tower in self.towers], -1))


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return functional.relu(self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x))))) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.Sequential(*(Residual(before, width, 1 if before == width else 2)
                                      for before, width in zip(widths, widths[1:])))
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def two_convolutions(before: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(layer for of in (before, width) for layer in (
        nn.Conv2d(of, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())))


class UNet(nn.Module):
    """A class for each pixel: halved three times, and doubled again beside what each size began as."""

    def __init__(self, widths=(32, 64, 128, 256), classes: int = 10):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.first = two_convolutions(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), two_convolutions(*pair)) for pair in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(deep, flat, 2, 2) for flat, deep in reversed(pairs))
        self.join = nn.ModuleList(two_convolutions(2 * flat, flat) for flat, _ in reversed(pairs))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        sizes = [self.first(x)]
        for part in self.down:
            sizes.append(part(sizes[-1]))
        x = sizes.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([sizes.pop(), up(x)], 1))
        return self.head(x)


class Inverted(nn.Module):
    """MobileNet v2's block (Sandler et al., CVPR 2018): widened, convolved channel by channel, narrowed again."""

    def __init__(self, before: int, width: int, stride: int, factor: int):
        super().__init__()
        wide = before * factor
        widen = [] if factor == 1 else [nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        self.layers = nn.Sequential(
            *widen, nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width))
        self.adds = stride == 1 and before == width

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNetV2(nn.Module):
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self):
        super().__init__()
        layers, before = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()], 32
        for factor, width, count, stride in self.STAGES:
            for i in range(count):
                layers.append(Inverted(before, width, stride if i == 0 else 1, factor))
                before = width
        self.layers = nn.Sequential(*layers, nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6())
        self.head = nn.Linear(1280, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class Recurrent(nn.Module):
    """A class for each sequence, from the last state of an LSTM of two layers."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, hidden, 2, batch_first=True), nn.Linear(hidden, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Dlrm(nn.Module):
    """Dense features and one row of each table, joined."""

    def __init__(self, tables: int = 4, rows: int = 100_000, width: int = 32):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.top = nn.Sequential(nn.Linear(width * (tables + 1), 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x, rows):
        looked_up = [table(rows[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat([self.dense(x), *looked_up], -1))


class LanguageModel(nn.Module):
    """A decoder over words, whose embedding also makes the logits, as GPT-2 has it."""

    def __init__(self, width: int, heads: int, layers: int, words: int, length: int):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) / 50)
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        rows = self.norm(self.blocks(self.words(ids) + self.positions))
        return functional.linear(rows, self.words.weight)


def rows_of(width: int, length: int = 64) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(SAMPLES, length, width)}


MODELS = {
    "chain": lambda: (Classifier(256, [Block(256, 8) for _ in range(8)]), rows_of(256)),
    "branches": lambda: (Branches(), rows_of(256)),
    "resnet18": lambda: (ResNet18(), {"x": torch.randn(SAMPLES, 3, 64, 64)}),
    "unet": lambda: (UNet(), {"x": torch.randn(SAMPLES, 3, 64, 64)}),
    "mobilenet": lambda: (MobileNetV2(), {"x": torch.randn(SAMPLES, 3, 128, 128)}),
    "lstm": lambda: (Recurrent(256, 512), rows_of(256)),
    "mlp": lambda: (nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU()))),
                    {"input": torch.randn(SAMPLES, 64)}),
    "gpt2": lambda: (Classifier(768, [Block(768, 12, causal=True) for _ in range(2)]), rows_of(768)),
    "gpt2_dropout": lambda: (Classifier(768, [Block(768, 12, causal=True, dropout=0.1) for _ in range(2)]), rows_of(768)),
    "bert": lambda: (Classifier(768, [Block(768, 12, norm_first=False) for _ in range(2)]), rows_of(768)),
    "vit": lambda: (Classifier(768, [Patches(768, 128), *(Block(768, 12) for _ in range(2))]),
                    {"x": torch.randn(SAMPLES, 3, 128, 128)}),
    "clip": lambda: (Clip(), {"pixels": torch.randn(SAMPLES, 3, 128, 128),
                              "ids": torch.randint(0, 49408, (SAMPLES, 64))}),
    "llama": lambda: (Classifier(768, [LlamaBlock(768, 12, 64) for _ in range(2)]), rows_of(768)),
    "dlrm": lambda: (Dlrm(), {"x": torch.randn(SAMPLES, 13), "rows": torch.randint(0, 100_000, (SAMPLES, 4))}),
}

# Whole models: measured where they are named.
LARGE = {
    "gpt2_small": lambda: (LanguageModel(768, 12, 12, 50257, 512), {"ids": torch.randint(0, 50257, (SAMPLES, 512))}),
}


# Networks of torchvision at pictures of 224x224, by their names there, as "torchvision.resnet50": measured where they are
# named.
TORCHVISION = "torchvision."


def torchvision_network(name: str) -> nn.Module:
    """Without what is random in a step. Needs torchvision."""
    import torchvision
    module = getattr(torchvision.models, name.removeprefix(TORCHVISION))()
    for layer in module.modules():
        if isinstance(layer, (nn.Dropout, torchvision.ops.StochasticDepth)):
            layer.p = 0.0
    return module


def cross_entropy(outputs, labels):
    return functional.cross_entropy(outputs[0].flatten(0, -2), labels["label"].flatten())


def cross_entropy_of_pixels(outputs, labels):
    return functional.cross_entropy(outputs[0], labels["label"])


def contrastive(outputs, labels):
    """The symmetric loss of CLIP: a picture belongs to the text of its own sample."""
    own = torch.arange(outputs[0].shape[0], device=outputs[0].device)
    return (functional.cross_entropy(outputs[0], own) + functional.cross_entropy(outputs[0].t(), own)) / 2


def load(name: str) -> Example:
    torch.manual_seed(20261122)
    if name.startswith(TORCHVISION):
        module, inputs = torchvision_network(name), {"x": torch.randn(SAMPLES, 3, 224, 224)}
    else:
        module, inputs = (MODELS | LARGE)[name]()
    if name == "clip":
        return Example(module, inputs, {}, ["similarity"], "contrastive:similarity", contrastive)
    if name == "unet":
        label = torch.randint(0, 10, (SAMPLES, 64, 64))
        return Example(module, inputs, {"label": label}, ["logits"], "cross_entropy:logits,label",
                       cross_entropy_of_pixels)
    label = inputs["ids"].roll(-1, 1) if name in LARGE else torch.randint(0, 10, (SAMPLES,))
    return Example(module, inputs, {"label": label}, ["logits"],
                   "cross_entropy:logits,label", cross_entropy)
