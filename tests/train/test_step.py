"""One optimiser step on packed rows.

Catches: a denominator that is not global; logits of the whole row kept for the backward pass; a label taken
from the wrong row; weights poisoned by a gradient that is not finite; gradients of two steps added up; a step that goes
up the hill; imitation that needs to know who sampled.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scripted import group
from tiny_models import VOCABULARY, tiny_llama, tiny_qwen35

from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, StepConfig
from octopus.train.counts import Counts
from octopus.train.packing import Pack, evenly, pack, pack_rated
from octopus.train.passes import pack_log_probabilities, target_log_probabilities
from octopus.train.step import StepResult, train_step

FAMILIES = {"llama": tiny_llama, "qwen35": tiny_qwen35}


def scored(backbone: Backbone, packed: Pack) -> Pack:
    """The pack with the log-probabilities that the model gives now."""
    with torch.no_grad():
        values = pack_log_probabilities(backbone, packed, step=StepConfig())
    return replace(packed, sampled_log_probabilities_N=values.numpy())


def run_step(backbone: Backbone, packs: list[Pack], *, learning_rate: float = 0.0, **step) -> StepResult:
    optimizer = torch.optim.SGD(backbone.model.parameters(), lr=learning_rate)
    return train_step(backbone, packs, optimizer, loss=LossConfig(), step=StepConfig(max_grad_norm=1e9, **step))


def gradients(backbone: Backbone) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in backbone.model.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_lower_the_loss_and_favour_the_right_answer(family: str) -> None:
    backbone = Backbone(FAMILIES[family](dtype=torch.float32))
    packed = scored(backbone, pack([group()]))
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=3e-5, weight_decay=0.0)
    results = [
        train_step(backbone, [packed], optimizer, loss=LossConfig(), step=StepConfig()) for _ in range(4)
    ]
    losses = [result.loss for result in results]
    assert losses[0] == pytest.approx(0, abs=1e-6)  # all ratios are 1, and advantages are centred
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < -0.03
    gaps = [result.favoured_log_probability - result.disfavoured_log_probability for result in results]
    assert gaps[-1] > gaps[0] + 0.1
    assert results[0].packed_tokens == packed.plan.length
    assert results[0].loss_terms == packed.loss_terms
    assert results[0].clipped_ratio == 0.0


def test_terms_that_were_left_out_count_in_the_denominator() -> None:
    """Episodes without advantage need not be packed."""
    backbone = Backbone(tiny_llama())
    episodes = [evenly(episode, worth) for episode, worth in zip(group(), (1.0, 0.0, -0.5), strict=True)]
    whole = run_step(backbone, [scored(backbone, pack_rated(episodes))])
    expected = gradients(backbone)
    part = scored(backbone, pack_rated([one for one in episodes if not one.silent]))
    optimizer = torch.optim.SGD(backbone.model.parameters(), lr=0.0)
    settings = StepConfig(max_grad_norm=1e9)
    silent = sum((one.counts for one in episodes if one.silent), Counts())
    result = train_step(
        backbone, [part], optimizer, loss=LossConfig(), step=settings, silent=silent
    )
    assert result.loss == pytest.approx(whole.loss, abs=1e-12)
    for name, gradient in gradients(backbone).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_imitation_is_the_mean_negative_log_likelihood_and_lowers_it() -> None:
    """Nobody has recorded log-probabilities of a script, and none are needed."""
    backbone = Backbone(tiny_qwen35(dtype=torch.float32))
    packed = replace(pack([group()]), advantages_N=np.ones(pack([group()]).loss_terms))
    assert np.isnan(packed.sampled_log_probabilities_N).all()
    with torch.no_grad():
        expected = -pack_log_probabilities(backbone, packed, step=StepConfig()).mean().item()
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=3e-4, weight_decay=0.0)
    imitate = LossConfig(name="likelihood")
    results = [train_step(backbone, [packed], optimizer, loss=imitate, step=StepConfig()) for _ in range(3)]
    assert results[0].loss == pytest.approx(expected, rel=1e-6)
    assert results[0].favoured_log_probability == pytest.approx(-expected, rel=1e-6)
    assert results[0].updated and results[2].loss < results[1].loss < results[0].loss


def test_the_largest_log_ratio_is_reported() -> None:
    backbone = Backbone(tiny_llama())
    packed = scored(backbone, pack([group()]))
    agreed = run_step(backbone, [packed])
    assert agreed.log_ratio_max == pytest.approx(0, abs=1e-12) and agreed.mismatch_kl == pytest.approx(0, abs=1e-12)
    packed.sampled_log_probabilities_N[3] += 0.25
    assert run_step(backbone, [packed]).log_ratio_max == pytest.approx(0.25)


def test_the_mismatch_is_the_mean_k3_estimate_over_packs() -> None:
    """Catches: another direction of the divergence, a sum for a mean, one pack's terms only."""
    backbone = Backbone(tiny_llama())
    packs = [scored(backbone, pack([[episode]])) for episode in group()]
    packs[0].sampled_log_probabilities_N[0] += 0.25
    packs[-1].sampled_log_probabilities_N[0] -= 0.5
    k3 = math.exp(-0.25) - 1 + 0.25 + math.exp(0.5) - 1 - 0.5
    assert run_step(backbone, packs).mismatch_kl == pytest.approx(k3 / sum(one.loss_terms for one in packs))


