"""Further architectures of transformers for bench/zoo.py, in the form of zoo_models.py."""

import torch
import transformers as hf

from zoo_models import (CONVOLUTIONS, EIGHT, GROUPED, LENGTH, NARROW, PICTURE, PLACE, SAMPLES, SEQ2SEQ, WORDS, causal, encoder,
                        ids, ids_with, images, named, one, picture, sound, two_texts, video, without_guards)

CONV = NARROW | CONVOLUTIONS
TEXT = NARROW | {"max_position_embeddings": 32}
SEQ2SEQ_WITHOUT_PLACES = {key: value for key, value in SEQ2SEQ.items() if key != "max_position_embeddings"}
T5_SIZES = {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
GPT_SIZES = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
DETECTOR = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "d_model": 32, "encoder_layers": 1,
            "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32, "num_queries": 6}
FOUR_STAGES = {"depths": [1, 1, 1, 1]}


def small_resnet(*stages: str):
    return hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=list(stages))


def small_swin():
    return hf.SwinConfig(image_size=64, patch_size=4, embed_dim=16, num_heads=[1, 2, 2, 4], window_size=4, **FOUR_STAGES,
                         out_features=["stage1", "stage2", "stage3", "stage4"])


def prophet_mask(length, streams, device, dtype):
    rows, columns, stream = torch.arange(length)[:, None], torch.arange(length), torch.arange(streams)[:, None, None]
    hidden = torch.cat([(columns > rows - stream) & (columns > 0), (rows != columns).expand(streams, -1, -1)], 2)
    return hidden.to(device, dtype) * torch.finfo(dtype).min


def prophetnet():
    """Its own mask is written in place into parts of a tensor: torch.export refuses that, the older exporter loses it."""
    from transformers.models.prophetnet import modeling_prophetnet as own
    own.ngram_attention_bias = prophet_mask
    return two_texts("ProphetNet", vocab_size=WORDS, hidden_size=32, encoder_ffn_dim=64, decoder_ffn_dim=64,
                     num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
                     num_decoder_attention_heads=4, max_position_embeddings=32)()


def dpt():
    config = hf.DPTConfig(**PICTURE | {"num_hidden_layers": 4}, neck_hidden_sizes=[8, 16, 16, 16], fusion_hidden_size=16,
                          backbone_out_indices=[0, 1, 2, 3], reassemble_factors=[4, 2, 1, 0.5])
    return hf.DPTForDepthEstimation(config), (picture(),)


def mask2former():
    config = hf.Mask2FormerConfig(backbone_config=small_swin(), feature_size=32, mask_feature_size=32, hidden_dim=32,
                                  encoder_feedforward_dim=32, encoder_layers=1, decoder_layers=2, num_attention_heads=4,
                                  dim_feedforward=32, num_queries=5)
    return hf.Mask2FormerForUniversalSegmentation(config), (picture(64),)


def maskformer():
    decoder = hf.DetrConfig(**{key: value for key, value in DETECTOR.items() if "backbone" not in key})
    config = hf.MaskFormerConfig(fpn_feature_size=32, mask_feature_size=32, backbone_config=small_swin(), decoder_config=decoder)
    return hf.MaskFormerForInstanceSegmentation(config), (picture(64),)


def conditional_detr():
    config = hf.ConditionalDetrConfig(**DETECTOR, backbone_config=small_resnet("stage4"))
    return without_guards(hf.ConditionalDetrForObjectDetection(config)), (picture(64),)


def deformable_detr():
    config = hf.DeformableDetrConfig(**DETECTOR, backbone_config=small_resnet("stage2", "stage3", "stage4"),
                                     num_feature_levels=3, disable_custom_kernels=True)
    return without_guards(hf.DeformableDetrForObjectDetection(config)), (picture(64),)


def table_transformer():
    config = hf.TableTransformerConfig(**DETECTOR, backbone_config=small_resnet("stage4"))
    return without_guards(hf.TableTransformerForObjectDetection(config)), (picture(64),)


