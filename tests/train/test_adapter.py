"""Low-rank adapters: packed, paged, switched off, merged.

Catches: rollouts that never see the adapter; base weights that are trained along; a reference with the adapter on, or
an adapter that stays off; a merge that forgets the scale, a layer or the names of the plain model; a half-precision
adapter that cannot learn.
"""

import sys
from pathlib import Path

import pytest
import tiny_policy
import torch
from forked_group import rated
from random_rollouts import RandomRollout, packed_log_probabilities, tiny_engine
from test_exact_steps import assert_equal, singly, whole
from tiny_models import tiny_llama, tiny_qwen35
from toy_tasks import ToyTasks
from transformers import PreTrainedModel

from octopus.core.errors import ConfigError
from octopus.models.backbone import Backbone
from octopus.train.adapter import adapter_off, add_adapter, has_adapter, plain_state
from octopus.train.config import AdapterConfig, LossConfig, OptimizerConfig, StepConfig
from octopus.train.job import Job
from octopus.train.job_config import (
    EvaluationConfig,
    GrpoConfig,
    ImitationConfig,
    JobConfig,
    JobRunConfig,
    RolloutConfig,
    TaskConfig,
)
from octopus.train.optimizer import new_optimizer, trainable
from octopus.train.packing import pack_rated
from octopus.train.policy import load_policy, save_policy
from octopus.train.reference import AdapterOff, new_reference, score
from octopus.train.scoring import scored
from octopus.train.step import train_step

FAMILIES = {"llama": tiny_llama, "qwen35": tiny_qwen35}
STEP = StepConfig(logit_rows=16)


def adapted(family: str, *, moved: bool = True, config: AdapterConfig | None = None) -> PreTrainedModel:
    """A model with an adapter; `moved` makes it add something."""
    model = FAMILIES[family]()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        add_adapter(model, config or AdapterConfig(rank=4))
        if moved:
            move(model)
    return model


@torch.no_grad()
def move(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            parameter.add_(0.1 * torch.randn_like(parameter))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_adapter_adds_nothing_and_only_it_is_trained(family: str) -> None:
    packed = pack_rated([rated(0)])
    plain, model = FAMILIES[family](), adapted(family, moved=False)
    backbone = Backbone(model)
    expected = score(Backbone(plain), packed, step=STEP)
    assert (score(backbone, packed, step=STEP) == expected).all()
    assert has_adapter(model) and not has_adapter(plain)
    assert all(".lora_" in name for name in trainable(model))
    optimizer = new_optimizer(model, OptimizerConfig(learning_rate=1e-2))
    for _ in range(2):
        assert train_step(backbone, [packed], optimizer, loss=LossConfig(), step=STEP).grad_norm > 0
    for name, tensor in plain.named_parameters():
        own = name if name in dict(model.named_parameters()) else name.replace(".weight", ".base_layer.weight")
        assert torch.equal(model.get_parameter(own), tensor), name
    assert abs(score(backbone, packed, step=STEP) - expected).max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_rollouts_see_the_adapter_as_it_is_now(family: str) -> None:
    """Rollouts came from the first policy for weeks, since the adapter was never delivered."""
    model = adapted(family)
    engine = tiny_engine(model)
    for _ in range(2):
        rollout = RandomRollout(engine, seed=3)
        rollout.run(25)
        recorded = rollout.recorded()
        places = list(recorded)
        segments = [rollout.segments[index] for index in sorted(rollout.segments)]
        now = packed_log_probabilities(engine.backbone, segments, places)
        assert now == pytest.approx(list(recorded.values()), abs=1e-9)
        move(model)
        engine.advance_weights()
        later = packed_log_probabilities(engine.backbone, segments, places)
        assert max(abs(one - other) for one, other in zip(now, later, strict=True)) > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_switched_off_it_is_the_plain_model_and_on_again_after(family: str) -> None:
    packed = pack_rated([rated(0), rated(1)])
    model = adapted(family)
    backbone = Backbone(model)
    with_it = score(backbone, packed, step=STEP)
    names = set(trainable(model))
    reference = new_reference(backbone)
    assert isinstance(reference, AdapterOff)
    off = reference.score(packed, step=STEP)
    assert (off == score(Backbone(FAMILIES[family]()), packed, step=STEP)).all()
    assert abs(off - with_it).max() > 1e-3
    with pytest.raises(ZeroDivisionError), adapter_off(model):
        raise ZeroDivisionError
    assert (score(backbone, packed, step=STEP) == with_it).all()
    assert set(trainable(model)) == names


@pytest.mark.parametrize("family", FAMILIES)
def test_merged_it_is_a_plain_model(family: str) -> None:
    packed = pack_rated([rated(0)])
    model, plain = adapted(family), FAMILIES[family]()
    expected = score(Backbone(model), packed, step=STEP)
    state = plain_state(model)
    assert state.keys() == dict(plain.named_parameters()).keys() == plain_state(plain).keys()
    for name, tensor in state.items():
        plain.get_parameter(name).data.copy_(tensor)
    torch.testing.assert_close(score(Backbone(plain), packed, step=STEP), expected, rtol=0, atol=1e-10)
    assert (score(Backbone(model), packed, step=STEP) == expected).all()  # the model itself was left alone


def test_a_policy_is_saved_merged(tmp_path: Path) -> None:
    model = tiny_policy.model()
    add_adapter(model, AdapterConfig(rank=2))
    move(model)
    save_policy(tmp_path / "policy", model, tiny_policy.codec())
    loaded, _ = load_policy(tmp_path / "policy", dtype=torch.float32, device="cpu")
    state = plain_state(model)
    assert state.keys() == dict(loaded.named_parameters()).keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.named_parameters())


