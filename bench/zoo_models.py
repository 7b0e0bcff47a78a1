"""The architectures of bench/zoo.py: those of transformers and torchvision, narrow and of few layers, with random weights.

Each entry of ZOO makes a module that returns one tensor, and example inputs by the names of its arguments. Dropout is off:
what is drawn at random in training is drawn otherwise in PyTorch.
"""

import torch
import torchvision.models as vision
import transformers as hf

SAMPLES, LENGTH, WORDS = 4, 12, 100
NARROW = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = NARROW | {"num_key_value_heads": 2}
EIGHT = {"head_dim": 8}
SEQ2SEQ = {"vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 32}
PICTURE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
           "patch_size": 8}


class OneOutput(torch.nn.Module):
    """A model's logits, or the first of what it returns."""

    def __init__(self, model, **fixed):
        super().__init__()
        self.model, self.fixed = model, fixed

    def first(self, **inputs):
        found = self.model(**inputs, **self.fixed)
        if isinstance(found, torch.Tensor):
            return found
        return found.logits if getattr(found, "logits", None) is not None else found[0]


class OfIds(OneOutput):
    def forward(self, input_ids):
        return self.first(input_ids=input_ids)


class OfTwoTexts(OneOutput):
    def forward(self, input_ids, decoder_input_ids):
        return self.first(input_ids=input_ids, decoder_input_ids=decoder_input_ids)


class OfImages(OneOutput):
    def forward(self, pixel_values):
        return self.first(pixel_values=pixel_values)


class OfSound(OneOutput):
    def forward(self, input_values):
        return self.first(input_values=input_values)


class OfImagesByPosition(torch.nn.Module):
    """torchvision's models; of those with more outputs the main one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        found = self.model(image)
        return found["out"] if isinstance(found, dict) else found if isinstance(found, torch.Tensor) else found[0]


def ids(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, WORDS - 2, (SAMPLES, length))


def causal(name: str, **config):
    def make():
        model = getattr(hf, name + "ForCausalLM", None) or getattr(hf, name + "LMHeadModel")
        return OfIds(model(getattr(hf, name + "Config")(**config)), use_cache=False), {"input_ids": ids()}
    return make


def encoder(name: str, kind: str = "ForSequenceClassification", **config):
    def make():
        made = getattr(hf, name + "Config")(**config)
        return OfIds(getattr(hf, name + kind)(made)), {"input_ids": ids()}
    return make


def two_texts(name: str, kind: str = "ForConditionalGeneration", **config):
    def make():
        model = getattr(hf, name + kind)(getattr(hf, name + "Config")(**config))
        return OfTwoTexts(model, use_cache=False), {"input_ids": ids(), "decoder_input_ids": ids(8)}
    return make


def images(name: str, kind: str = "ForImageClassification", size: int = 32, **config):
    def make():
        model = getattr(hf, name + kind)(getattr(hf, name + "Config")(**config))
        return OfImages(model), {"pixel_values": torch.randn(SAMPLES, 3, size, size)}
    return make


def sound(name: str, shape: tuple, kind: str = "ForSequenceClassification", **config):
    def make():
        model = getattr(hf, name + kind)(getattr(hf, name + "Config")(**config))
        return OfSound(model), {"input_values": torch.randn(SAMPLES, *shape)}
    return make


def torchvision_model(name: str, size: int = 64, **arguments):
    def make():
        model = vision.get_model(name, weights=None, **arguments)
        return OfImagesByPosition(model), {"image": torch.randn(SAMPLES, 3, size, size)}
    return make


def clip_model(name: str, frames: int, size: int):
    """One of torchvision's for short films."""
    def make():
        model = vision.get_model(name, weights=None)
        return OfImagesByPosition(model), {"image": torch.randn(SAMPLES, 3, frames, size, size)}
    return make


