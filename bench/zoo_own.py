"""Architectures of bench/zoo.py that come from papers and not from a package: recommenders, graphs, texts, sound, physics.
Each is written as people write it; OWN maps a name to what makes a module and its inputs. Those of pictures are in
zoo_pictures.py.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES = 4


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(SAMPLES, *shape)


def numbers(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(3, limit, (SAMPLES, *shape))


def of(module, **inputs):
    return lambda: (module(), {name: make() for name, make in inputs.items()})


class DeepFm(nn.Module):
    """Factorization machine and a network over the same embeddings (Guo et al., 2017)."""

    def __init__(self, fields=6, rows=90, width=8):
        super().__init__()
        self.first, self.table = nn.Embedding(rows, 1), nn.Embedding(rows, width)
        self.deep = nn.Sequential(nn.Linear(fields * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids):
        table = self.table(ids)
        pairs = 0.5 * (table.sum(1).square() - table.square().sum(1)).sum(1, keepdim=True)
        return self.first(ids).sum(1) + pairs + self.deep(table.flatten(1))


class DeepCross(nn.Module):
    """Crosses of features in full matrices (Wang et al., 2021)."""

    def __init__(self, width=16):
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        at = x
        for layer in self.cross:
            at = x * layer(at) + at
        return self.head(at)


class InterestNetwork(nn.Module):
    """Attention of a candidate over a history whose end is padding (Zhou et al., 2018)."""

    def __init__(self, rows=90, width=8):
        super().__init__()
        self.table = nn.Embedding(rows, width, padding_idx=0)
        self.score = nn.Sequential(nn.Linear(4 * width, 16), nn.PReLU(), nn.Linear(16, 1))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, history, candidate):
        keys, query = self.table(history), self.table(candidate)
        wide = query.unsqueeze(1).expand_as(keys)
        score = self.score(torch.cat([wide, keys, wide - keys, wide * keys], -1)).squeeze(-1)
        score = score.masked_fill(history == 0, float("-inf")).softmax(-1)
        return self.head(torch.cat([torch.einsum("bl,bld->bd", score, keys), query], -1))


class SelfAttentiveHistory(nn.Module):
    """Next items by causal attention (Kang and McAuley, 2018)."""

    def __init__(self, rows=90, width=16, length=12):
        super().__init__()
        self.table, self.places = nn.Embedding(rows, width), nn.Parameter(torch.randn(length, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        found = self.layers(self.table(ids) * math.sqrt(16) + self.places, mask=mask, is_causal=True)
        return found @ self.table.weight.T


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(90, 16), nn.EmbeddingBag(90, 16, mode="mean")
        self.left, self.right = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, user, items):
        a, b = F.normalize(self.left(self.user(user)), dim=-1), F.normalize(self.right(self.item(items)), dim=-1)
        return F.cosine_similarity(a, b, dim=-1)


class GraphAttention(nn.Module):
    """A dense GAT: a graph per sample (Velickovic et al., 2018)."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.width = heads, width
        self.project, self.head = nn.Linear(6, heads * width, bias=False), nn.Linear(heads * width, 3)
        self.source, self.target = (nn.Parameter(torch.randn(heads, width)) for _ in range(2))

    def forward(self, nodes, edges):
        h = self.project(nodes).unflatten(-1, (self.heads, self.width))
        left, right = (h * self.source).sum(-1), (h * self.target).sum(-1)
        score = F.leaky_relu(left.unsqueeze(2) + right.unsqueeze(1), 0.2)
        score = score.masked_fill(edges.unsqueeze(-1) < 0, -1e9).softmax(2)
        return self.head(F.elu(torch.einsum("bijh,bjhd->bihd", score, h)).flatten(2))


class EdgeConvolution(nn.Module):
    """Nearest neighbours of points, and the largest of what each edge says (Wang et al., 2019)."""

    def __init__(self, neighbours=4):
        super().__init__()
        self.neighbours = neighbours
        self.edge = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.GroupNorm(4, 16), nn.LeakyReLU(0.2))
        self.head = nn.Linear(16, 3)

    def forward(self, points):
        near = (-torch.cdist(points, points)).topk(self.neighbours, -1).indices
        found = torch.gather(points.unsqueeze(1).expand(-1, points.shape[1], -1, -1), 2,
                             near.unsqueeze(-1).expand(-1, -1, -1, 3))
        own = points.unsqueeze(2).expand_as(found)
        edges = torch.cat([own, found - own], -1).permute(0, 3, 1, 2)
        return self.head(self.edge(edges).amax(-1).amax(-1))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.features = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1))
        self.head = nn.Linear(32, 5)

    def forward(self, points):
        matrix = self.matrix(self.turn(points).max(-1).values).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.features(torch.bmm(matrix, points)).max(-1).values)


