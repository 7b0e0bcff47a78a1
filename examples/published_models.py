#!/usr/bin/env python3
"""Writes a published model of several branches at its size: FOLDER/model.onnx.

    python3 examples/published_models.py clip_vit_l14 out/clip
    python3 examples/published_models.py llava_7b out/llava

Needs nothing but Python; weights.bin beside the graph is one hole of the right size. The layers have the shapes that the
model's publishers give, so the parameters are as many as theirs; what is ours is said at each model.
"""

import argparse
import math
import pathlib
import shlex

from graph_writer import FLOAT, INT64, GraphWriter
from published_unet import Unet


class ModelWriter(GraphWriter):
    """A GraphWriter with the layers that the models share, in the operators that exporters write today."""

    def __init__(self):
        super().__init__(opset=23)

    def ids(self, *values: int) -> str:
        return self.constant(INT64, list(values), len(values))

    def add(self, a: str, b: str) -> str:
        return self.node("Add", [a, b])

    def norm(self, x: str, name: str, width: int) -> str:
        return self.node("LayerNormalization", [x, self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width)],
                         axis=-1, epsilon=1e-5)

    def quick_gelu(self, x: str) -> str:
        return self.node("Mul", [x, self.node("Sigmoid", [self.node("Mul", [x, self.constant(FLOAT, [1.702])])])])

    def attention(self, query: str, key: str, value: str, heads: int, causal: bool = False) -> str:
        return self.node("Attention", [query, key, value], q_num_heads=heads, kv_num_heads=heads, is_causal=int(causal))

    def unit(self, x: str) -> str:
        """Vectors of length one."""
        return self.node("Div", [x, self.node("ReduceL2", [x, self.ids(-1)], keepdims=1)])

    def similarity(self, left: str, right: str) -> str:
        scale = self.node("Exp", [self.weight("logit_scale")])
        product = self.node("MatMul", [self.unit(left), self.node("Transpose", [self.unit(right)], perm=[1, 0])])
        return self.node("Mul", [product, scale])


def encoder_layer(graph: ModelWriter, x: str, name: str, width: int, heads: int, activation, causal: bool = False) -> str:
    """A Transformer layer with its norms before; CLIP's towers consist of it."""
    inner = graph.norm(x, f"{name}.layer_norm1", width)
    projected = [graph.linear(inner, f"{name}.self_attn.{part}_proj", width, width) for part in "qkv"]
    mixed = graph.attention(*projected, heads, causal)
    x = graph.add(x, graph.linear(mixed, f"{name}.self_attn.out_proj", width, width))
    up = graph.linear(graph.norm(x, f"{name}.layer_norm2", width), f"{name}.mlp.fc1", width, 4 * width)
    return graph.add(x, graph.linear(activation(up), f"{name}.mlp.fc2", 4 * width, width))


