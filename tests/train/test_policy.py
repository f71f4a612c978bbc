"""A policy on disk is a model and its codec, whole.

Catches: tied weights that come apart or are saved under a name that the library does not look for; a codec that is not
the model's; an earlier policy that is mixed with a new one; a folder without a codec that is taken for a policy.
"""

from pathlib import Path

import pytest
import tiny_policy
import torch
from transformers import AutoModelForCausalLM

from octopus.core.errors import ConfigError
from octopus.rollout.codec import Codec
from octopus.train.policy import load_policy, save_policy


def test_what_was_saved_is_loaded_by_us_and_by_the_library(tmp_path: Path) -> None:
    model = tiny_policy.model(seed=3)
    save_policy(tmp_path / "policy", tiny_policy.model(seed=4), tiny_policy.codec())
    save_policy(tmp_path / "policy", model, tiny_policy.codec())
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    loaded, codec = load_policy(tmp_path / "policy", dtype=torch.float32, device="cpu")
    assert codec.tokenizer.to_str() == tiny_policy.codec().tokenizer.to_str()
    for other in (loaded, AutoModelForCausalLM.from_pretrained(tmp_path / "policy")):
        assert other.lm_head.weight is other.get_input_embeddings().weight
        assert other.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in other.state_dict().items())


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no config\.json; expected the folder of a policy"):
        load_policy(tmp_path, dtype=torch.float32, device="cpu")
    folder = tiny_policy.policy_folder(tmp_path / "policy")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json"):
        load_policy(folder, dtype=torch.float32, device="cpu")


def test_a_codec_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = tiny_policy.policy_folder(tmp_path / "policy")
    words = (f"word{number} " for number in range(4_000))
    Codec.train(words, vocabulary=3_000).save(folder / "tokenizer.json")
    with pytest.raises(ConfigError, match=r"the codec has \d+ tokens, the model only 2048$"):
        load_policy(folder, dtype=torch.float32, device="cpu")