def rt_detr():
    backbone = hf.RTDetrResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
                                     out_features=["stage2", "stage3", "stage4"])
    config = hf.RTDetrConfig(backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[16, 16, 32],
                             encoder_ffn_dim=32, encoder_attention_heads=4, d_model=32, num_queries=6, decoder_ffn_dim=32,
                             decoder_in_channels=[32, 32, 32], decoder_layers=1, decoder_attention_heads=4, num_denoising=0,
                             disable_custom_kernels=True, num_feature_levels=3, encoder_layers=1)
    return without_guards(hf.RTDetrForObjectDetection(config)), (picture(64),)


def upernet():
    backbone = hf.ConvNextConfig(hidden_sizes=[8, 16, 16, 32], **FOUR_STAGES,
                                 out_features=["stage1", "stage2", "stage3", "stage4"])
    config = hf.UperNetConfig(backbone_config=backbone, hidden_size=16, pool_scales=[1, 2], use_auxiliary_head=False)
    return hf.UperNetForSemanticSegmentation(config), (picture(64),)


def depth_anything():
    backbone = hf.Dinov2Config(**PICTURE, out_indices=[1, 2], apply_layernorm=True, reshape_hidden_states=False)
    config = hf.DepthAnythingConfig(backbone_config=backbone, reassemble_hidden_size=32, patch_size=8,
                                    neck_hidden_sizes=[8, 16], fusion_hidden_size=8, head_in_index=-1, head_hidden_size=8,
                                    reassemble_factors=[2, 1])
    return hf.DepthAnythingForDepthEstimation(config), (picture(),)


def clipseg():
    config = hf.CLIPSegConfig(text_config=TEXT | {"projection_dim": 32}, vision_config=PICTURE, projection_dim=32,
                              extract_layers=[0, 1], reduce_dim=16, decoder_num_attention_heads=4,
                              decoder_intermediate_size=32)
    model = hf.CLIPSegForImageSegmentation(config)
    model.clip.requires_grad_(False)  # it runs under torch.no_grad(), which no export says
    return model, (ids(), picture())


def groupvit():
    stages = {"depths": [1, 1, 0], "num_group_tokens": [8, 4, 0], "num_output_groups": [8, 4, 0]}
    config = hf.GroupViTConfig(text_config=TEXT, vision_config=PICTURE | stages, projection_dim=16,
                               projection_intermediate_dim=32)
    return hf.GroupViTModel(config), (ids(), picture())


def speecht5():
    convolutions = {key: value for key, value in CONVOLUTIONS.items() if key not in ("classifier_proj_size", "layerdrop")}
    config = hf.SpeechT5Config(hidden_size=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
                               decoder_layers=2, decoder_ffn_dim=64, decoder_attention_heads=4, vocab_size=WORDS,
                               encoder_layerdrop=0.0, decoder_layerdrop=0.0, max_speech_positions=64, max_text_positions=64,
                               **convolutions)
    return hf.SpeechT5ForSpeechToText(config), (torch.randn(SAMPLES, 800), ids())


def speech_to_text():
    config = hf.Speech2TextConfig(**SEQ2SEQ_WITHOUT_PLACES, input_feat_per_channel=8, conv_channels=16, encoder_layerdrop=0.0,
                                  max_source_positions=64, max_target_positions=32, decoder_layerdrop=0.0)
    return hf.Speech2TextForConditionalGeneration(config), (torch.randn(SAMPLES, 32, 8), ids())


def moonshine():
    config = hf.MoonshineConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=64, encoder_num_hidden_layers=1,
                                decoder_num_hidden_layers=1, encoder_num_attention_heads=4, decoder_num_attention_heads=4)
    return hf.MoonshineForConditionalGeneration(config), (torch.randn(SAMPLES, 4000), ids())


