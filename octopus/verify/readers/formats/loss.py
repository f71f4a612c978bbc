"""Which tokens are trained, and from which rows: target maps, verl's response masks, and labels.

- `loss_tokens` and `loss_predictors` `[N]` say it outright.
- `response_mask` `[B, R]` marks the last R tokens of each row (verl); a token is predicted from the row before it.
- `labels` `[B, T]` marks tokens with anything but -100 (Hugging Face, shifted by the loss); the same predictor.
- `rolled_labels` `[B, T]` are labels that were rolled by one already: row i predicts token i + 1, the last row token 0.
"""

from __future__ import annotations

import numpy as np

from octopus.verify.facets import LossTerms
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part

IGNORED = -100
LOG_PROBABILITIES = ("old_log_probs", "rollout_log_probs")
EXTRAS = (
    "loss_weights", "supervised", "sampled", "denominator", "declared_denominator", "log_ratio", "log_ratio_noise",
)  # fmt: skip


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row. Raises `Unreadable` if there are two descriptions."""
    forms = [name for name in ("loss_tokens", "response_mask", "labels", "rolled_labels") if name in bag.arrays]
    if not forms:
        return []
    if len(forms) > 1:
        raise Unreadable(f"{' and '.join(forms)} both say which tokens are trained: give one")
    if forms == ["loss_tokens"]:
        tokens, predictors = bag.integers("loss_tokens"), bag.integers("loss_predictors")
        assert tokens is not None
        if predictors is None or tokens.ndim != 1 or tokens.shape != predictors.shape:
            raise Unreadable("loss_tokens and loss_predictors are lists of one length")
        return [Part(fields={"loss": _terms(bag, tokens, predictors)})]
    if forms == ["response_mask"]:
        return _responses(bag)
    labels = bag.integers(forms[0])
    assert labels is not None
    if not 1 <= labels.ndim <= 2:
        raise Unreadable(f"{forms[0]} has shape {labels.shape}; it is [B, T]")
    parts = []
    for row in np.atleast_2d(labels):
        marked = np.flatnonzero(row != IGNORED)
        if forms == ["rolled_labels"]:
            tokens, predictors = (marked + 1) % len(row), marked
        else:
            tokens, predictors = marked[marked > 0], marked[marked > 0] - 1
        parts.append(Part(fields={"loss": _terms(bag, tokens, predictors)}, length=len(row)))
    return parts


def _responses(bag: Bag) -> list[Part]:
    mask = bag.integers("response_mask")
    whole = bag.array("input_ids", "attention_mask")
    if mask is None or whole is None or mask.ndim != 2 or whole.ndim != 2 or whole.shape[0] != mask.shape[0]:
        raise Unreadable("response_mask [B, R] needs input_ids or attention_mask [B, T] beside it")
    length = whole.shape[1]
    if mask.shape[1] > length:
        raise Unreadable(f"response_mask covers {mask.shape[1]} tokens of {length}")
    ours, theirs = (bag.array(name) for name in LOG_PROBABILITIES)
    ratios = None
    if ours is not None and theirs is not None:
        if ours.shape != mask.shape or theirs.shape != mask.shape:
            raise Unreadable(f"{' and '.join(LOG_PROBABILITIES)} have the shape of response_mask")
        ratios = ours.astype(np.float64) - theirs.astype(np.float64)
    parts = []
    for row, flags in enumerate(mask):
        marked = np.flatnonzero(flags)
        tokens = marked + length - mask.shape[1]
        kept = tokens > 0
        ratio = None if ratios is None else ratios[row, marked[kept]]
        terms = _terms(bag, tokens[kept], tokens[kept] - 1, ratio)
        parts.append(Part(fields={"loss": terms}, length=length))
    return parts


def _terms(bag: Bag, tokens: np.ndarray, predictors: np.ndarray, ratio: np.ndarray | None = None) -> LossTerms:
    supervised, sampled = bag.array("supervised"), bag.array("sampled")
    log_ratio = bag.array("log_ratio") if ratio is None else ratio
    precise = bag.first(*LOG_PROBABILITIES, "log_ratio")
    return LossTerms(
        token_rows_N=tokens,
        predictor_rows_N=predictors,
        weights_N=bag.array("loss_weights"),
        supervised_T=None if supervised is None else supervised.reshape(-1) != 0,
        sampled_T=None if sampled is None else sampled.reshape(-1) != 0,
        denominator=_number(bag, "denominator"),
        declared_denominator=_number(bag, "declared_denominator"),
        log_ratio_N=log_ratio,
        log_ratio_noise_N=bag.array("log_ratio_noise"),
        dtype="float32" if precise is None else bag.arrays[precise].dtype,
    )


def _number(bag: Bag, name: str) -> float | None:
    value = bag.array(name)
    if value is not None and (value.size != 1 or not np.isfinite(value).all()):
        raise Unreadable(f"{name} should be one number")
    return None if value is None else float(value.reshape(-1)[0])


NAMES = ("loss_tokens", "loss_predictors", "response_mask", "input_ids", "labels", "rolled_labels")
FORMAT = Format(name="loss", names=(*NAMES, *EXTRAS, *LOG_PROBABILITIES), read=read)
