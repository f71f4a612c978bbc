"""Every loss against its formula, one sequence at a time; and the public bugs of its kind as tiny inputs.

Catches: clip bounds exchanged; the maximum taken for the minimum; a wrong sign; a denominator of the pack, of the rank
or of the wrong kind; a clipped token that still carries a gradient; an exponential that overflows; a KL term with the
gradient of another divergence; a cap on the wrong side; imitation that looks at who sampled.
"""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from plain_losses import Sequence, gradients, library, plain, random_sequences, terms_of

from octopus.core.errors import PlanError
from octopus.train.config import LossConfig
from octopus.train.counts import Counts, term_weights
from octopus.train.losses import TokenTerms, k3, policy_loss

NAMES = ("dapo", "grpo", "dr_grpo", "gspo", "cispo", "likelihood")
POLICY = NAMES[:-1]
EXTRAS = {
    "bare": {},
    "kl": {"kl_weight": 0.7},
    "entropy": {"entropy_weight": 0.3},
    "truncated": {"anchor": "trainer"},
    "all": {"anchor": "trainer", "kl_weight": 0.7, "entropy_weight": 0.3},
}
F64 = {"dtype": torch.float64}


def columns(terms: TokenTerms) -> list[tuple[str, torch.Tensor]]:
    return [(field.name, getattr(terms, field.name)) for field in fields(terms)]


def configured(name: str, **settings) -> LossConfig:
    return LossConfig(name=name, **{"clip_low": 0.2, "clip_high": 0.3, "sequence_tokens": 11} | settings)


def tight(name: str, **settings) -> LossConfig:
    """Bounds that some ratios of whole sequences are out of as well."""
    return configured(name, **{"clip_low": 0.02, "clip_high": 0.03, "importance_cap": 1.02} | settings)


