"""Which weights move, which decay, and how fast at each step.

Catches: decay on norms and biases; a tied head that decays although embeddings do not; a frozen weight in the
optimizer; a rate that depends on when the run was resumed; a schedule that ends early or never rises.
"""

import pytest
import torch
from tiny_models import tiny_llama, tiny_qwen35
from transformers import get_scheduler

from octopus.train.config import OptimizerConfig
from octopus.train.optimizer import learning_rate, new_optimizer, set_learning_rate, trainable


def groups(model: torch.nn.Module, **settings) -> tuple[set[str], set[str]]:
    """Names of what decays and of what does not."""
    optimizer = new_optimizer(model, OptimizerConfig(learning_rate=1e-3, weight_decay=0.1, **settings))
    decays, steady = optimizer.param_groups
    assert (decays["weight_decay"], steady["weight_decay"]) == (0.1, 0.0)
    return set(decays["param_names"]), set(steady["param_names"])


@pytest.mark.parametrize("model", [tiny_llama(attention_bias=True), tiny_qwen35()], ids=["llama", "qwen35"])
def test_matrices_decay_and_vectors_do_not(model: torch.nn.Module) -> None:
    decays, steady = groups(model)
    assert decays | steady == set(dict(model.named_parameters())) and not decays & steady
    matrices = ("proj", "embed_tokens", "conv1d", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b")
    assert {name.split(".")[-2] for name in decays if not name.endswith("proj.weight")} <= set(matrices)
    assert all("norm" in name or name.endswith(("bias", "A_log")) for name in steady)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_decay_only_if_said(tied: bool) -> None:
    model = tiny_llama(tie_word_embeddings=tied)
    assert "model.embed_tokens.weight" in groups(model)[0]
    decays, steady = groups(model, decay_embeddings=False)
    assert "model.embed_tokens.weight" in steady
    assert ("lm_head.weight" in decays) == (not tied)


def test_a_frozen_weight_is_not_in_it() -> None:
    model = tiny_llama()
    model.model.embed_tokens.requires_grad_(False)
    assert not any("embed_tokens" in name for name in groups(model)[0] | groups(model)[1])
    assert "model.embed_tokens.weight" not in trainable(model)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_schedules_are_those_of_transformers_after_the_rise(schedule: str) -> None:
    """The library's first step of a rise has the rate 0; ours has the first part already."""
    config = OptimizerConfig(learning_rate=0.5, schedule=schedule, warmup_steps=4)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    library = get_scheduler(name, optimizer, num_warmup_steps=4, num_training_steps=20)
    rates = [learning_rate(config, step=step, steps=20) for step in range(1, 21)]
    assert rates[:4] == [0.125, 0.25, 0.375, 0.5]
    expected = [0.5 * library.lr_lambdas[0](step) for step in range(4, 20)]
    assert rates[4:] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_what_is_left_falls_to_the_final_share(schedule: str) -> None:
    config = OptimizerConfig(learning_rate=2.0, schedule=schedule, final_share=0.25)
    assert learning_rate(config, step=1, steps=8) == 2.0
    assert learning_rate(config, step=9, steps=8) == learning_rate(config, step=99, steps=8) == 0.5
    assert learning_rate(config, step=5, steps=8) == pytest.approx(1.25)


def test_the_rate_is_set_for_all_groups() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=10)
    optimizer = new_optimizer(tiny_llama(), config)
    set_learning_rate(optimizer, config, step=3, steps=20)
    assert [group["lr"] for group in optimizer.param_groups] == [pytest.approx(0.3)] * 2


def test_an_adamw_step_is_the_formula() -> None:
    """Decoupled decay, bias correction, epsilon outside the root (arXiv 1711.05101), on a matrix and on a vector."""
    model = torch.nn.Linear(2, 2).double()
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    config = OptimizerConfig(learning_rate=0.1, beta1=0.8, beta2=0.95, epsilon=1e-3, weight_decay=0.5)
    optimizer = new_optimizer(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.3)
    optimizer.step()
    moved = 0.1 * 0.3 / (0.3 + 1e-3)
    torch.testing.assert_close(model.weight.detach(), start["weight"] * (1 - 0.1 * 0.5) - moved)
    torch.testing.assert_close(model.bias.detach(), start["bias"] - moved)