def pix2struct():
    pictures = {"hidden_size": 32, "patch_embed_hidden_size": 48, "d_ff": 64, "d_kv": 8, "num_hidden_layers": 2,
                "num_attention_heads": 4, "seq_len": 16}
    config = hf.Pix2StructConfig(text_config={**T5_SIZES, "hidden_size": 32, "decoder_start_token_id": 0},
                                 vision_config=pictures)
    patches = torch.randn(SAMPLES, 16, 50)
    patches[:, :, 0], patches[:, :, 1] = torch.arange(1, 17) // 4, torch.arange(1, 17) % 4
    return hf.Pix2StructForConditionalGeneration(config), (patches, ids())


def trocr():
    text = hf.TrOCRConfig(vocab_size=WORDS, d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64,
                          max_position_embeddings=32, cross_attention_hidden_size=32)
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(hf.ViTConfig(**PICTURE), text)
    return hf.VisionEncoderDecoderModel(config), (picture(), ids())


def instructblip():
    text = {"model_type": "opt", "vocab_size": WORDS, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 64, "word_embed_proj_dim": 32}
    config = hf.InstructBlipConfig(vision_config=PICTURE, qformer_config=NARROW | {"encoder_hidden_size": 32},
                                   text_config=text, num_query_tokens=4, image_token_index=PLACE)
    config.image_token_id = PLACE
    return hf.InstructBlipForConditionalGeneration(config), (picture(), ids(), ids_with(PLACE, 4))


def layoutlmv3():
    config = hf.LayoutLMv3Config(**TEXT, input_size=32, patch_size=8, coordinate_size=4, shape_size=8,
                                 max_2d_position_embeddings=64)
    return hf.LayoutLMv3ForTokenClassification(config), (ids(), boxes(), picture())


def boxes():
    return torch.randint(3, 50, (SAMPLES, LENGTH, 4)).sort(-1).values


def lxmert():
    sizes = {key: value for key, value in NARROW.items() if key != "num_hidden_layers"}
    config = hf.LxmertConfig(**sizes, l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=16)
    return hf.LxmertModel(config), (ids(), torch.randn(SAMPLES, 6, 16), torch.rand(SAMPLES, 6, 4))


def visual_bert():
    return hf.VisualBertModel(hf.VisualBertConfig(**TEXT, visual_embedding_dim=16)), (ids(), torch.randn(SAMPLES, 6, 16))


def two_towers(kind: str, config: str):
    def make():
        sizes = getattr(hf, config)(text_config=TEXT | {"projection_dim": 16}, vision_config=PICTURE | {"projection_dim": 16},
                                    projection_dim=16)
        return getattr(hf, kind)(sizes), (ids(), picture())
    return named(make, "input_ids", "pixel_values")


def decision():
    config = hf.DecisionTransformerConfig(state_dim=5, act_dim=3, hidden_size=32, n_layer=2, n_head=4, max_ep_len=50,
                                          n_positions=64)
    steps = torch.arange(6).expand(SAMPLES, 6).contiguous()
    return hf.DecisionTransformerModel(config), (torch.randn(SAMPLES, 6, 5), torch.randn(SAMPLES, 6, 3),
                                                 torch.randn(SAMPLES, 6, 1), steps, torch.ones_like(steps))


def forecast(kind: str, **more):
    def make():
        config = getattr(hf, kind + "Config")(num_input_channels=2, context_length=32, patch_length=8, patch_stride=8, d_model=16,
                                              prediction_length=8, loss="mse", **more)
        return getattr(hf, kind + "ForPrediction")(config), (torch.randn(SAMPLES, 32, 2),)
    return named(make, "past_values")


def time_series():
    config = hf.TimeSeriesTransformerConfig(
        prediction_length=4, context_length=8, lags_sequence=[1, 2], num_time_features=1, d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_layerdrop=0.0, decoder_layerdrop=0.0)
    return hf.TimeSeriesTransformerModel(config), (torch.randn(SAMPLES, 10), torch.randn(SAMPLES, 10, 1), torch.ones(SAMPLES, 10),
                                                   torch.randn(SAMPLES, 4), torch.randn(SAMPLES, 4, 1))