class Translator(nn.Module):
    """Encoder and decoder of LSTMs with attention (Luong et al., 2015), the decoder step by step."""

    def __init__(self, words=90, width=16):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.cell, self.query = nn.LSTMCell(2 * width, width), nn.Linear(width, width, bias=False)
        self.head = nn.Linear(2 * width, words)

    def forward(self, source, target):
        memory, (hidden, cell) = self.encoder(self.source(source))
        hidden, cell = hidden[0], cell[0]
        context, steps = torch.zeros_like(hidden), []
        for word in self.target(target).unbind(1):
            hidden, cell = self.cell(torch.cat([word, context], -1), (hidden, cell))
            weight = torch.bmm(memory, self.query(hidden).unsqueeze(-1)).softmax(1)
            context = (weight * memory).sum(1)
            steps.append(self.head(torch.cat([hidden, context], -1)))
        return torch.stack(steps, 1)


class MixtureOfExperts(nn.Module):
    """The two best experts of each token, all computed and weighed (a small Switch)."""

    def __init__(self, width=16, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(experts, width, width) * 0.2) for _ in range(2))

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        share = torch.zeros(*x.shape[:-1], self.up.shape[0]).scatter(-1, chosen, weight)
        hidden = F.gelu(torch.einsum("bld,edh->bleh", x, self.up))
        return torch.einsum("bleh,ehd,ble->bld", hidden, self.down, share)


class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(90, 16)
        self.windows = nn.ModuleList(nn.Conv1d(16, 8, size, padding="same") for size in (2, 3, 5))
        self.head = nn.Linear(24, 3)

    def forward(self, ids):
        x = self.table(ids).transpose(1, 2)
        return self.head(torch.cat([F.adaptive_max_pool1d(F.relu(each(x)), 1).squeeze(-1) for each in self.windows], 1))


class BiLstmTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(90, 16), nn.Linear(24, 5)
        self.layers = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, ids):
        return F.log_softmax(self.head(self.layers(self.table(ids))[0]), -1)


class WaveNet(nn.Module):
    """Gated, dilated, causal convolutions (van den Oord et al., 2016)."""

    def __init__(self, width=8):
        super().__init__()
        self.begin, self.end = nn.Conv1d(1, width, 1), nn.Conv1d(width, 4, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** i) for i in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3))

    def forward(self, sound):
        x, total = self.begin(sound), 0
        for i, (layer, skip) in enumerate(zip(self.layers, self.skips)):
            a, b = layer(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            found = torch.tanh(a) * torch.sigmoid(b)
            total, x = total + skip(found), x + found
        return self.end(F.relu(total))


class Tcn(nn.Module):
    def __init__(self):
        super().__init__()
        weighted = nn.utils.parametrizations.weight_norm
        self.a = weighted(nn.Conv1d(2, 8, 3, padding=4, dilation=2))
        self.b = weighted(nn.Conv1d(8, 8, 3, padding=4, dilation=2))
        self.short, self.head = nn.Conv1d(2, 8, 1), nn.Linear(8, 2)

    def forward(self, x):
        found = F.relu(self.a(x)[..., :-4])
        return self.head(F.relu(F.relu(self.b(found)[..., :-4]) + self.short(x))[..., -1])


class SpeechNet(nn.Module):
    """Spectra, convolutions over them, and a GRU over time (after Deep Speech 2)."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.convolve = nn.Sequential(nn.Conv2d(1, 4, (5, 3), (2, 1), (2, 1)), nn.InstanceNorm2d(4, affine=True),
                                      nn.Hardtanh(0, 20))
        self.time, self.head = nn.GRU(36, 12, bidirectional=True, batch_first=True), nn.Linear(24, 10)

    def forward(self, sound):
        spectrum = torch.stft(sound, 32, 16, window=self.window, center=False, return_complex=True)
        x = self.convolve(torch.log1p(spectrum.abs().square()).unsqueeze(1))
        return self.head(self.time(x.flatten(1, 2).transpose(1, 2))[0])


class Oscillator(nn.Module):
    """A neural differential equation, by Runge-Kutta steps."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, state):
        for _ in range(4):
            a = self.slope(state)
            b = self.slope(state + 0.05 * a)
            c = self.slope(state + 0.05 * b)
            state = state + 0.1 / 6 * (a + 2 * b + 2 * c + self.slope(state + 0.1 * c))
        return state


class FourierOperator(nn.Module):
    """A layer that multiplies low frequencies (Li et al., 2021)."""

    def __init__(self, width=6, modes=4):
        super().__init__()
        self.modes, self.lift, self.head = modes, nn.Linear(2, width), nn.Linear(width, 1)
        self.real, self.imaginary = (nn.Parameter(torch.randn(width, width, modes) / width) for _ in range(2))
        self.local = nn.Conv1d(width, width, 1)

    def forward(self, field):
        x = self.lift(field).transpose(1, 2)
        waves = torch.fft.rfft(x)
        a, b = waves.real[..., :self.modes], waves.imag[..., :self.modes]
        real = torch.einsum("bim,iom->bom", a, self.real) - torch.einsum("bim,iom->bom", b, self.imaginary)
        imaginary = torch.einsum("bim,iom->bom", a, self.imaginary) + torch.einsum("bim,iom->bom", b, self.real)
        rest = waves.shape[-1] - self.modes
        back = torch.fft.irfft(torch.complex(F.pad(real, (0, rest)), F.pad(imaginary, (0, rest))), n=x.shape[-1])
        return self.head(F.gelu(back + self.local(x)).transpose(1, 2))


class FeatureTokens(nn.Module):
    """A Transformer over columns of a table, with a token of its own (Gorishniy et al., 2021)."""

    def __init__(self, width=16):
        super().__init__()
        self.weight, self.bias, self.own = (nn.Parameter(torch.randn(n, width) * 0.3) for n in (5, 5, 1))
        self.kinds = nn.ModuleList(nn.Embedding(10, width) for _ in range(2))
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(width, 1)

    def forward(self, table, kinds):
        rows = [self.own.expand(table.shape[0], 1, -1), table.unsqueeze(-1) * self.weight + self.bias]
        rows += [each(kinds[:, i:i + 1]) for i, each in enumerate(self.kinds)]
        return self.head(self.layers(torch.cat(rows, 1))[:, 0])


class Autoencoder(nn.Module):
    """The mean of a variational autoencoder; its noise is an input."""

    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.spread = nn.Sequential(nn.Linear(20, 16), nn.ELU()), nn.Linear(16, 4), nn.Linear(16, 4)
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.SELU(), nn.Linear(16, 20), nn.Sigmoid())

    def forward(self, x, noise):
        hidden = self.encode(x)
        return self.decode(self.mean(hidden) + noise * torch.exp(0.5 * self.spread(hidden)))