def one_token(
    new: float, old: float, advantage: float, *, reference: float = 0.0, config: LossConfig | None = None
):
    """Loss, gradient of the log-probability and sums of a step of one token."""
    sequence = Sequence(
        new=torch.tensor([new], requires_grad=True, **F64),
        anchor=torch.tensor([old], **F64),
        sampled=torch.tensor([old], **F64),
        reference=torch.tensor([reference], **F64),
        entropy=torch.zeros(1, requires_grad=True, **F64),
        advantage=advantage,
    )
    loss, sums = library([sequence], config or configured("dapo"))
    return loss.item(), gradients([sequence], loss)[0].item(), sums


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_formula_of_its_paper(name: str, extra: str) -> None:
    config = tight(name, **EXTRAS[extra])
    sequences = random_sequences((1, 7, 2, 40, 13))
    expected, (came, sums) = plain(sequences, config), library(sequences, config)
    assert came.item() == pytest.approx(expected.item(), rel=1e-12)
    for one, other in zip(gradients(sequences, came), gradients(sequences, expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)
    assert (sums.clipped > 0) == (name != "likelihood")
    assert (sums.capped > 0) == (config.anchor == "trainer" and name != "likelihood")


def test_losses_differ_from_each_other() -> None:
    """A name that is mapped to another's formula would pass the other tests if that had the same fault."""
    sequences = random_sequences((3, 17))
    values = {name: library(sequences, configured(name))[0].item() for name in NAMES}
    assert len(set(values.values())) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_sum_over_packs_and_ranks_is_the_step(name: str) -> None:
    """A mean over what a pack, a micro-batch or a rank happens to hold: parts of 1, 40 and 22 tokens."""
    config = tight(name, **EXTRAS["all"])
    sequences = random_sequences((1, 40, 2, 20))
    whole, sums = library(sequences, config)
    expected = gradients(sequences, whole)
    parts = [sequences[:1], sequences[1:2], sequences[2:]]
    counts = sum((Counts.of(np.repeat([len(s.new) for s in p], [len(s.new) for s in p])) for p in parts), Counts())
    results = [library(part, config, counts) for part in parts]
    assert sum(loss.item() for loss, _ in results) == pytest.approx(whole.item(), abs=1e-14)
    found = [g for part, (loss, _) in zip(parts, results, strict=True) for g in gradients(part, loss)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)
    added = results[0][1] + results[1][1] + results[2][1]
    assert (added.clipped, added.capped) == (sums.clipped, sums.capped)
    assert (added.kl, added.entropy, added.importance) == pytest.approx((sums.kl, sums.entropy, sums.importance))


def test_a_sequence_may_be_cut_for_all_losses_but_gspo() -> None:
    """Each token knows the length of the whole sequence; a part of one counts as a part."""
    lengths_N = np.array([5, 5, 5, 5, 5, 2, 2])
    first, second = Counts.of(lengths_N[:3]), Counts.of(lengths_N[3:])
    assert first.sequences == pytest.approx(0.6)
    assert (first + second).terms == 7 and (first + second).sequences == pytest.approx(2, abs=1e-12)
    (sequence,) = random_sequences((5,))
    columns = ("new", "anchor", "sampled", "reference", "entropy")
    half = replace(sequence, **{column: getattr(sequence, column)[:3] for column in columns})
    cut = replace(terms_of([half], configured("gspo")), sequence_terms_N=torch.full((3,), 5))
    with pytest.raises(PlanError, match="needs each sequence whole in one pack"):
        policy_loss(cut, configured("gspo"))
    policy_loss(cut, configured("grpo"))


@pytest.mark.parametrize(
    ("name", "shares"), [("dapo", (10, 1000)), ("cispo", (10, 1000)), ("grpo", (1, 1)), ("gspo", (1, 1)),
                         ("dr_grpo", (10, 1000)), ("likelihood", (10, 1000))],
)  # fmt: skip
def test_what_sequences_of_10_and_1000_tokens_weigh(name: str, shares: tuple[int, int]) -> None:
    """A token-level option that does nothing, since terms were reduced to sequences before."""
    lengths_N = np.repeat([10, 1000], [10, 1000])
    weights_N = term_weights(configured(name), Counts.of(lengths_N), lengths_N)
    short, long = weights_N[:10].sum(), weights_N[10:].sum()
    assert long / short == pytest.approx(shares[1] / shares[0])
    assert short + long == pytest.approx(1010 / (2 * 11) if name == "dr_grpo" else 1)


def test_dr_grpo_gives_a_token_the_same_weight_whatever_else_its_sequence_has() -> None:
    """The length of an answer must not buy a smaller penalty a token, nor may the number of tokens in the step."""
    lengths_N = np.repeat([2, 6], [2, 6])
    assert set(term_weights(configured("dr_grpo"), Counts.of(lengths_N), lengths_N)) == {1 / (2 * 11)}


def test_a_loss_at_ratio_1_is_not_0_where_lengths_differ() -> None:
    """Lengths that were all refilled to one made centred advantages cancel for ever: lengths 2 and 5, ratio 1."""
    short, long = random_sequences((2, 5), spread=0.0)
    pair = [replace(short, advantage=1.0), replace(long, advantage=-1.0)]
    assert library(pair, configured("dapo"))[0].item() == pytest.approx((5 - 2) / 7)
    assert library(pair, configured("grpo"))[0].item() == pytest.approx(0, abs=1e-15)
    assert all(g.abs().sum() > 0 for g in gradients(pair, library(pair, configured("grpo"))[0])[::2])


def test_silent_terms_dilute_like_packed_ones() -> None:
    """A group without advantage was not packed; its terms and sequences count all the same."""
    loud, silent = random_sequences((3, 9))
    silent = replace(silent, advantage=0.0)
    for name in POLICY:
        whole, _ = library([loud, silent], configured(name))
        counts = Counts(terms=3 + 9, sequences=2)
        assert library([loud], configured(name), counts)[0].item() == pytest.approx(whole.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [(1.29, 1.0, 0), (1.31, 1.0, 1), (0.79, 1.0, 0), (0.81, -1.0, 0), (0.79, -1.0, 1), (1.31, -1.0, 0)],
)
@pytest.mark.parametrize("name", ["dapo", "grpo", "dr_grpo", "gspo"])
def test_a_term_is_clipped_only_where_it_went_too_far(name: str, ratio: float, advantage: float, clipped: int) -> None:
    _, gradient, sums = one_token(math.log(ratio), 0.0, advantage, config=configured(name))
    assert sums.clipped == clipped
    assert (gradient == 0.0) == bool(clipped)


@pytest.mark.parametrize(("ratio", "kept"), [(1.5, 1.3), (0.5, 0.8), (1.1, 1.1)])
def test_cispo_keeps_a_gradient_everywhere_and_bounds_its_weight(ratio: float, kept: float) -> None:
    _, gradient, sums = one_token(math.log(ratio), 0.0, 2.0, config=configured("cispo"))
    assert gradient == pytest.approx(-2 * kept)
    assert sums.clipped == (kept != ratio)
    _, unbounded, _ = one_token(math.log(0.01), 0.0, 2.0, config=configured("cispo", clip_low=1.0))
    assert unbounded == pytest.approx(-0.02)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [89.0, 800.0, -800.0])
def test_a_huge_ratio_stays_finite(name: str, advantage: float, log_ratio: float) -> None:
    """An exponential overflowed and 0 * inf poisoned the weights for twelve hours."""
    config = configured(name, anchor="trainer", kl_weight=0.1)
    loss, gradient, sums = one_token(0.0, -log_ratio, advantage, reference=-log_ratio, config=config)
    assert all(map(math.isfinite, (loss, gradient, sums.kl, sums.importance)))