def swin2sr():
    config = hf.Swin2SRConfig(image_size=16, patch_size=1, embed_dim=12, depths=[1, 1], num_heads=[2, 2], window_size=4,
                              upscale=2, upsampler="pixelshuffledirect")
    return hf.Swin2SRForImageSuperResolution(config), (picture(16),)


def sam_vision():
    config = hf.SamVisionConfig(hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                                patch_size=8, mlp_dim=64, window_size=2, global_attn_indexes=[1])
    return hf.SamVisionModel(config), (picture(),)


def vit_mae():
    config = hf.ViTMAEConfig(**PICTURE, decoder_hidden_size=16, decoder_intermediate_size=32, decoder_num_hidden_layers=1,
                             decoder_num_attention_heads=2, mask_ratio=0.5)
    return hf.ViTMAEForPreTraining(config), (picture(), torch.rand(SAMPLES, 16))


def of_ids(kind: str, config, **fixed):
    return named(one(kind, config, ids), "input_ids", **fixed)


TRANSFORMERS = {
    # Decoders.
    "mpt": causal("Mpt", vocab_size=WORDS, d_model=32, n_heads=4, n_layers=2, max_seq_len=32, expansion_ratio=2),
    "gpt_bigcode": causal("GPTBigCode", **GPT_SIZES),
    "openai_gpt": of_ids("OpenAIGPTLMHeadModel", lambda: hf.OpenAIGPTConfig(**GPT_SIZES)),
    "ctrl": of_ids("CTRLLMHeadModel", lambda: hf.CTRLConfig(**GPT_SIZES, dff=64), use_cache=False),
    "biogpt": causal("BioGpt", **TEXT, layerdrop=0.0), "persimmon": causal("Persimmon", **NARROW),
    "xglm": causal("XGLM", vocab_size=WORDS, d_model=32, ffn_dim=64, num_layers=2, attention_heads=4,
                   max_position_embeddings=32, layerdrop=0.0),
    "glm": causal("Glm", **GROUPED, **EIGHT, pad_token_id=0), "glm4": causal("Glm4", **GROUPED, **EIGHT, pad_token_id=0),
    "cohere2": causal("Cohere2", **GROUPED, sliding_window=4),
    "gemma3": of_ids("Gemma3ForCausalLM", lambda: hf.Gemma3TextConfig(**GROUPED, **EIGHT, sliding_window=4), use_cache=False),
    "exaone4": causal("Exaone4", **GROUPED, sliding_window=4), "olmo3": causal("Olmo3", **GROUPED, sliding_window=4),
    "arcee": causal("Arcee", **GROUPED), "apertus": causal("Apertus", **GROUPED),
    "seed_oss": causal("SeedOss", **GROUPED, **EIGHT), "ernie4_5": causal("Ernie4_5", **GROUPED),
    "diffllama": causal("DiffLlama", **GROUPED), "bitnet": causal("BitNet", **GROUPED),
    "hunyuan": causal("HunYuanDenseV1", **GROUPED, **EIGHT), "lfm2": causal("Lfm2", **GROUPED, full_attn_idxs=[1]),
    "granitemoe": causal("GraniteMoe", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "recurrent_gemma": causal("RecurrentGemma", **NARROW | {"num_hidden_layers": 3}, lru_width=32, attention_window_size=8,
                              num_key_value_heads=1),
    "falcon_mamba": causal("FalconMamba", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=4),
    "jamba": causal("Jamba", **GROUPED, use_mamba_kernels=False, mamba_d_state=4, mamba_dt_rank=4, num_experts=2,
                    attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1),
    # Encoders.
    "ibert": encoder("IBert", **NARROW), "nystromformer": encoder("Nystromformer", **NARROW, num_landmarks=4,
                                                                  segment_means_seq_len=12, conv_kernel_size=3),
    "rembert": encoder("RemBert", **NARROW, input_embedding_size=16, output_embedding_size=16),
    "flaubert": of_ids("FlaubertForSequenceClassification",
                       lambda: hf.FlaubertConfig(vocab_size=WORDS, emb_dim=32, n_layers=2, n_heads=4, pad_index=0)),
    "xlm": of_ids("XLMForSequenceClassification",
                  lambda: hf.XLMConfig(vocab_size=WORDS, emb_dim=32, n_layers=2, n_heads=4, pad_index=0)),
    "yoso": encoder("Yoso", **NARROW, use_expectation=True),
    "canine": encoder("Canine", **NARROW, num_hash_buckets=64, downsampling_rate=4, local_transformer_stride=8),
    "luke": encoder("Luke", "ForMaskedLM", **NARROW, entity_vocab_size=20, entity_emb_size=16,
                    use_entity_aware_attention=False),
    "roc_bert": encoder("RoCBert", **NARROW, pronunciation_vocab_size=20, shape_vocab_size=20, pronunciation_embed_dim=8,
                        shape_embed_dim=8),
    "xmod": encoder("Xmod", **NARROW, default_language="en_XX"),
    "roberta_prelayernorm": encoder("RobertaPreLayerNorm", **NARROW), "data2vec_text": encoder("Data2VecText", **NARROW),
    "splinter": encoder("Splinter", "ForQuestionAnswering", **NARROW), "bert_mlm": encoder("Bert", "ForMaskedLM", **NARROW),
    "reformer": encoder("Reformer", vocab_size=WORDS, hidden_size=32, num_attention_heads=2, attention_head_size=16,
                        feed_forward_size=32, attn_layers=["local", "local"], local_attn_chunk_length=4,
                        axial_pos_shape=[3, 4], axial_pos_embds_dim=[16, 16]),
    "lilt": named(one("LiltForTokenClassification", lambda: hf.LiltConfig(**TEXT | {"hidden_size": 48},
                                                                         max_2d_position_embeddings=64), ids, boxes),
                  "input_ids", "bbox"),
    # Two texts.
    "m2m_100": two_texts("M2M100", **SEQ2SEQ, encoder_layerdrop=0.0, decoder_layerdrop=0.0),
    "plbart": two_texts("PLBart", **SEQ2SEQ), "mvp": two_texts("Mvp", **SEQ2SEQ),
    "bigbird_pegasus": two_texts("BigBirdPegasus", **SEQ2SEQ, attention_type="original_full"),
    "pegasus_x": two_texts("PegasusX", **SEQ2SEQ, block_size=4, num_global_tokens=4),
    "led": two_texts("LED", **SEQ2SEQ_WITHOUT_PLACES, max_encoder_position_embeddings=32, max_decoder_position_embeddings=32,
                     attention_window=4),
    "longt5": two_texts("LongT5", **T5_SIZES, local_radius=3), "mt5": two_texts("MT5", **T5_SIZES),
    "blenderbot_small": two_texts("BlenderbotSmall", **SEQ2SEQ),
    "prophetnet": prophetnet,
    # Pictures.
    "dpt": named(dpt, "pixel_values"), "mask2former": named(mask2former, "pixel_values"),
    "maskformer": named(maskformer, "pixel_values"), "upernet": named(upernet, "pixel_values"),
    "conditional_detr": named(conditional_detr, "pixel_values"), "deformable_detr": named(deformable_detr, "pixel_values"),
    "rt_detr": named(rt_detr, "pixel_values"), "table_transformer": named(table_transformer, "pixel_values"),
    "depth_anything": named(depth_anything, "pixel_values"), "vit_mae": named(vit_mae, "pixel_values", "noise"),
    "swin2sr": named(swin2sr, "pixel_values"), "sam_vision": named(sam_vision, "pixel_values"),
    "glpn": images("GLPN", "ForDepthEstimation", size=64, hidden_sizes=[8, 16, 24, 32], **FOUR_STAGES, decoder_hidden_size=16,
                   num_attention_heads=[1, 2, 3, 4]),
    "bit": images("Bit", size=64, embedding_size=8, hidden_sizes=[8, 16, 16, 32], **FOUR_STAGES, num_groups=4),
    "dinov2_registers": images("Dinov2WithRegisters", **PICTURE), "ijepa": images("IJepa", **PICTURE),
    "data2vec_vision": images("Data2VecVision", **PICTURE),
    "efficientnet": images("EfficientNet", size=64, image_size=64, width_coefficient=0.25, depth_coefficient=0.3,
                           hidden_dim=320, drop_connect_rate=0.0),
    "hiera": images("Hiera", size=64, image_size=[64, 64], embed_dim=16, depths=[1, 1, 1], num_heads=[1, 2, 4],
                    masked_unit_size=[4, 4], num_query_pool=2, masked_unit_attention=[True, True, False]),
    "swiftformer": images("SwiftFormer", size=64, image_size=64, **FOUR_STAGES, embed_dims=[8, 16, 24, 32], mlp_ratio=2),
    "mobilevitv2": images("MobileViTV2", size=64, image_size=64, width_multiplier=0.25),
    "pvt_v2": images("PvtV2", size=64, image_size=64, hidden_sizes=[8, 16, 24, 32], **FOUR_STAGES,
                     num_attention_heads=[1, 2, 3, 4]),
    "vivit": named(one("VivitForVideoClassification", lambda: hf.VivitConfig(**PICTURE, num_frames=4, tubelet_size=[2, 8, 8]),
                       video), "pixel_values"),
    # Several kinds of inputs.
    "clip": two_towers("CLIPModel", "CLIPConfig"), "siglip_two": two_towers("SiglipModel", "SiglipConfig"),
    "altclip": two_towers("AltCLIPModel", "AltCLIPConfig"), "clipseg": named(clipseg, "input_ids", "pixel_values"),
    "groupvit": named(groupvit, "input_ids", "pixel_values"),
    "layoutlmv3": named(layoutlmv3, "input_ids", "bbox", "pixel_values"),
    "lxmert": named(lxmert, "input_ids", "visual_feats", "visual_pos"),
    "visual_bert": named(visual_bert, "input_ids", "visual_embeds"),
    "git": named(one("GitForCausalLM", lambda: hf.GitConfig(vision_config=PICTURE, **TEXT), ids, picture), "input_ids",
                 "pixel_values", use_cache=False),
    "trocr": named(trocr, "pixel_values", "decoder_input_ids", use_cache=False),
    "pix2struct": named(pix2struct, "flattened_patches", "decoder_input_ids"),
    "instructblip": named(instructblip, "pixel_values", "qformer_input_ids", "input_ids"),
    "decision": named(decision, "states", "actions", "returns_to_go", "timesteps", "attention_mask"),
    "patchtst": forecast("PatchTST", num_hidden_layers=2, num_attention_heads=4, ffn_dim=32, use_cls_token=False),
    "patchtsmixer": forecast("PatchTSMixer", num_layers=2),
    "time_series": named(time_series, "past_values", "past_time_features", "past_observed_mask", "future_values",
                         "future_time_features"),
    # Sound.
    "wavlm": sound("WavLM", (800,), **CONV), "unispeech": sound("UniSpeech", (800,), **CONV),
    "unispeech_sat": sound("UniSpeechSat", (800,), **CONV), "sew": sound("SEW", (800,), **CONV, squeeze_factor=2),
    "data2vec_audio": sound("Data2VecAudio", (800,), **CONV), "wav2vec2_ctc": sound("Wav2Vec2", (800,), "ForCTC", **CONV),
    "wav2vec2_conformer": sound("Wav2Vec2Conformer", (800,), **CONV, position_embeddings_type="relative"),
    "speecht5": named(speecht5, "input_values", "decoder_input_ids", use_cache=False),
    "speech_to_text": named(speech_to_text, "input_features", "decoder_input_ids", use_cache=False),
    "moonshine": named(moonshine, "input_values", "decoder_input_ids", use_cache=False),
    "wav2vec2_bert": named(one("Wav2Vec2BertForSequenceClassification", lambda: hf.Wav2Vec2BertConfig(
        **NARROW, feature_projection_input_dim=16, classifier_proj_size=16, layerdrop=0.0, apply_spec_augment=False),
        lambda: torch.randn(SAMPLES, 20, 16)), "input_features"),
}
