"""What cannot be run exactly is refused at load, by name, with the reason and what is supported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import rope_parameters, tiny_llama, tiny_qwen35
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaModel, PreTrainedTokenizerFast, Qwen3Config

from octopus.core.errors import UnsupportedModel
from octopus.models.backbone import Backbone
from octopus.models.families import family_of
from octopus.models.loading import load_model


def test_a_family_that_is_not_listed() -> None:
    with pytest.raises(
        UnsupportedModel, match=r"'qwen3' is not supported.*Llama \(llama\).*Qwen3.5 \(qwen3_5, "
    ):
        family_of(Qwen3Config())


ROPES = {
    "dynamic": {"factor": 2.0},
    "linear": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 32},
    "llama3": {
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {
        "short_factor": [1.0] * 16,
        "long_factor": [2.0] * 16,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("kind", ROPES)
def test_rope_types(kind: str) -> None:
    model = tiny_llama(rope_parameters=rope_parameters(rope_type=kind, **ROPES[kind]))
    with pytest.raises(
        UnsupportedModel, match=f"rope type '{kind}' is not supported: .*; supported: default"
    ):
        Backbone(model)


def test_dynamic_says_why() -> None:
    with pytest.raises(UnsupportedModel, match="depend on the longest position of a call"):
        Backbone(tiny_llama(rope_parameters=rope_parameters(rope_type="dynamic", factor=2.0)))


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


def test_another_activation_in_recurrent_layers() -> None:
    with pytest.raises(UnsupportedModel, match="hidden_act='gelu'"):
        Backbone(tiny_qwen35(hidden_act="gelu"))


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
    Qwen3Config().save_pretrained(tmp_path)  # no weights there
    with pytest.raises(UnsupportedModel, match="'qwen3' is not supported"):
        load_model(str(tmp_path), dtype=torch.float32, device="cpu")
