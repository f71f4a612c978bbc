"""Loss, gradients and three optimiser steps do not depend on how a batch is cut, ordered, or filled where it is masked.

Catches: a denominator of the pack; a sum over packs divided again; a sequence counted once a pack; a column that is not
reordered with the others; advantages of another thread; a masked value that is multiplied by 0 instead of left out; an
anchor that moves with the updates; a reference that is trained.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from forked_group import poisoned, rated
from random_rollouts import packed_log_probabilities, tiny_engine
from tiny_models import tiny_llama, tiny_qwen35

from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, OptimizerConfig, StepConfig
from octopus.train.optimizer import new_optimizer
from octopus.train.packing import Pack, RatedEpisode, pack_rated
from octopus.train.reference import new_reference
from octopus.train.scoring import scored
from octopus.train.step import StepResult, train_step

FAMILIES = {"llama": tiny_llama, "qwen35": tiny_qwen35}
STEP = StepConfig(logit_rows=16)
EVERYTHING = {"anchor": "trainer", "importance_cap": 1.1, "kl_weight": 0.2, "entropy_weight": 0.1}
LOSSES = {
    name: LossConfig(name=name, **EVERYTHING) for name in ("dapo", "grpo", "dr_grpo", "gspo", "cispo", "likelihood")
} | {"dapo, rollout as anchor": LossConfig()}
Episodes = Sequence[RatedEpisode]
Cut = Callable[[Episodes], list[Pack]]


def whole(episodes: Episodes) -> list[Pack]:
    return [pack_rated(episodes)]


def singly(episodes: Episodes) -> list[Pack]:
    return [pack_rated([one]) for one in episodes]


def three_steps(
    family: str, loss: LossConfig, packs: list[Pack], *, rate: float = 3e-3
) -> tuple[list[StepResult], dict[str, torch.Tensor]]:
    """Results, and for each weight its last gradient and its value in the end."""
    model = FAMILIES[family]()
    backbone = Backbone(model)
    packs = scored(backbone, packs, loss=loss, step=STEP, reference=new_reference(backbone))
    optimizer = new_optimizer(model, OptimizerConfig(learning_rate=rate, weight_decay=0.1))
    results = [train_step(backbone, packs, optimizer, loss=loss, step=STEP) for _ in range(3)]
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors |= {f"gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}
    return results, tensors


def assert_equal(one, other) -> None:
    (results, tensors), (expected, values) = one, other
    for result, right in zip(results, expected, strict=True):
        for name in ("loss", "grad_norm", "kl", "entropy", "importance", "clipped_ratio", "capped_ratio"):
            assert getattr(result, name) == pytest.approx(getattr(right, name), rel=1e-10, abs=1e-10), name
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, values[name], rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_three_steps_do_not_depend_on_packs_order_or_masked_values(family: str, loss: str) -> None:
    episodes = [rated(number) for number in range(3)]
    expected = three_steps(family, LOSSES[loss], whole(episodes))
    results, _ = expected
    assert all(result.updated for result in results)
    assert results[0].loss != results[1].loss != results[2].loss
    other = [poisoned(rated(number, order)) for number, order in ((2, (0, 1, 2)), (0, (2, 0, 1)), (1, (1, 2, 0)))]
    assert_equal(three_steps(family, LOSSES[loss], singly(other)), expected)


def test_the_order_of_branches_changes_the_row_and_nothing_else() -> None:
    """The test above could tell: rows, threads and terms do stand elsewhere."""
    one, other = pack_rated([rated(0)]), pack_rated([rated(0, (2, 0, 1))])
    assert one.targets.labels_N.tolist() != other.targets.labels_N.tolist()
    columns = (one.targets.labels_N, one.advantages_N, one.sampled_log_probabilities_N, one.sequence_terms_N)
    others = (other.targets.labels_N, other.advantages_N, other.sampled_log_probabilities_N, other.sequence_terms_N)
    assert sorted(zip(*columns, strict=True)) == sorted(zip(*others, strict=True))


def test_a_sequence_is_what_one_thread_sampled_and_kept() -> None:
    """Given tokens in between do not count: 5 sampled, 3 given, 3 sampled are 8, not 11. Nor do tokens given up."""
    packed = pack_rated([rated(0), rated(1)])
    lengths = {}
    for sequence, terms in zip(packed.sequences_N.tolist(), packed.sequence_terms_N.tolist(), strict=True):
        assert lengths.setdefault(sequence, terms) == terms
    assert sorted(lengths.values()) == [2, 3, 3, 3, 4, 4, 8, 8]
    assert np.array_equal(np.bincount(packed.sequences_N)[packed.sequences_N], packed.sequence_terms_N)
    counts = rated(0).counts + rated(1).counts
    assert (packed.counts.terms, packed.counts.sequences) == (counts.terms, pytest.approx(counts.sequences)) == (35, 8)


def test_all_columns_leave_out_the_same_tokens() -> None:
    """A truncation that zeroed one mask only."""
    packed = pack_rated([poisoned(rated(0))])
    live = sum(token.live for token in rated(0).episode.sampled)
    columns = [getattr(packed, name) for name in packed.__slots__ if name.endswith("_N")]
    assert {len(column) for column in columns} == {live} == {len(packed.targets.labels_N)}
    assert np.isfinite(packed.sampled_log_probabilities_N).all() and np.isfinite(packed.advantages_N).all()


def test_an_episode_is_silent_whatever_its_masked_tokens_are_worth() -> None:
    """It would be packed, and thin out the logged means, for a token that is not trained on."""
    one = rated(0)
    silent = replace(one, advantages=tuple(0.0 for _ in one.advantages))
    assert silent.silent and poisoned(silent).silent and not one.silent


def test_ratios_stay_anchored_to_the_policy_before_the_first_update() -> None:
    """A denominator that is computed again with the current weights makes every ratio 1 for ever: two updates."""
    loss = LossConfig(clip_low=0.01, clip_high=0.01, anchor="trainer", importance_cap=100.0)
    results, _ = three_steps("llama", loss, whole([rated(0), rated(1)]))
    assert results[0].clipped_ratio == 0
    assert results[2].clipped_ratio > 0.1


def test_the_reference_is_the_policy_at_the_start_and_stays() -> None:
    """The divergence is 0 before the first update and grows; the copy is not trained along."""
    results, _ = three_steps("qwen35", LossConfig(kl_weight=1e-6), whole([rated(0), rated(1)]))
    assert results[0].kl == pytest.approx(0, abs=1e-12)
    assert results[2].kl > results[1].kl > 1e-6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [0.5, 0.7])
def test_ratios_of_fresh_rollouts_are_1_at_any_temperature(family: str, temperature: float) -> None:
    """One side divided by the temperature and the other not; or the log-probability of a neighbour."""
    engine = tiny_engine(FAMILIES[family]())
    root = engine.thread([1, 2, 3])
    threads = root.fork(3)
    for thread in threads:
        thread.append([5 + thread.id])
    engine.generate(threads, max_tokens=5, temperature=temperature, stop_tokens=())
    sampled = [(cursor, value) for thread in threads for cursor, value in thread.sampled]
    places = [(cursor.segment, cursor.length - 1) for cursor, _ in sampled]
    again = packed_log_probabilities(engine.backbone, list(engine.graph.segments), places)
    assert len(set(again)) > 10
    assert again == pytest.approx([value for _, value in sampled], abs=1e-10)


def test_entropy_is_that_of_the_whole_distribution() -> None:
    backbone = Backbone(tiny_llama())
    packed = pack_rated([rated(0)])
    optimizer = new_optimizer(backbone.model, OptimizerConfig(learning_rate=1e-9))
    with torch.no_grad():
        logits_NV = backbone.logits(backbone.packed(packed.plan)[packed.targets.predictor_rows_N])
        expected = torch.distributions.Categorical(logits=logits_NV).entropy().mean().item()
    result = train_step(backbone, [packed], optimizer, loss=LossConfig(), step=STEP)
    assert result.entropy == pytest.approx(expected, rel=1e-12)


def test_an_entropy_term_raises_it_and_a_kl_term_holds_the_policy() -> None:
    packs = whole([rated(0), rated(1)])

    def last(**settings: float) -> StepResult:
        return three_steps("llama", LossConfig(anchor="trainer", **settings), packs, rate=3e-4)[0][2]

    free = last(kl_weight=1e-9)
    assert last(entropy_weight=1.0).entropy > free.entropy + 0.01
    assert 0 < last(kl_weight=10.0).kl < 0.7 * free.kl
