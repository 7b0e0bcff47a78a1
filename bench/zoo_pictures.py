"""The architectures of bench/zoo.py that come from papers, as zoo_own.py: those that read or make pictures."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from zoo_own import drawn, of


class DiffusionUNet(nn.Module):
    """A U-Net with time embedding, group norms and attention in its middle (Ho et al., 2020)."""

    def __init__(self, width=8):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 16))
        self.begin, self.down = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 16, 3, 2, 1)
        self.norm, self.shift = nn.GroupNorm(4, 16), nn.Linear(16, 32)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up, self.end = nn.ConvTranspose2d(16, width, 4, 2, 1), nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, image, step):
        rate = torch.exp(torch.arange(self.width // 2) * (-math.log(1e4) / (self.width // 2)))
        angle = step * rate
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        first = self.begin(image)
        scale, shift = self.shift(time)[:, :, None, None].chunk(2, 1)
        x = F.silu(self.norm(self.down(first)) * (1 + scale) + shift)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        return self.end(torch.cat([F.silu(self.up(x)), first], 1))


class AttentionUNet(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
        self.down, self.inner, self.join = block(3, 8), block(8, 16), block(16, 8)
        self.gate, self.inside, self.mix = nn.Conv2d(16, 4, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 1, 1)
        self.thin, self.out = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 2, 1)

    def forward(self, image):
        a = self.down(image)
        b = F.interpolate(self.inner(F.max_pool2d(a, 2)), scale_factor=2, mode="bilinear", align_corners=True)
        gate = torch.sigmoid(self.mix(F.relu(self.gate(b) + self.inside(a))))
        return self.out(self.join(torch.cat([a * gate, self.thin(b)], 1)))


class VolumeUNet(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01))
        self.down, self.inner, self.join = block(1, 4), block(4, 8), block(8, 4)
        self.up, self.out = nn.ConvTranspose3d(8, 4, 2, 2), nn.Conv3d(4, 2, 1)

    def forward(self, volume):
        a = self.down(volume)
        return self.out(self.join(torch.cat([a, self.up(self.inner(F.max_pool3d(a, 2)))], 1)))


class SuperResolution(nn.Module):
    """Residual blocks and a pixel shuffle (Shi et al., 2016)."""

    def __init__(self):
        super().__init__()
        self.begin, self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.act, self.grow = nn.PReLU(8), nn.PixelShuffle(2)

    def forward(self, image):
        x = self.act(self.begin(image))
        wide = F.interpolate(image, scale_factor=2, mode="bicubic", align_corners=False)
        return self.grow(self.b(x + self.a(x))) + wide


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.find = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6))
        self.out = nn.Conv2d(1, 4, 3)
        self.find[-1].weight.data.mul_(0.1)
        self.find[-1].bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, image):
        grid = F.affine_grid(self.find(image).view(-1, 2, 3), image.shape, align_corners=False)
        return self.out(F.grid_sample(image, grid, align_corners=False)).flatten(1)


class MlpMixer(nn.Module):
    def __init__(self, tokens=16, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        mlp = lambda size: nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.norms, self.across, self.within = nn.ModuleList(nn.LayerNorm(width) for _ in range(2)), mlp(tokens), mlp(width)
        self.head = nn.Linear(width, 5)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.within(self.norms[1](x))).mean(1))


class Cbam(nn.Module):
    """Attention to channels, then to places (Woo et al., 2018)."""

    def __init__(self, width=8):
        super().__init__()
        self.begin, self.place = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(2, 1, 7, padding=3)
        self.channel = nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, width))

    def forward(self, image):
        x = self.begin(image)
        found = self.channel(F.adaptive_avg_pool2d(x, 1).flatten(1)) + self.channel(F.adaptive_max_pool2d(x, 1).flatten(1))
        x = x * torch.sigmoid(found)[:, :, None, None]
        return x * torch.sigmoid(self.place(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
                                    nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                                    nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, noise):
        return self.layers(noise[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        bounded = nn.utils.parametrizations.spectral_norm
        self.layers = nn.Sequential(bounded(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 16, 4, 2, 1),
                                    nn.InstanceNorm2d(16), nn.LeakyReLU(0.2, True), nn.Conv2d(16, 1, 4))

    def forward(self, image):
        return self.layers(image).flatten(1)


class Radiance(nn.Module):
    """Positions as waves, a network, and colours summed along rays (Mildenhall et al., 2020)."""

    def __init__(self, waves=4):
        super().__init__()
        self.register_buffer("rates", 2.0 ** torch.arange(waves))
        self.net = nn.Sequential(nn.Linear(6 * waves, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, points):
        angle = (points.unsqueeze(-1) * self.rates).flatten(-2)
        found = self.net(torch.cat([angle.sin(), angle.cos()], -1))
        depth = F.relu(found[..., 3]) * 0.1
        passes = torch.exp(depth - torch.cumsum(depth, 1))
        return (((1 - torch.exp(-depth)) * passes).unsqueeze(-1) * found[..., :3].sigmoid()).sum(1)


class ConvLstm(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.width, self.gates, self.out = width, nn.Conv2d(1 + width, 4 * width, 3, padding=1), nn.Conv2d(width, 1, 1)

    def forward(self, frames):
        hidden = cell = torch.zeros(frames.shape[0], self.width, *frames.shape[-2:])
        for t in range(frames.shape[1]):
            i, f, o, g = self.gates(torch.cat([frames[:, t], hidden], 1)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return self.out(hidden)


class Capsules(nn.Module):
    """Routing by agreement (Sabour et al., 2017)."""

    def __init__(self):
        super().__init__()
        self.begin, self.weight = nn.Conv2d(1, 16, 5, 2), nn.Parameter(torch.randn(36, 3, 6, 4) * 0.2)

    @staticmethod
    def squash(x):
        square = x.square().sum(-1, keepdim=True)
        return square / (1 + square) * x / torch.sqrt(square + 1e-8)

    def forward(self, image):
        low = self.squash(F.relu(self.begin(image)).reshape(image.shape[0], 36, 4))
        votes = torch.einsum("ncod,bnd->bnco", self.weight, low)
        logits = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            high = self.squash((logits.softmax(2).unsqueeze(-1) * votes).sum(1))
            logits = logits + (votes * high.unsqueeze(1)).sum(-1)
        return high.norm(dim=-1)


class DeformableConvolution(nn.Module):
    """torchvision.ops.deform_conv2d with a mask (Zhu et al., 2019), as the exporters write DeformConv for it."""

    def __init__(self):
        super().__init__()
        import torchvision

        self.begin, self.shifts = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 27, 3, padding=1)
        self.deform = torchvision.ops.DeformConv2d(4, 6, 3, padding=1)
        self.shifts.weight.data.mul_(0.3)

    def forward(self, image):
        x = self.begin(image)
        y, x_shift, mask = self.shifts(x).chunk(3, 1)
        return self.deform(x, torch.cat([y, x_shift], 1), mask.sigmoid())


PICTURES = {
    "own_diffusion": of(DiffusionUNet, image=lambda: drawn(3, 8, 8), step=lambda: drawn(1)),
    "own_attention_unet": of(AttentionUNet, image=lambda: drawn(3, 16, 16)),
    "own_volume_unet": of(VolumeUNet, volume=lambda: drawn(1, 8, 8, 8)),
    "own_super_resolution": of(SuperResolution, image=lambda: drawn(3, 8, 8)),
    "own_spatial_transformer": of(SpatialTransformer, image=lambda: drawn(1, 16, 16)),
    "own_mixer": of(MlpMixer, image=lambda: drawn(3, 16, 16)),
    "own_cbam": of(Cbam, image=lambda: drawn(3, 12, 12)),
    "own_generator": of(Generator, noise=lambda: drawn(8)),
    "own_discriminator": of(Discriminator, image=lambda: drawn(3, 16, 16)),
    "own_radiance": of(Radiance, points=lambda: drawn(8, 3)),
    "own_conv_lstm": of(ConvLstm, frames=lambda: drawn(4, 1, 8, 8)),
    "own_capsules": of(Capsules, image=lambda: drawn(1, 10, 10)),
    "own_deformable": of(DeformableConvolution, image=lambda: drawn(3, 8, 8)),
}