def named(build, *names: str, pick=None, **fixed):
    """A model called by these names: `build()` gives the module and the inputs. `pick` takes the output out of what it
    returns, where that is not the logits or the first."""
    def make():
        model, inputs = build()
        holder = OneOutput(model, **fixed)
        scope: dict = {"pick": pick or (lambda found: found)}
        call = ", ".join(f"{name}={name}" for name in names)
        exec(f"def forward(self, {', '.join(names)}):\n    return pick(self.first({call}))\n", scope)  # names of ours
        return type("OfNames", (OneOutput,), {"forward": scope["forward"]})(holder.model, **fixed), dict(zip(names, inputs))
    return make


def picture(size: int = 32) -> torch.Tensor:
    return torch.randn(SAMPLES, 3, size, size)


def video() -> torch.Tensor:
    return torch.randn(SAMPLES, 4, 3, 32, 32)


def ids_with(token: int, count: int, length: int = LENGTH) -> torch.Tensor:
    """So many of one token in each sample."""
    found = torch.randint(3, WORDS - 10, (SAMPLES, length))
    found[:, 1:1 + count] = token
    return found


PLACE, END = 95, 2  # of a picture's features, and of a sentence's end
MASKED = {"attention_mask": torch.ones(SAMPLES, LENGTH, dtype=torch.long)}


def blip2():
    text = {"model_type": "opt", "vocab_size": WORDS, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 64, "word_embed_proj_dim": 32}
    config = hf.Blip2Config(vision_config=PICTURE, qformer_config=NARROW | {"encoder_hidden_size": 32}, text_config=text,
                            num_query_tokens=4, image_token_index=PLACE)
    config.image_token_id = PLACE
    return hf.Blip2ForConditionalGeneration(config), (picture(), ids_with(PLACE, 4), MASKED["attention_mask"])


def paligemma():
    config = hf.PaliGemmaConfig(vision_config={"model_type": "siglip_vision_model", **PICTURE},
                                text_config={"model_type": "gemma", **GROUPED, **EIGHT}, image_token_index=PLACE,
                                projection_dim=32, hidden_size=32)
    kinds = torch.zeros(SAMPLES, 24, dtype=torch.long)
    return hf.PaliGemmaForConditionalGeneration(config), (picture(), ids_with(PLACE, 16, 24), kinds)


def owlvit():
    config = hf.OwlViTConfig(text_config=NARROW | {"max_position_embeddings": 16, "projection_dim": 32},
                             vision_config=PICTURE | {"projection_dim": 32}, projection_dim=32)
    return hf.OwlViTForObjectDetection(config), (picture(), ids(), MASKED["attention_mask"])


def whisper():
    sizes = {key: value for key, value in SEQ2SEQ.items() if key != "max_position_embeddings"}
    config = hf.WhisperConfig(**sizes, num_mel_bins=16, max_source_positions=32, max_target_positions=32, pad_token_id=0,
                              decoder_start_token_id=1, bos_token_id=1, eos_token_id=2)
    return hf.WhisperForConditionalGeneration(config), (torch.randn(SAMPLES, 16, 64), ids())


def detr():
    backbone = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage4"])
    config = hf.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone,
                           d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                           decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=6)
    return without_guards(hf.DetrForObjectDetection(config)), (picture(64),)


def one(kind: str, config, *inputs):
    """A model of transformers and its inputs."""
    return lambda: (getattr(hf, kind)(config()), [make() for make in inputs])


CONVOLUTIONS = {"conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_conv_pos_embeddings": 16,
                "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2, "classifier_proj_size": 16,
                "layerdrop": 0.0, "apply_spec_augment": False}