class Codebook(nn.Module):
    """Nearest vectors of a codebook, with a straight-through gradient (van den Oord et al., 2017)."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode, self.codes = nn.Conv1d(2, 8, 4, 2, 1), nn.ConvTranspose1d(8, 2, 4, 2, 1), nn.Embedding(12, 8)

    def forward(self, sound):
        z = self.encode(sound).transpose(1, 2)
        distance = z.square().sum(-1, keepdim=True) - 2 * z @ self.codes.weight.T + self.codes.weight.square().sum(-1)
        chosen = self.codes(distance.argmin(-1))
        return self.decode((z + (chosen - z).detach()).transpose(1, 2))


class ZigzagNetwork(nn.Module):
    """Encoder and decoder of nn.Transformer with padding masks of both sides."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(90, 16)
        self.model, self.head = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True), nn.Linear(16, 90)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        found = self.model(self.table(source), self.table(target), tgt_mask=mask, src_key_padding_mask=source == 89)
        return self.head(found)


OWN = {
    "own_deepfm": of(DeepFm, ids=lambda: numbers(90, 6)),
    "own_deep_cross": of(DeepCross, x=lambda: drawn(16)),
    "own_interest": of(InterestNetwork, history=lambda: numbers(90, 8), candidate=lambda: numbers(90)),
    "own_sasrec": of(SelfAttentiveHistory, ids=lambda: numbers(90, 12)),
    "own_two_towers": of(TwoTowers, user=lambda: numbers(90), items=lambda: numbers(90, 5)),
    "own_gat": of(GraphAttention, nodes=lambda: drawn(7, 6), edges=lambda: drawn(7, 7)),
    "own_edge_conv": of(EdgeConvolution, points=lambda: drawn(10, 3)),
    "own_pointnet": of(PointNet, points=lambda: drawn(3, 20)),
    "own_translator": of(Translator, source=lambda: numbers(90, 6), target=lambda: numbers(90, 5)),
    "own_moe": of(MixtureOfExperts, x=lambda: drawn(6, 16)),
    "own_text_cnn": of(TextCnn, ids=lambda: numbers(90, 12)),
    "own_tagger": of(BiLstmTagger, ids=lambda: numbers(90, 8)),
    "own_wavenet": of(WaveNet, sound=lambda: drawn(1, 24)),
    "own_tcn": of(Tcn, x=lambda: drawn(2, 16)),
    "own_speech": of(SpeechNet, sound=lambda: drawn(160)),
    "own_oscillator": of(Oscillator, state=lambda: drawn(3)),
    "own_fourier": of(FourierOperator, field=lambda: drawn(16, 2)),
    "own_feature_tokens": of(FeatureTokens, table=lambda: drawn(5), kinds=lambda: numbers(10, 2)),
    "own_vae": of(Autoencoder, x=lambda: drawn(20), noise=lambda: drawn(4)),
    "own_codebook": of(Codebook, sound=lambda: drawn(2, 16)),
    "own_transformer": of(ZigzagNetwork, source=lambda: numbers(90, 7), target=lambda: numbers(90, 5)),
}
