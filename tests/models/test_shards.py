"""A model's folder in several files of weights, and what is said when one of them is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import tiny_granite
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from octopus.core.errors import UnsupportedModel
from octopus.models import loading
from octopus.models.loading import load_model


def in_shards(folder: Path) -> list[Path]:
    """A tiny model in files of 50 kB."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    tiny_granite(dtype=torch.float32).save_pretrained(folder, max_shard_size="50kB")
    return sorted(folder.glob("*.safetensors"))


def test_every_weight_comes_from_its_shard(tmp_path: Path) -> None:
    """Catches: only the first file read, or weights left as they were made."""
    assert len(in_shards(tmp_path)) > 3
    loaded, _ = load_model(str(tmp_path), dtype=torch.float32, device="cpu")
    saved = tiny_granite(dtype=torch.float32).state_dict()
    assert loaded.state_dict().keys() == saved.keys()
    assert all(torch.equal(weight, saved[name]) for name, weight in loaded.state_dict().items())


def test_a_missing_shard_is_named_before_weights_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: the library's own error, in the middle of loading."""
    shards = in_shards(tmp_path)
    shards[1].unlink()
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights read"))
    expected = rf"lacks 1 of the {len(shards)} files .* names: {shards[1].name}; fetch"
    with pytest.raises(UnsupportedModel, match=expected):
        load_model(str(tmp_path), dtype=torch.float32, device="cpu")
