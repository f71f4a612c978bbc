"""A policy as a Hugging Face folder.

Catches: weights that are rounded, renamed, untied or left out; a base policy in place of the trained one; an adapter
that is not merged; a tokenizer that is not the policy's; a folder that is overwritten or left half written.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_policy
import torch
from tiny_models import tiny_llama
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from octopus import cli
from octopus.core.errors import ConfigError, OctopusError
from octopus.train import export as exporting
from octopus.train import saves
from octopus.train.adapter import add_adapter, plain_state
from octopus.train.config import AdapterConfig, OptimizerConfig
from octopus.train.export import export
from octopus.train.job_config import GrpoConfig, JobConfig, JobModelConfig, JobRunConfig
from octopus.train.optimizer import new_optimizer
from octopus.train.policy import save_policy
from octopus.train.schema import toml


def loaded(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")


def assert_same(one: PreTrainedModel, state: dict[str, torch.Tensor]) -> None:
    own = dict(one.named_parameters())
    assert own.keys() == state.keys()
    assert all(own[name].dtype == tensor.dtype and torch.equal(own[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_policy_is_loaded_bit_by_bit(tmp_path: Path, dtype: torch.dtype, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_policy.model(seed=5).to(dtype)
    save_policy(tmp_path / "run" / "best", model, tiny_policy.codec())
    assert cli.main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith(f"exported {tmp_path / 'run' / 'best'} to ")
    other = loaded(tmp_path / "out")
    assert_same(other, dict(model.named_parameters()))
    assert other.lm_head.weight is other.get_input_embeddings().weight
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    words = "white snow <|end|> falls"
    assert tokenizer(words).input_ids == tiny_policy.codec().encode_text(words)
    assert other.generation_config.eos_token_id == tokenizer.eos_token_id == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}


def run_with_a_save(folder: Path, base: Path, adapter: AdapterConfig | None) -> dict[str, torch.Tensor]:
    """A run's folder with one save of changed weights; returns the plain weights that it holds."""
    config = JobConfig(
        kind="job",
        run=JobRunConfig(folder=str(folder)),
        model=JobModelConfig(name=str(base), dtype="bfloat16"),
        grpo=GrpoConfig(steps=1),
    )
    config = replace(config, adapter=adapter)
    model: Any = tiny_policy.model().to(torch.bfloat16)
    if adapter is not None:
        add_adapter(model, adapter)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))
    optimizer = new_optimizer(model, OptimizerConfig(learning_rate=1e-3))
    folder.mkdir()
    (folder / "config.toml").write_text(toml(config))
    saves.save(folder, step=3, model=model, optimizer=optimizer, run="r", generators=saves.generators())
    return {name: tensor.clone() for name, tensor in plain_state(model).items()}


@pytest.mark.parametrize("adapter", [None, AdapterConfig(rank=4)], ids=["whole", "lora"])
def test_a_save_is_exported_with_its_own_weights(tmp_path: Path, adapter: AdapterConfig | None) -> None:
    if adapter is not None:
        pytest.importorskip("peft")
    base = tiny_policy.policy_folder(tmp_path / "base")
    state = run_with_a_save(tmp_path / "run", base, adapter)
    for number, source in enumerate((tmp_path / "run", tmp_path / "run" / "step-000003")):
        assert export(source, tmp_path / f"out-{number}") == tmp_path / "run" / "step-000003"
        assert_same(loaded(tmp_path / f"out-{number}"), state)
    assert not all(torch.equal(state[name], p) for name, p in loaded(base).to(torch.bfloat16).named_parameters())
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"config\.toml is missing, which names the policy that it changes"):
        export(tmp_path / "run", tmp_path / "other")


def test_a_damaged_save_is_not_exported(tmp_path: Path) -> None:
    base = tiny_policy.policy_folder(tmp_path / "base")
    run_with_a_save(tmp_path / "run", base, None)
    shard = next((tmp_path / "run" / "step-000003").glob("model*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(OctopusError, match="is not what was written"):
        export(tmp_path / "run" / "step-000003", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_shards_are_put_together_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another family, with a tokenizer of the library, in more than one file."""
    from transformers import PreTrainedTokenizerFast

    model = tiny_llama(dtype=torch.float32, vocab_size=2048)
    codec = tiny_policy.codec()
    model.save_pretrained(tmp_path / "policy")
    PreTrainedTokenizerFast(tokenizer_object=codec.tokenizer, eos_token="<|end|>").save_pretrained(tmp_path / "policy")
    monkeypatch.setattr(exporting, "SHARD_SIZE", "200KB")
    (tmp_path / "out").mkdir()  # an empty folder may be written into
    export(tmp_path / "policy", tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 1
    assert_same(loaded(tmp_path / "out"), dict(model.named_parameters()))


def test_nothing_is_overwritten_or_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("mine")
    for out in (tmp_path / "used", tmp_path / "used" / "mine"):
        with pytest.raises(OctopusError, match="exists and is not an empty folder; nothing is overwritten"):
            export(policy, out)
    with pytest.raises(ConfigError, match="is no folder; expected that of a run, a save or a policy"):
        export(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ConfigError, match="holds no policy and no whole save"):
        export(tmp_path / "used", tmp_path / "out")

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "flush", full)
    with pytest.raises(OSError, match="No space left"):
        export(policy, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"policy", "used"}