def test_cutting_episodes_into_packs_changes_no_gradient() -> None:
    backbone = Backbone(tiny_llama())
    whole = scored(backbone, pack([group()]))
    one = run_step(backbone, [whole])
    expected = gradients(backbone)
    parts = []
    for episode in group():
        # Advantages are the whole group's, so that the parts are the same step cut in three.
        part = scored(backbone, pack([[episode]]))
        terms = sum(token.live for token in episode.sampled)
        advantage = episode.reward - 1 / 3
        parts.append(replace(part, advantages_N=np.full(terms, advantage)))
    three = run_step(backbone, parts)
    assert three.loss == pytest.approx(one.loss, abs=1e-12)
    assert three.grad_norm == pytest.approx(one.grad_norm, rel=1e-9)
    for name, gradient in gradients(backbone).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_equal_targets_from_one_logits_matrix() -> None:
    backbone = Backbone(tiny_qwen35())
    packed = pack([group()])
    hidden_TC = backbone.packed(packed.plan)
    every_TV = backbone.logits(hidden_TC).log_softmax(dim=1)
    rows_N, labels_N = packed.targets.predictor_rows_N, packed.targets.labels_N
    for logit_rows in (1, 7, 10_000):
        chunked_N = target_log_probabilities(backbone, hidden_TC, packed.targets, logit_rows=logit_rows)
        torch.testing.assert_close(chunked_N, every_TV[rows_N, labels_N], rtol=1e-12, atol=1e-12)


def test_no_logits_are_kept_for_the_backward_pass() -> None:
    backbone = Backbone(tiny_llama())
    packed = pack([group()])
    hidden_TC = backbone.packed(packed.plan).detach().requires_grad_()
    kept: list[tuple[int, ...]] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        target_log_probabilities(backbone, hidden_TC, packed.targets, logit_rows=8).sum().backward()
    made = [shape for shape in kept if shape[-1:] == (VOCABULARY,)]
    assert all(shape[0] <= 8 for shape in made)
    assert hidden_TC.grad.abs().sum() > 0


def test_the_gradient_starts_anew_each_step() -> None:
    backbone = Backbone(tiny_llama())
    packed = scored(backbone, pack([group()]))
    assert run_step(backbone, [packed]).grad_norm == pytest.approx(run_step(backbone, [packed]).grad_norm)


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone() -> None:
    backbone = Backbone(tiny_llama())
    packed = scored(backbone, pack([group()]))
    before = {name: parameter.clone() for name, parameter in backbone.model.named_parameters()}
    broken = replace(packed, advantages_N=np.where(np.arange(packed.loss_terms) == 0, np.nan, packed.advantages_N))
    assert not run_step(backbone, [broken], learning_rate=1.0).updated
    assert all(torch.equal(parameter, before[name]) for name, parameter in backbone.model.named_parameters())
    assert run_step(backbone, [packed], learning_rate=1.0).updated
    assert not all(torch.equal(parameter, before[name]) for name, parameter in backbone.model.named_parameters())


def test_a_pack_without_loss_terms_is_a_step_without_effect() -> None:
    backbone = Backbone(tiny_llama())
    silent = [replace(episode, sampled=()) for episode in group()]
    result = run_step(backbone, [pack([silent])])
    assert (result.loss, result.grad_norm, result.loss_terms) == (0.0, 0.0, 0)
