"""Model folders from strangers: nothing of them is run, and nothing outside of them is read.

Catches: code of a model that is imported, or chosen by a field of its configuration; a pickle that is loaded for want
of safetensors; an index of weights that names files elsewhere; a chat template that reaches into Python.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_tokenizers import PLAIN, tokenizer
from tiny_models import tiny_llama
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from octopus.core.errors import ConfigError, OctopusError, UnsupportedModel
from octopus.core.names import is_plain_name
from octopus.models.loading import load_model
from octopus.rollout.chat.dialect import Chat


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in two shards, in a folder of its own."""
    made = tmp_path / "model"
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(made)
    tiny_llama().save_pretrained(made, max_shard_size="40KB")
    return made


def load(folder: Path) -> Any:
    return load_model(str(folder), dtype=torch.float32, device="cpu")


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_shards_of_the_folder_are_loaded(folder: Path) -> None:
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    load(folder)


@pytest.mark.parametrize(
    "name",
    ["../elsewhere.safetensors", "{outside}/elsewhere.safetensors", "a/b.safetensors", "..", "", "a\x1b.safetensors",
     "weights.bin", "a\\b.safetensors", "c:b.safetensors", 7, None],
)  # fmt: skip
def test_an_index_names_files_of_its_folder_only(name: Any, folder: Path) -> None:
    """Mutation: no check of the names, with which the library reads the file that is really there."""
    named = name.format(outside=folder.parent) if isinstance(name, str) else name
    for shard in sorted(folder.glob("model-*.safetensors"))[:1]:
        os.link(shard, folder.parent / "elsewhere.safetensors")
    index = folder / "model.safetensors.index.json"
    weights = json.loads(index.read_text())["weight_map"]
    first = min(weights.values())
    changed(index, weight_map={key: named if file == first else file for key, file in weights.items()})
    with pytest.raises(UnsupportedModel, match=r"expected a \.safetensors file in the same folder"):
        load(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "[]", '{"weight_map": 3}', '{"weight_map": {"a": {}}}', "\xff"])
def test_an_index_that_is_none(text: str, folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UnsupportedModel, match=r"is no index of weights|expected a \.safetensors"):
        load(folder)


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_weights_as_a_pickle_are_never_loaded(folder: Path) -> None:
    for file in folder.glob("model*"):
        file.unlink()
    torch.save(Evil(folder / "owned"), folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModel, match="pickles, which are never loaded"):
        load(folder)
    assert not (folder / "owned").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("attn_implementation", "somebody/kernel"), ("transformers_weights", "model-00001-of-00002.safetensors")],
)
def test_a_configuration_chooses_no_code(field: str, value: str, folder: Path) -> None:
    changed(folder / "config.json", **{field: value})
    with pytest.raises(UnsupportedModel, match=rf"sets {field} to '{value}'"):
        load(folder)


@pytest.mark.parametrize("model_type", ["llama", "stranger"])
def test_code_of_a_model_is_not_run(model_type: str, folder: Path) -> None:
    (folder / "own.py").write_text(
        "from pathlib import Path\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        f"Path({str(folder / 'owned')!r}).touch()\n"
        "class OwnConfig(LlamaConfig): pass\nclass Own(LlamaForCausalLM): pass\n"
    )
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own", "AutoTokenizer": [None, "own.Own"]}
    changed(folder / "config.json", auto_map=own, model_type=model_type)
    changed(folder / "tokenizer_config.json", auto_map=own)
    if model_type == "llama":
        load(folder)  # As the library has it.
    else:
        with pytest.raises((ValueError, OctopusError)):
            load(folder)
    assert not (folder / "owned").exists()


@pytest.mark.parametrize(
    "code",
    ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{% include '/etc/passwd' %}",
     "{{ cycler.__init__.__globals__.os.system('true') }}", "{% for _ in range(10**9) %}{% endfor %}", "{{ 1 // 0 }}"],
)  # fmt: skip
def test_a_chat_template_reaches_nothing(code: str) -> None:
    with pytest.raises(ConfigError, match="the chat template refuses messages"):
        Chat(tokenizer(code + PLAIN))


def test_a_plain_name() -> None:
    good = ["model.safetensors", "a b", "é", "...", ".hidden", "-x"]
    bad = ["", ".", "..", "/", "/a", "a/", "a/b", "../a", "a\\b", "c:a", "a\n", "a\x00", "a\u202eb", None, 1, b"a"]
    assert all(map(is_plain_name, good)) and not any(map(is_plain_name, bad))