def test_a_job_trains_its_adapter_resumes_and_leaves_a_plain_policy(tmp_path: Path) -> None:
    """Catches an adapter that a stage, a save or the best policy does not know of."""
    folder = tmp_path / "run"

    def run(steps: int, *, resume: bool = False) -> PreTrainedModel:
        config = JobConfig(
            kind="job",
            run=JobRunConfig(folder=str(folder), save_every_steps=1, resume=resume),
            task=TaskConfig(parts=(1,)),
            rollout=RolloutConfig(turn_tokens=4, turns=2, pages=256, state_slots=64),
            imitation=ImitationConfig(steps=2, episodes=2),
            grpo=GrpoConfig(steps=steps, questions=1, rollouts=2),
            evaluation=EvaluationConfig(every_steps=9, validation_questions=1, test_questions=1),
            adapter=AdapterConfig(rank=2),
        )
        torch.manual_seed(0)
        model = tiny_policy.model()
        job = Job(config, model=model, codec=tiny_policy.codec(), tasks=ToyTasks(config), report=lambda _: None)
        job.run()
        return model

    run(0)
    trained = plain_state(run(1, resume=True))
    best, _ = load_policy(folder / "best", dtype=torch.float32, device="cpu")
    begun = dict(tiny_policy.model().named_parameters())
    moved = {name for name, tensor in best.named_parameters() if not torch.equal(tensor, begun[name])}
    assert len(moved) > 10 and all("proj" in name for name in moved)
    assert all(torch.equal(tensor, trained[name]) for name, tensor in best.named_parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_three_steps_do_not_depend_on_packs(family: str) -> None:
    loss = LossConfig(name="gspo", kl_weight=0.2)

    def run(packs):
        model = adapted(family)
        backbone = Backbone(model)
        packs = scored(backbone, packs, loss=loss, step=STEP, reference=new_reference(backbone))
        optimizer = new_optimizer(model, OptimizerConfig(learning_rate=1e-3))
        results = [train_step(backbone, packs, optimizer, loss=loss, step=STEP) for _ in range(3)]
        return results, {name: parameter.detach() for name, parameter in trainable(model).items()}

    episodes = [rated(number) for number in range(3)]
    assert_equal(run(singly(episodes)), run(whole(episodes[::-1])))


def test_the_scale_is_alpha_over_rank() -> None:
    base = tiny_llama().get_parameter("model.layers.0.mlp.up_proj.weight")

    def added(alpha: int) -> torch.Tensor:
        model = adapted("llama", config=AdapterConfig(rank=4, alpha=alpha))
        return plain_state(model)["model.layers.0.mlp.up_proj.weight"] - base

    torch.testing.assert_close(added(12), 3 * added(4), rtol=1e-9, atol=1e-12)


def test_chosen_layers_only_and_never_the_head() -> None:
    chosen = trainable(adapted("llama", config=AdapterConfig(rank=2, targets=("q_proj", "v_proj"))))
    assert {name.split(".")[4] for name in chosen} == {"q_proj", "v_proj"}
    for family in FAMILIES:
        assert not any("lm_head" in name or "embed" in name for name in trainable(adapted(family)))
    assert any("in_proj_qkv" in name for name in trainable(adapted("qwen35")))


def test_the_adapter_of_a_half_precision_model_is_in_single_precision() -> None:
    model = tiny_llama(dtype=torch.bfloat16)
    add_adapter(model, AdapterConfig(rank=2))
    move(model)
    assert {parameter.dtype for parameter in trainable(model).values()} == {torch.float32}
    assert {tensor.dtype for tensor in plain_state(model).values()} == {torch.bfloat16}
    backbone = Backbone(model)
    assert backbone.dtype == torch.bfloat16
    optimizer = new_optimizer(model, OptimizerConfig(learning_rate=1e-3))
    assert train_step(backbone, [pack_rated([rated(0)])], optimizer, loss=LossConfig(), step=STEP).updated


def test_an_unknown_layer_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"adapter\.targets: expected .* linear layers \(down_proj, .*came query$"):
        add_adapter(tiny_llama(), AdapterConfig(targets=("q_proj", "query")))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"pip install 'octopus-kv\[lora\]'"):
        add_adapter(tiny_llama(), AdapterConfig())
