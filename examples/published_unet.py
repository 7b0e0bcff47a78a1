"""The U-Net of Stable Diffusion 1.5, as examples/published_models.py writes it."""


from graph_writer import FLOAT, GraphWriter

CHANNELS, CONTEXT, HEADS = (320, 640, 1280, 1280), 768, 8
TIME = 4 * CHANNELS[0]


class Unet:
    """Rombach et al. 2022, section 3: residual blocks that see the time step, blocks that attend to the text, and skips from the way
    down to the way up, which are (name, channels) pairs. `side` is the height and width of the current level."""

    def __init__(self, graph: GraphWriter, side: int, length: int):
        self.graph, self.side = graph, side
        self.latent = graph.input("latent", FLOAT, 4, side, side)
        self.time = self.graph.silu(self.time_embedding(graph.input("timestep", FLOAT)))
        self.context = graph.input("context", FLOAT, length, CONTEXT)

    def time_embedding(self, step: str) -> str:
        half = CHANNELS[0] // 2
        rates = self.graph.constant(FLOAT, [10000 ** (-i / half) for i in range(half)], 1, half)
        angles = self.graph.node("Mul", [self.graph.reshape(step, 0, 1), rates])
        waves = self.graph.node("Concat", [self.graph.node("Cos", [angles]), self.graph.node("Sin", [angles])], axis=-1)
        inner = self.graph.silu(self.graph.linear(waves, "time_embedding.linear_1", CHANNELS[0], TIME))
        return self.graph.linear(inner, "time_embedding.linear_2", TIME, TIME)

    def conv(self, x: str, name: str, channels: int, out: int, kernel: int = 3, stride: int = 1) -> str:
        weights = [self.graph.weight(f"{name}.weight", out, channels, kernel, kernel), self.graph.weight(f"{name}.bias", out)]
        return self.graph.node("Conv", [x, *weights], pads=[kernel // 2] * 4, strides=[stride, stride])

    def group_norm(self, x: str, name: str, channels: int, epsilon: float) -> str:
        weights = [self.graph.weight(f"{name}.weight", channels), self.graph.weight(f"{name}.bias", channels)]
        return self.graph.node("GroupNormalization", [x, *weights], num_groups=32, epsilon=epsilon)

    def layer_norm(self, x: str, name: str, channels: int) -> str:
        weights = [self.graph.weight(f"{name}.weight", channels), self.graph.weight(f"{name}.bias", channels)]
        return self.graph.node("LayerNormalization", [x, *weights], axis=-1, epsilon=1e-5)

    def residual(self, x: str, name: str, channels: int, out: int) -> str:
        inner = self.graph.silu(self.group_norm(x, f"{name}.norm1", channels, 1e-5))
        inner = self.conv(inner, f"{name}.conv1", channels, out)
        time = self.graph.linear(self.time, f"{name}.time_emb_proj", TIME, out)
        inner = self.graph.node("Add", [inner, self.graph.reshape(time, 0, out, 1, 1)])
        inner = self.conv(self.graph.silu(self.group_norm(inner, f"{name}.norm2", out, 1e-5)), f"{name}.conv2", out, out)
        return self.graph.node("Add", [x if channels == out else self.conv(x, f"{name}.conv_shortcut", channels, out, 1), inner])

    def attend(self, x: str, memory: str, name: str, channels: int, columns: int) -> str:
        query = self.graph.linear(x, f"{name}.to_q", channels, channels, bias=False)
        key, value = (self.graph.linear(memory, f"{name}.to_{part}", columns, channels, bias=False) for part in "kv")
        mixed = self.graph.node("Attention", [query, key, value], q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=0)
        return self.graph.linear(mixed, f"{name}.to_out", channels, channels)

    def feed_forward(self, x: str, name: str, channels: int) -> str:
        both = self.graph.linear(x, f"{name}.proj", channels, 8 * channels)
        value, gate = f"{both}_value", f"{both}_gate"
        self.graph.split(both, [value, gate], 4 * channels)
        gated = self.graph.node("Mul", [value, self.graph.node("Gelu", [gate])])
        return self.graph.linear(gated, f"{name}.out", 4 * channels, channels)

    def transformer(self, x: str, name: str, channels: int) -> str:
        """Attention over the positions of the image, then over the text, then a gated feed-forward."""
        graph = self.graph
        inner = self.conv(self.group_norm(x, f"{name}.norm", channels, 1e-6), f"{name}.proj_in", channels, channels, 1)
        inner = graph.node("Transpose", [graph.reshape(inner, 0, channels, self.side ** 2)], perm=[0, 2, 1])
        normed = self.layer_norm(inner, f"{name}.norm1", channels)
        inner = graph.node("Add", [inner, self.attend(normed, normed, f"{name}.attn1", channels, channels)])
        normed = self.layer_norm(inner, f"{name}.norm2", channels)
        inner = graph.node("Add", [inner, self.attend(normed, self.context, f"{name}.attn2", channels, CONTEXT)])
        inner = graph.node("Add", [inner, self.feed_forward(self.layer_norm(inner, f"{name}.norm3", channels), f"{name}.ff", channels)])
        inner = graph.reshape(graph.node("Transpose", [inner], perm=[0, 2, 1]), 0, channels, self.side, self.side)
        return graph.node("Add", [x, self.conv(inner, f"{name}.proj_out", channels, channels, 1)])

    def down(self, x: str) -> list:
        """The way down: the values that the way up reads again, the last one the lowest."""
        skips, channels = [(x, CHANNELS[0])], CHANNELS[0]
        for level, out in enumerate(CHANNELS):
            last = level == len(CHANNELS) - 1
            for layer in range(2):
                x = self.residual(x, f"down.{level}.resnets.{layer}", channels, out)
                x = x if last else self.transformer(x, f"down.{level}.attentions.{layer}", out)
                channels = out
                skips.append((x, out))
            if not last:
                x = self.conv(x, f"down.{level}.downsampler", out, out, stride=2)
                self.side //= 2
                skips.append((x, out))
        return skips

    def up(self, x: str, skips: list) -> str:
        channels = CHANNELS[-1]
        for level, out in enumerate(reversed(CHANNELS)):
            for layer in range(3):
                skip, more = skips.pop()
                x = self.graph.node("Concat", [x, skip], axis=1)
                x = self.residual(x, f"up.{level}.resnets.{layer}", channels + more, out)
                x = self.transformer(x, f"up.{level}.attentions.{layer}", out) if level else x
                channels = out
            if skips:
                scales = self.graph.constant(FLOAT, [1.0, 1.0, 2.0, 2.0], 4)
                x = self.graph.node("Resize", [x, "", scales], mode="nearest", coordinate_transformation_mode="asymmetric",
                                    nearest_mode="floor")
                self.side *= 2
                x = self.conv(x, f"up.{level}.upsampler", out, out)
        return x

    def write(self) -> str:
        """The noise that the network sees in the latent, [batch, 4, side, side]."""
        skips = self.down(self.conv(self.latent, "conv_in", 4, CHANNELS[0]))
        x, lowest = skips[-1][0], CHANNELS[-1]
        x = self.residual(x, "mid.resnets.0", lowest, lowest)
        x = self.residual(self.transformer(x, "mid.attentions.0", lowest), "mid.resnets.1", lowest, lowest)
        x = self.graph.silu(self.group_norm(self.up(x, skips), "conv_norm_out", CHANNELS[0], 1e-5))
        return self.conv(x, "conv_out", CHANNELS[0], 4)