def clip_vision(graph: ModelWriter, size: int, layers: int) -> str:
    """The image tower of CLIP ViT-L/14: a class vector and patches of 14 x 14, width 1024, 16 heads. [batch, 1 + patches, 1024]"""
    width, patches = 1024, (size // 14) ** 2
    pixels = graph.input("pixels", FLOAT, 3, size, size)
    x = graph.node("Conv", [pixels, graph.weight("vision.patch_embedding.weight", width, 3, 14, 14)], strides=[14, 14])
    x = graph.node("Transpose", [graph.reshape(x, 0, width, patches)], perm=[0, 2, 1])
    samples = graph.node("Gather", [graph.node("Shape", [pixels]), graph.ids(0)], axis=0)
    shape = graph.node("Concat", [samples, graph.ids(1, width)], axis=0)
    first = graph.node("Expand", [graph.weight("vision.class_embedding", width), shape])
    x = graph.add(graph.node("Concat", [first, x], axis=1), graph.weight("vision.position_embedding.weight", 1 + patches, width))
    x = graph.norm(x, "vision.pre_layrnorm", width)
    for layer in range(layers):
        x = encoder_layer(graph, x, f"vision.layers.{layer}", width, 16, graph.quick_gelu)
    return x


def clip_text(graph: ModelWriter, length: int = 77, width: int = 768) -> str:
    """The text tower of CLIP ViT-L/14: 12 causal layers, 12 heads; the vector at the end token, which has the largest id."""
    ids = graph.input("ids", INT64, length)
    x = graph.node("Gather", [graph.weight("text.token_embedding.weight", 49408, width), ids], axis=0)
    x = graph.add(x, graph.weight("text.position_embedding.weight", length, width))
    for layer in range(12):
        x = encoder_layer(graph, x, f"text.layers.{layer}", width, 12, graph.quick_gelu, causal=True)
    x = graph.norm(x, "text.final_layer_norm", width)
    return graph.node("GatherND", [x, graph.node("ArgMax", [ids], axis=1, keepdims=1)], batch_dims=1)


def clip_vit_l14() -> ModelWriter:
    """CLIP ViT-L/14 (Radford et al. 2021; 427,616,513 parameters): images of 224 x 224 and texts of 77 tokens, contrastive."""
    graph = ModelWriter()
    image = graph.node("Gather", [clip_vision(graph, 224, 24), graph.constant(INT64, [0])], axis=1)
    image = graph.linear(graph.norm(image, "vision.post_layernorm", 1024), "visual_projection", 1024, 768, bias=False)
    text = graph.linear(clip_text(graph), "text_projection", 768, 768, bias=False)
    graph.output(graph.similarity(image, text), "similarity", "batch")
    return graph


def rotary_tables(graph: ModelWriter, length: int, size: int) -> tuple:
    """Cosines and sines of Llama's rotary embedding for every position, [length, size of a head]."""
    angles = [position / 10000 ** (2 * i / size) for position in range(length) for _ in (0, 1) for i in range(size // 2)]
    return tuple(graph.constant(FLOAT, [function(angle) for angle in angles], length, size) for function in (math.cos, math.sin))


class Llama:
    """Llama's decoder layers (Touvron et al. 2023): RMSNorm, rotary embedding, gated feed-forward."""

    def __init__(self, graph: ModelWriter, length: int, width: int, heads: int, inner: int):
        self.graph, self.length, self.width, self.heads, self.inner = graph, length, width, heads, inner
        self.size = width // heads
        self.cosine, self.sine = rotary_tables(graph, length, self.size)

    def norm(self, x: str, name: str) -> str:
        return self.graph.node("RMSNormalization", [x, self.graph.weight(f"{name}.weight", self.width)], axis=-1, epsilon=1e-5)

    def heads_of(self, x: str, name: str) -> str:
        x = self.graph.linear(x, name, self.width, self.width, bias=False)
        return self.graph.node("Transpose", [self.graph.reshape(x, 0, self.length, self.heads, self.size)], perm=[0, 2, 1, 3])

    def rotate(self, x: str) -> str:
        graph, half = self.graph, self.size // 2
        first = graph.node("Slice", [x, graph.ids(0), graph.ids(half), graph.ids(3)])
        second = graph.node("Slice", [x, graph.ids(half), graph.ids(self.size), graph.ids(3)])
        turned = graph.node("Concat", [graph.node("Neg", [second]), first], axis=-1)
        return graph.add(graph.node("Mul", [x, self.cosine]), graph.node("Mul", [turned, self.sine]))

    def layer(self, x: str, name: str) -> str:
        graph = self.graph
        inner = self.norm(x, f"{name}.input_layernorm")
        query, key = (self.rotate(self.heads_of(inner, f"{name}.self_attn.{part}_proj")) for part in "qk")
        mixed = graph.node("Attention", [query, key, self.heads_of(inner, f"{name}.self_attn.v_proj")], is_causal=1)
        mixed = graph.reshape(graph.node("Transpose", [mixed], perm=[0, 2, 1, 3]), 0, self.length, self.width)
        x = graph.add(x, graph.linear(mixed, f"{name}.self_attn.o_proj", self.width, self.width, bias=False))
        inner = self.norm(x, f"{name}.post_attention_layernorm")
        gate = graph.silu(graph.linear(inner, f"{name}.mlp.gate_proj", self.width, self.inner, bias=False))
        up = graph.linear(inner, f"{name}.mlp.up_proj", self.width, self.inner, bias=False)
        down = graph.linear(graph.node("Mul", [gate, up]), f"{name}.mlp.down_proj", self.inner, self.width, bias=False)
        return graph.add(x, down)


def llava_7b() -> ModelWriter:
    """LLaVA-1.5-7B (Liu et al. 2023; 7,050,828,800 parameters in use): the frozen image tower of CLIP ViT-L/14 at 336 x 336
    without its last layer, two linear layers, and a Llama of 32 layers over 576 patches and the text. Ours: 448 tokens of text behind the image."""
    patches, text, width, vocabulary = 576, 448, 4096, 32064
    graph = ModelWriter()
    image = graph.node("Slice", [clip_vision(graph, 336, 23), graph.ids(1), graph.ids(1 + patches), graph.ids(1)])
    image = graph.node("Gelu", [graph.linear(image, "projector.linear_1", 1024, width)])
    image = graph.linear(image, "projector.linear_2", width, width)
    words = graph.node("Gather", [graph.weight("llm.embed_tokens.weight", vocabulary, width), graph.input("ids", INT64, text)], axis=0)
    x = graph.node("Concat", [image, words], axis=1)
    llama = Llama(graph, patches + text, width, 32, 11008)
    for layer in range(32):
        x = llama.layer(x, f"llm.layers.{layer}")
    logits = graph.linear(llama.norm(x, "llm.norm"), "lm_head", width, vocabulary, bias=False)
    graph.output(logits, "logits", patches + text, vocabulary)
    return graph


def whisper_attention(graph: ModelWriter, x: str, memory: str, name: str, width: int, causal: bool = False) -> str:
    query = graph.linear(x, f"{name}.q_proj", width, width)
    key = graph.linear(memory, f"{name}.k_proj", width, width, bias=False)
    value = graph.linear(memory, f"{name}.v_proj", width, width)
    return graph.linear(graph.attention(query, key, value, 20, causal), f"{name}.out_proj", width, width)


def whisper_layer(graph: ModelWriter, x: str, name: str, width: int, memory: str = "") -> str:
    """A layer of the encoder, or with a memory to attend to of the decoder."""
    inner = graph.norm(x, f"{name}.self_attn_layer_norm", width)
    x = graph.add(x, whisper_attention(graph, inner, inner, f"{name}.self_attn", width, causal=bool(memory)))
    if memory:
        inner = graph.norm(x, f"{name}.encoder_attn_layer_norm", width)
        x = graph.add(x, whisper_attention(graph, inner, memory, f"{name}.encoder_attn", width))
    up = graph.linear(graph.norm(x, f"{name}.final_layer_norm", width), f"{name}.fc1", width, 4 * width)
    return graph.add(x, graph.linear(graph.node("Gelu", [up]), f"{name}.fc2", 4 * width, width))


def whisper_large_v3() -> ModelWriter:
    """Whisper large-v3 (Radford et al. 2022; 1,543,490,560 parameters): 30 seconds of sound in 128 mel bands through 32 layers,
    448 tokens through 32 layers that attend to them; the output layer is the table of tokens. Train it with the encoder's
    positions frozen."""
    width, frames, length, vocabulary = 1280, 1500, 448, 51866
    graph = ModelWriter()
    x = graph.input("mel", FLOAT, 128, 2 * frames)
    for name, channels, stride in (("encoder.conv1", 128, 1), ("encoder.conv2", width, 2)):
        weights = [graph.weight(f"{name}.weight", width, channels, 3), graph.weight(f"{name}.bias", width)]
        x = graph.node("Gelu", [graph.node("Conv", [x, *weights], pads=[1, 1], strides=[stride])])
    x = graph.add(graph.node("Transpose", [x], perm=[0, 2, 1]), graph.weight("encoder.embed_positions.weight", frames, width))
    for layer in range(32):
        x = whisper_layer(graph, x, f"encoder.layers.{layer}", width)
    memory = graph.norm(x, "encoder.layer_norm", width)
    table = graph.weight("decoder.embed_tokens.weight", vocabulary, width)
    x = graph.node("Gather", [table, graph.input("ids", INT64, length)], axis=0)
    x = graph.add(x, graph.weight("decoder.embed_positions.weight", length, width))
    for layer in range(32):
        x = whisper_layer(graph, x, f"decoder.layers.{layer}", width, memory)
    x = graph.norm(x, "decoder.layer_norm", width)
    logits = graph.node("MatMul", [x, graph.node("Transpose", [table], perm=[1, 0])])
    graph.output(logits, "logits", length, vocabulary)
    return graph


def sd15_unet() -> ModelWriter:
    """The U-Net of Stable Diffusion 1.5 (Rombach et al. 2022; 859,520,964 parameters): latents of 64 x 64, texts of 77 vectors."""
    graph = ModelWriter()
    graph.output(Unet(graph, 64, 77).write(), "noise_prediction", 4, 64, 64)
    return graph


# Rows of the tables: values of the 26 categories of the Criteo Terabyte set, ids above 40 million folded (MLPerf Training 0.7).
CRITEO_ROWS = (39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14,
               39979771, 25641295, 39664984, 585935, 12972, 108, 36)


def dense_layers(graph: ModelWriter, x: str, name: str, widths: tuple) -> str:
    for layer, (rows, columns) in enumerate(zip(widths, widths[1:])):
        x = graph.node("Relu", [graph.linear(x, f"{name}.{layer}", rows, columns)])
    return x


def dlrm_criteo() -> ModelWriter:
    """DLRM as MLPerf trains it (Naumov et al. 2019): 13 numbers and one id in each of 26 tables of 128 columns, products of all pairs
    of vectors, layers on top. 187,767,399 rows."""
    graph, width = ModelWriter(), 128
    dense = dense_layers(graph, graph.input("dense", FLOAT, 13), "bottom", (13, 512, 256, width))
    vectors = [dense]
    for table, rows in enumerate(CRITEO_ROWS):
        ids = graph.input(f"category{table}", INT64)
        vectors.append(graph.node("Gather", [graph.weight(f"tables.{table}.weight", rows, width), ids], axis=0))
    count = len(vectors)
    stacked = graph.reshape(graph.node("Concat", vectors, axis=1), 0, count, width)
    products = graph.node("MatMul", [stacked, graph.node("Transpose", [stacked], perm=[0, 2, 1])])
    pairs = graph.ids(*(row * count + column for row in range(count) for column in range(row)))
    chosen = graph.node("Gather", [graph.reshape(products, 0, count * count), pairs], axis=1)
    x = graph.node("Concat", [dense, chosen], axis=1)
    x = dense_layers(graph, x, "top", (width + count * (count - 1) // 2, 1024, 1024, 512, 256))
    graph.output(graph.linear(x, "top.4", 256, 1), "score", 1)
    return graph


def two_towers() -> ModelWriter:
    """A retrieval model of two towers in the manner of Yi et al. 2019: users by id, country and the last 50 items, items by id and topic,
    both through layers to vectors of 128 that are compared within the batch. Sizes are ours; both towers read the same table of items."""
    graph, width, items = ModelWriter(), 128, 10_000_000
    table = graph.weight("items.weight", items, width)

    def looked_up(name: str, rows: int) -> str:
        return graph.node("Gather", [graph.weight(f"{name}.weight", rows, width), graph.input(name, INT64)], axis=0)

    history = graph.node("Gather", [table, graph.input("history", INT64, 50)], axis=0)
    history = graph.node("ReduceMean", [history, graph.ids(1)], keepdims=0)
    user = graph.node("Concat", [looked_up("user", 20_000_000), looked_up("country", 250), history], axis=-1)
    item = graph.node("Gather", [table, graph.input("item", INT64)], axis=0)
    item = graph.node("Concat", [item, looked_up("topic", 50_000)], axis=-1)
    ends = []
    for name, x, parts in (("user_tower", user, 3), ("item_tower", item, 2)):
        x = dense_layers(graph, x, name, (parts * width, 2048, 1024, 512))
        ends.append(graph.linear(x, f"{name}.out", 512, width))
    graph.output(graph.similarity(*ends), "similarity", "batch")
    return graph


# Name: what writes it, and the flags to plan it with.
MODELS = {"clip_vit_l14": (clip_vit_l14, ["--loss", "contrastive:similarity"]),
          # The tables of its rotary embedding, too, are not trained.
          "llava_7b": (llava_7b, ["--loss", "cross_entropy:logits,label", "--freeze", "vision.*", "--freeze", "constant_*"]),
          "whisper_large_v3": (whisper_large_v3, ["--loss", "cross_entropy:logits,label", "--freeze", "encoder.embed_positions.weight"]),
          "sd15_unet": (sd15_unet, ["--loss", "mse:noise_prediction,noise", "--freeze", "constant_*"]),
          "dlrm_criteo": (dlrm_criteo, ["--loss", "bce:score,click"]),
          "two_towers": (two_towers, ["--loss", "contrastive:similarity"])}


def write_model(name: str, folder: pathlib.Path) -> list:
    """Writes the model and returns the flags to plan it with."""
    make, flags = MODELS[name]
    make().write(folder)
    return flags


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    flags = write_model(arguments.name, arguments.folder)
    print(f"{arguments.folder / 'model.onnx'}: plan it with {shlex.join(flags)}")


if __name__ == "__main__":
    main()