ZOO = {
    # Decoders.
    "gpt2": causal("GPT2", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "gpt_neo": causal("GPTNeo", vocab_size=WORDS, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=32,
                      attention_types=[[["global", "local"], 1]], window_size=4),
    "gpt_neox": causal("GPTNeoX", **NARROW, max_position_embeddings=32),
    "gptj": causal("GPTJ", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4),
    "codegen": causal("CodeGen", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4),
    "opt": causal("OPT", vocab_size=WORDS, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
                  max_position_embeddings=32, word_embed_proj_dim=32),
    "bloom": causal("Bloom", vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4),
    "falcon": causal("Falcon", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "llama": causal("Llama", **GROUPED), "mistral": causal("Mistral", **GROUPED), "qwen2": causal("Qwen2", **GROUPED),
    "qwen3": causal("Qwen3", **GROUPED, **EIGHT), "gemma": causal("Gemma", **GROUPED, **EIGHT),
    "gemma2": causal("Gemma2", **GROUPED, **EIGHT), "phi": causal("Phi", **NARROW),
    "phi3": causal("Phi3", **GROUPED, pad_token_id=0), "stablelm": causal("StableLm", **GROUPED),
    "olmo": causal("Olmo", **GROUPED), "olmo2": causal("Olmo2", **GROUPED), "cohere": causal("Cohere", **GROUPED),
    "granite": causal("Granite", **GROUPED), "starcoder2": causal("Starcoder2", **GROUPED),
    "smollm3": causal("SmolLM3", **GROUPED, pad_token_id=0), "helium": causal("Helium", **GROUPED, **EIGHT),
    "mamba": causal("Mamba", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=4),
    "mixtral": causal("Mixtral", **GROUPED, num_local_experts=4),
    # Encoders.
    "bert": encoder("Bert", **NARROW), "roberta": encoder("Roberta", **NARROW),
    "electra": encoder("Electra", **NARROW, embedding_size=16),
    "albert": encoder("Albert", **NARROW, embedding_size=16), "mpnet": encoder("MPNet", **NARROW),
    "distilbert": encoder("DistilBert", vocab_size=WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "deberta": encoder("Deberta", **NARROW, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "deberta_v2": encoder("DebertaV2", **NARROW, relative_attention=True, pos_att_type=["p2c", "c2p"],
                          position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True),
    "fnet": encoder("FNet", vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2),
    "convbert": encoder("ConvBert", **NARROW, embedding_size=32),
    "mobilebert": encoder("MobileBert", **NARROW, embedding_size=16),
    "squeezebert": encoder("SqueezeBert", **NARROW, embedding_size=32), "roformer": encoder("RoFormer", **NARROW),
    "camembert": encoder("Camembert", **NARROW), "xlm_roberta": encoder("XLMRoberta", **NARROW),
    "ernie": encoder("Ernie", **NARROW), "megatron_bert": encoder("MegatronBert", **NARROW),
    "big_bird": encoder("BigBird", **NARROW, attention_type="original_full"), "layoutlm": encoder("LayoutLM", **NARROW),
    "xlnet": encoder("XLNet", vocab_size=WORDS, d_model=32, n_layer=2, n_head=4, d_inner=64),
    "modernbert": encoder("ModernBert", **NARROW, pad_token_id=0, attn_implementation="eager"),
    # Two texts.
    "t5": two_texts("T5", vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    "umt5": two_texts("UMT5", vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    "bart": two_texts("Bart", **SEQ2SEQ), "mbart": two_texts("MBart", **SEQ2SEQ), "pegasus": two_texts("Pegasus", **SEQ2SEQ),
    "marian": two_texts("Marian", "MTModel", **SEQ2SEQ, pad_token_id=0), "blenderbot": two_texts("Blenderbot", **SEQ2SEQ),
    # Pictures.
    "vit": images("ViT", **PICTURE), "deit": images("DeiT", **PICTURE), "beit": images("Beit", **PICTURE),
    "dinov2": images("Dinov2", **(PICTURE | {"patch_size": 16})), "vit_msn": images("ViTMSN", **PICTURE),
    "siglip": images("Siglip", vision_config=PICTURE, text_config=NARROW),
    "swin": images("Swin", image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
    "swinv2": images("Swinv2", image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
    "convnext": images("ConvNext", size=64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1]),
    "convnextv2": images("ConvNextV2", size=64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1]),
    "resnet": images("ResNet", size=64, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]),
    "regnet": images("RegNet", size=64, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    "poolformer": images("PoolFormer", size=64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1]),
    "segformer": images("Segformer", "ForSemanticSegmentation", size=64, hidden_sizes=[8, 16, 40, 64],
                        depths=[1, 1, 1, 1], decoder_hidden_size=16),
    "mobilevit": images("MobileViT", size=64, image_size=64, hidden_sizes=[16, 16, 16],
                        neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 16], num_attention_heads=4),
    "mobilenet_v1": images("MobileNetV1", size=64), "mobilenet_v2_hf": images("MobileNetV2", size=64),
    "focalnet": images("FocalNet", image_size=32, embed_dim=16, depths=[1, 1], focal_levels=[2, 2],
                       focal_windows=[3, 3], hidden_sizes=[16, 32]),
    "levit": images("Levit", size=64, image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 2, 4],
                    depths=[1, 1, 1], key_dim=[8, 8, 8], attention_ratio=[2, 2, 2], mlp_ratio=[2, 2, 2]),
    "pvt": images("Pvt", size=64, image_size=64, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1],
                  num_attention_heads=[1, 2, 2, 2]),
    "cvt": images("Cvt", size=64, embed_dim=[16, 16, 32], num_heads=[1, 2, 2], depth=[1, 2, 3],
                  drop_path_rate=[0.0, 0.0, 0.0]),
    # Sound.
    "wav2vec2": sound("Wav2Vec2", (800,), **(NARROW | CONVOLUTIONS)),
    "hubert": sound("Hubert", (800,), **(NARROW | CONVOLUTIONS)),
    "ast": sound("AST", (64, 32), "ForAudioClassification", hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                 num_attention_heads=4, max_length=64, num_mel_bins=32),
    # Several kinds of inputs, and rows that masks pick.
    "blip2": named(blip2, "pixel_values", "input_ids", "attention_mask"),
    "paligemma": named(paligemma, "pixel_values", "input_ids", "token_type_ids", use_cache=False),
    "owlvit": named(owlvit, "pixel_values", "input_ids", "attention_mask"),
    "whisper": named(whisper, "input_features", "decoder_input_ids", use_cache=False),
    "detr": named(detr, "pixel_values"),
    "blip": named(one("BlipForConditionalGeneration", lambda: hf.BlipConfig(
        text_config=NARROW | {"encoder_hidden_size": 32, "max_position_embeddings": 16}, vision_config=PICTURE,
        projection_dim=16), picture, ids), "pixel_values", "input_ids"),
    "bart_classes": named(one("BartForSequenceClassification", lambda: hf.BartConfig(**SEQ2SEQ, eos_token_id=END),
                              lambda: ids_with(END, 1)), "input_ids", use_cache=False),
    "t5_classes": named(one("T5ForSequenceClassification", lambda: hf.T5Config(
        vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, eos_token_id=END,
        decoder_start_token_id=0), lambda: ids_with(END, 1)), "input_ids", use_cache=False),
    "gpt2_classes": named(one("GPT2ForSequenceClassification", lambda: hf.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, pad_token_id=0), ids), "input_ids", use_cache=False),
    "olmoe": named(one("OlmoeForCausalLM", lambda: hf.OlmoeConfig(**GROUPED, num_experts=4, num_experts_per_tok=2), ids),
                   "input_ids", use_cache=False),
    "qwen2_moe": named(one("Qwen2MoeForCausalLM", lambda: hf.Qwen2MoeConfig(
        **GROUPED, moe_intermediate_size=16, shared_expert_intermediate_size=32, num_experts=4, num_experts_per_tok=2), ids),
        "input_ids", use_cache=False),
    "timesformer": named(one("TimesformerForVideoClassification", lambda: hf.TimesformerConfig(**PICTURE, num_frames=4), video),
                         "pixel_values"),
    "videomae": named(one("VideoMAEForVideoClassification", lambda: hf.VideoMAEConfig(**PICTURE, num_frames=4), video),
                      "pixel_values"),
    "yolos": named(one("YolosForObjectDetection", lambda: hf.YolosConfig(**(PICTURE | {"image_size": [32, 32]}),
                                                                        num_detection_tokens=5), picture), "pixel_values"),
    "perceiver": named(one("PerceiverForMaskedLM", lambda: hf.PerceiverConfig(
        num_latents=8, d_latents=32, d_model=16, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4,
        num_cross_attention_heads=4, vocab_size=WORDS, max_position_embeddings=LENGTH, qk_channels=32, v_channels=32), ids),
        "inputs"),
    "longformer": named(one("LongformerForSequenceClassification", lambda: hf.LongformerConfig(
        **NARROW, attention_window=8, max_position_embeddings=64, pad_token_id=1), lambda: ids(16)), "input_ids"),
    "funnel": named(one("FunnelForSequenceClassification", lambda: hf.FunnelConfig(
        vocab_size=WORDS, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=64), ids),
        "input_ids"),
    "mamba2": causal("Mamba2", vocab_size=WORDS, hidden_size=32, num_heads=8, head_dim=8, expand=2, state_size=8, n_groups=2,
                     num_hidden_layers=2, chunk_size=4),
    "rwkv": named(one("RwkvForCausalLM", lambda: hf.RwkvConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2,
                                                              attention_hidden_size=32, context_length=32), ids),
                  "input_ids", use_cache=False),
    "esm": named(one("EsmForMaskedLM", lambda: hf.EsmConfig(**NARROW, pad_token_id=1, mask_token_id=4,
                                                            position_embedding_type="rotary"), ids), "input_ids"),
    # torchvision.
    **{f"tv_{name}": torchvision_model(name) for name in (
        "resnet18", "resnext50_32x4d", "wide_resnet50_2", "vgg11_bn", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small",
        "efficientnet_b0", "efficientnet_v2_s", "shufflenet_v2_x0_5", "regnet_y_400mf", "regnet_x_400mf", "mnasnet0_5",
        "convnext_tiny", "swin_t", "swin_v2_t", "densenet121", "alexnet")},
    "tv_googlenet": torchvision_model("googlenet", aux_logits=False, init_weights=False),
    "tv_inception_v3": torchvision_model("inception_v3", 96, aux_logits=False, init_weights=False),
    "tv_vit": torchvision_model("vit_b_16", 32, image_size=32),
    "tv_maxvit": torchvision_model("maxvit_t", 224),
    "tv_fcn": torchvision_model("fcn_resnet50", weights_backbone=None),
    "tv_deeplabv3": torchvision_model("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    "tv_lraspp": torchvision_model("lraspp_mobilenet_v3_large", weights_backbone=None),
    "tv_r3d": clip_model("r3d_18", 4, 32),
}


def make(build):
    """The module in training mode without dropout, and its example inputs, by an entry of ZOO."""
    torch.manual_seed(3)
    module, inputs = build()
    for part in module.modules():
        without_dropout(part, also_p="Drop" in type(part).__name__)
        if type(part).__name__ == "StochasticDepth":
            part.p = 0.0
        if hasattr(part, "config"):  # which some read when they are called
            without_dropout(part.config)
    return module.train(), inputs


def without_guards(model):
    """In training, some encoders look whether a number has overflowed, and then cut all off: a branch that torch.export
    refuses. Those of their own parts that train otherwise than they infer have no dropout here."""
    for part in model.modules():
        if type(part).__name__.endswith(("EncoderLayer", "DecoderLayer")):
            part.training = False
            part.train = lambda mode=True, part=part: part
    return model


def without_dropout(holder, also_p: bool = False) -> None:
    for key, value in vars(holder).items():
        if isinstance(value, float) and ("drop" in key or key == "p" and also_p):
            setattr(holder, key, 0.0)
