"""What cannot be run exactly is refused at load, by name, with the reason and what is supported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import (
    rope_parameters,
    tiny_gemma3,
    tiny_granite,
    tiny_llama,
    tiny_nemotron,
    tiny_qwen3,
    tiny_qwen3_next,
    tiny_qwen35,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BloomConfig,
    Gemma3Config,
    GPT2Config,
    Llama4TextConfig,
    LlamaModel,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    SmolLM3Config,
)

from octopus.core.errors import BackendUnavailable, UnsupportedModel
from octopus.models.backbone import Backbone
from octopus.models.families import family_of, kv_shape, storage_ranks
from octopus.models.loading import load_model


def test_a_family_that_is_not_listed() -> None:
    with pytest.raises(
        UnsupportedModel,
        match=r"'qwen2' is not supported; supported families: Llama \(llama\); Qwen3 \(qwen3\).*Gemma-3 \(gemma3_text",
    ):
        family_of(Qwen2Config())


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (BloomConfig(), "ALiBi"),
        (GPT2Config(), "learned and added to the tokens"),
        (Llama4TextConfig(), "cut into chunks by position"),
        (SmolLM3Config(), "NoPE"),
        (Gemma3Config(), "load its text model as Gemma3ForCausalLM"),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_families_that_cannot_be_run_say_why(config: PreTrainedConfig, why: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"'{config.model_type}' is not supported .*{why}.*; supported families"):
        family_of(config)


ROPES = {
    "dynamic": ({"factor": 2.0}, "depend on the longest position of a call.*load it with that"),
    "longrope": (
        {"short_factor": [1.0] * 16, "long_factor": [2.0] * 16, "original_max_position_embeddings": 32},
        "switches frequencies with the length of a call.*extended by yarn",
    ),
    "proportional": ({"partial_rotary_factor": 0.5}, "not implemented"),
}


@pytest.mark.parametrize("kind", ROPES)
@pytest.mark.parametrize("build", [tiny_llama, tiny_qwen3])
def test_rope_types(build: Callable, kind: str) -> None:
    settings, why = ROPES[kind]
    model = build(rope_parameters=rope_parameters(rope_type=kind, **settings))
    message = f"rope type '{kind}' is not supported: .*{why}; supported: default, linear, llama3, yarn"
    with pytest.raises(UnsupportedModel, match=message):
        Backbone(model)


def test_a_rope_type_of_one_kind_of_layer() -> None:
    """Catches: only the first of several sets of rotary parameters looked at."""
    sets = {
        "full_attention": rope_parameters(rope_type="dynamic", factor=2.0),
        "sliding_attention": rope_parameters(),
    }
    with pytest.raises(UnsupportedModel, match="rope type 'dynamic'"):
        Backbone(tiny_gemma3(rope_parameters=sets))


def test_rope_parameters_without_a_type() -> None:
    config = tiny_llama().config
    config.rope_parameters = {"full_attention": rope_parameters()}
    with pytest.raises(UnsupportedModel, match="must name a rope_type"):
        family_of(config)


@pytest.mark.parametrize("kind", ["default", "linear"])
def test_partly_rotated_heads_where_the_library_ignores_or_breaks_them(kind: str) -> None:
    config = tiny_qwen3().config
    config.rope_parameters = rope_parameters(rope_type=kind, factor=2.0, partial_rotary_factor=0.5)
    with pytest.raises(UnsupportedModel, match=r"partial_rotary_factor=0\.5 .* qwen3 rotates whole heads; expected 1"):
        family_of(config)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"attention_dropout": 0.1}, r"attention_dropout=0\.1 .* never dropped; expected 0"),
        ({"sliding_window": 128}, "sliding_window=128 .* whole view; expected None"),
        ({"is_causal": False}, "is_causal=False"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types contain sliding_attention"),
    ],
)
def test_settings_that_would_be_ignored(setting: dict[str, object], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        Backbone(tiny_llama(**setting))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping=30\.0 .* not capped"),
        ({"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping=50\.0 .* not capped"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention=True .* never sees later"),
        ({"sliding_window": None}, "sliding_window=None with sliding layers; expected 1 position"),
        ({"sliding_window": 0}, "sliding_window=0 with sliding layers; expected 1 position"),
    ],
)
def test_settings_of_gemma(setting: dict[str, object], message: str) -> None:
    config = tiny_gemma3().config
    for name, value in setting.items():
        setattr(config, name, value)
    with pytest.raises(UnsupportedModel, match=message):
        family_of(config)


def test_a_window_that_no_layer_has_is_no_reason() -> None:
    family_of(tiny_gemma3(layer_types=["full_attention"] * 4, sliding_window=None).config)


def test_another_activation_in_recurrent_layers() -> None:
    with pytest.raises(UnsupportedModel, match="hidden_act='gelu'"):
        Backbone(tiny_qwen35(hidden_act="gelu"))


@pytest.mark.parametrize(
    ("build", "setting", "message"),
    [
        (tiny_granite, {"hidden_act": "gelu"}, "hidden_act='gelu' .* ends in SiLU"),
        (tiny_granite, {"position_embedding_type": "learned"}, "position_embedding_type='learned' .* positions out"),
        (tiny_granite, {"output_router_logits": True}, "output_router_logits=True .* losses of routers"),
        (tiny_nemotron, {"mamba_hidden_act": "gelu"}, "mamba_hidden_act='gelu' .* ends in SiLU"),
        (tiny_nemotron, {"hidden_dropout": 0.1}, r"hidden_dropout=0\.1 .* never dropped"),
        (tiny_nemotron, {"residual_in_fp32": True}, "residual_in_fp32=True .* dtype of the weights"),
        (tiny_nemotron, {"sliding_window": 64}, "sliding_window=64 .* whole view"),
        (tiny_qwen3_next, {"hidden_act": "gelu"}, "hidden_act='gelu' .* ends in SiLU"),
        (tiny_qwen3_next, {"rope_parameters": rope_parameters(rope_type="dynamic", factor=2.0)}, "type 'dynamic'"),
    ],
)
def test_settings_of_hybrids(build: Callable, setting: dict[str, object], message: str) -> None:
    """Catches: a setting that our recurrence, attention or loss would silently ignore."""
    config = build().config
    for name, value in setting.items():
        setattr(config, name, value)
    with pytest.raises(UnsupportedModel, match=message):
        family_of(config)


def test_what_a_layer_keeps() -> None:
    """Catches: blocks without a mixer counted in the store, where another layer's keys or states would go."""
    config = tiny_nemotron().config
    assert config.layer_types == ["linear_attention", "mlp", "full_attention", "moe", "linear_attention"]
    assert storage_ranks(config) == (0, 0, 0, 0, 1)
    shape = kv_shape(config)
    assert (shape.attention_layers, shape.recurrent_layers) == (1, 2)
    assert shape.bytes_per_state(torch.bfloat16) == 2 * (3 * (8 * 12 + 2 * 4 * 10) * 2 + 8 * 10 * 12 * 4)