@pytest.mark.parametrize("name", NAMES)
def test_a_huge_ratio_stays_finite_in_single_precision(name: str) -> None:
    """Row 42 of public bugs. Catches: a limit that only float64 has room for; exp(89) overflows float32."""
    config = configured(name, anchor="trainer", kl_weight=0.1)
    for log_ratio in (89.0, -89.0):
        sequences = [replace(one, advantage=worth) for one in random_sequences((3,)) for worth in (1.0, 0.0, -1.0)]
        terms = terms_of(sequences, config)
        single = {name: value.float() for name, value in columns(terms) if value.is_floating_point()}
        new_N = torch.zeros(len(terms.advantages_N), requires_grad=True)
        far_N = torch.full_like(new_N, -log_ratio, requires_grad=False)
        apart = {"anchor_log_probabilities_N": far_N, "reference_log_probabilities_N": far_N}
        apart |= {"log_probabilities_N": new_N, "sampled_log_probabilities_N": 2 * far_N}
        loss, sums = policy_loss(replace(terms, **single | apart), config)
        (gradient_N,) = torch.autograd.grad(loss, new_N)
        assert loss.dtype == gradient_N.dtype == torch.float32
        assert loss.isfinite() and gradient_N.isfinite().all()
        assert math.isfinite(sums.kl) and math.isfinite(sums.importance)


def test_importance_is_cut_at_its_cap_and_is_a_constant() -> None:
    config = configured("dapo", anchor="trainer", importance_cap=2.0)
    (sequence,) = random_sequences((3,), spread=0.0)
    # The trainer found the tokens 3, 1.5 and 0.5 times as likely as the rollout did.
    apart = replace(sequence, sampled=sequence.anchor - torch.tensor([3.0, 1.5, 0.5], **F64).log(), advantage=1.0)
    loss, sums = library([apart], config)
    assert gradients([apart], loss)[0].tolist() == pytest.approx([-2 / 3, -1.5 / 3, -0.5 / 3])
    assert (sums.capped, sums.importance) == (1, pytest.approx(4.0))
    anchored, _ = library([apart], configured("dapo", anchor="rollout"))
    assert anchored.item() == pytest.approx(-(1.3 + 1.3 + 0.5) / 3)  # ratios to the rollout: clipped, not capped


def policies() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of a policy over two tokens, and log-probabilities of a reference and of one that samples."""
    logits = torch.tensor([0.9, -0.4], requires_grad=True, **F64)
    return logits, torch.tensor([0.3, 0.7], **F64).log(), torch.tensor([0.55, 0.45], **F64).log()


@pytest.mark.parametrize("on_policy", [True, False])
def test_the_expected_kl_term_has_value_and_gradient_of_the_exact_divergence(on_policy: bool) -> None:
    """k1 and k3 differentiated directly give nothing, or the opposite divergence: both tokens enumerated."""
    logits, reference, other = policies()
    sampled = logits.log_softmax(0).detach() if on_policy else other
    expected = torch.zeros((), **F64)
    for token in range(2):
        sequence = Sequence(
            new=logits.log_softmax(0)[token][None], anchor=sampled[token][None], sampled=sampled[token][None],
            reference=reference[token][None], entropy=torch.zeros(1, **F64), advantage=0.0,
        )  # fmt: skip
        expected = expected + sampled[token].exp() * library([sequence], configured("dapo", kl_weight=1.0))[0]
    log_p = logits.log_softmax(0)
    exact = (log_p.exp() * (log_p - reference)).sum()
    assert expected.item() == pytest.approx(exact.item(), rel=1e-12)
    (came,), (right,) = torch.autograd.grad(expected, logits, retain_graph=True), torch.autograd.grad(exact, logits)
    torch.testing.assert_close(came, right, rtol=1e-12, atol=1e-15)
    log_p = logits.log_softmax(0)
    (naive,) = torch.autograd.grad((log_p.exp().detach() * k3(log_p, reference)).sum(), logits)
    assert (naive - right).abs().max() > 0.05  # the test could tell


def test_the_kl_term_pulls_towards_the_reference() -> None:
    """With the wrong sign the policy runs away and collapses."""
    far, gradient, _ = one_token(-0.1, -0.1, 0.0, reference=-3.0, config=configured("dapo", kl_weight=1.0))
    assert far > 0 and gradient > 0  # the token is likelier than under the reference: descent lowers it
    _, gradient, _ = one_token(-3.0, -3.0, 0.0, reference=-0.1, config=configured("dapo", kl_weight=1.0))
    assert gradient < 0


def test_entropy_is_raised() -> None:
    (sequence,) = random_sequences((4,))
    loss, sums = library([replace(sequence, advantage=0.0)], configured("dapo", entropy_weight=0.5))
    assert gradients([sequence], loss)[1].tolist() == pytest.approx([-0.5 / 4] * 4)
    assert sums.entropy == pytest.approx(sequence.entropy.sum().item())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_read_may_be_anything(name: str) -> None:
    """NaN in columns that a loss has no use for: the reference without a KL term, and for imitation who sampled."""
    sequences = random_sequences((3, 4))
    unread = ["reference"] + (["sampled", "anchor"] if name == "likelihood" else [])
    poisoned = [replace(s, **{column: torch.full_like(s.anchor, math.nan) for column in unread}) for s in sequences]
    expected, came = library(sequences, configured(name))[0], library(poisoned, configured(name))[0]
    assert came.item() == expected.item()
    for one, other in zip(gradients(poisoned, came), gradients(sequences, expected), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_no_tokens_cost_nothing(name: str) -> None:
    loss, sums = library(random_sequences((0,)), configured(name, **EXTRAS["all"]))
    assert (loss.item(), sums.clipped, sums.kl) == (0.0, 0, 0.0)