def test_attention_without_positions_has_no_rotation() -> None:
    """Catches: a mount seen through a shift where the model knows none."""
    assert all(rotary.rope is None for rotary in Backbone(tiny_granite()).rotaries)
    assert all(rotary.rope is None for rotary in Backbone(tiny_nemotron()).rotaries)
    assert Backbone(tiny_granite(position_embedding_type="rope")).rotaries[0].rope is not None
    unused = tiny_granite().config
    unused.rope_parameters = rope_parameters(rope_type="dynamic", factor=2.0)
    assert family_of(unused).name == "Granite 4"


def test_a_class_without_a_head() -> None:
    with pytest.raises(
        UnsupportedModel, match="LlamaModel is not supported; Llama is run as LlamaForCausalLM"
    ):
        Backbone(LlamaModel(tiny_llama().config))


def test_a_bound_model_cannot_be_called_past_the_backbone() -> None:
    model = Backbone(tiny_llama()).model
    with pytest.raises(TypeError, match="bound to Octopus: call it through Backbone"):
        model(torch.zeros(1, 3, dtype=torch.long))


def test_load_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    tiny_qwen35(dtype=torch.float32).save_pretrained(tmp_path)
    model, loaded = load_model(str(tmp_path), dtype=torch.float64, device="cpu")
    assert Backbone(model).dtype == torch.float64
    assert loaded.encode("b a") == [1, 0]


def test_load_model_refuses_before_it_reads_weights(tmp_path: Path) -> None:
    Qwen2Config().save_pretrained(tmp_path)  # no weights there
    with pytest.raises(UnsupportedModel, match="'qwen2' is not supported"):
        load_model(str(tmp_path), dtype=torch.float32, device="cpu")


@pytest.mark.parametrize("backend", ["triton", "tritone"])
def test_a_backend_for_stored_keys_that_does_not_run_here(backend: str) -> None:
    """Catches: another backend taken silently instead."""
    with pytest.raises(BackendUnavailable, match=rf"'{backend}' for stored keys is not .* on cpu .* torch, triton"):
        Backbone(tiny_llama(), paged_backend=backend)
