"""Fields of one row that must fit each other for any audit to be able to look at them.

What an audit can judge by itself (positions, masks or padding of another length) is passed on; here is refused what
would only lead it astray: indices outside of the row, lists of another length, heads of another size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from octopus.verify.facets import EmbeddingGradients, Heads, KeyCache, LossTerms
from octopus.verify.inputs import Unreadable
from octopus.verify.subject import Declared, Descent


def refuse_unfit(fields: Mapping[str, Any], declared: Declared, length: int) -> None:
    """Raises `Unreadable` at the first field that does not fit a row of `length` tokens, or another field."""
    if (descent := fields.get("descent")) is not None:
        _descent(descent, length)
    if (loss := fields.get("loss")) is not None:
        _loss(loss, length)
    if (gradients := fields.get("gradients")) is not None:
        _gradients(gradients)
    if (heads := fields.get("heads")) is not None:
        _heads(heads, fields.get("keys"))
    _inside("bidirectional", declared.bidirectional, length)
    if declared.forbidden is not None:
        slices_S5 = declared.forbidden.slices_S5
        _inside("forbidden", np.concatenate([slices_S5[:, :2], slices_S5[:, 2:4]]).tolist(), length)


def _descent(descent: Descent, length: int) -> None:
    for array in (descent.parents_T, descent.documents_T, descent.intervals_T2):
        if array is not None and not len(array):
            raise Unreadable("the descent is empty")
    _long("times", descent.times_T, length)
    _inside("a stretch", ((stretch.start, stretch.stop) for stretch in descent.stretches), length)


def _loss(loss: LossTerms, length: int) -> None:
    terms = len(loss.token_rows_N)
    _long("loss_weights", loss.weights_N, terms)
    _long("log_ratio", loss.log_ratio_N, terms)
    if length:
        _long("supervised", loss.supervised_T, length)
        _long("sampled", loss.sampled_T, length)


def _gradients(gradients: EmbeddingGradients) -> None:
    length = gradients.norms_BT.shape[1]
    for number, rows in enumerate(gradients.loss_rows):
        if len(rows) and not (rows.min() >= 0 and rows.max() < length):
            raise Unreadable(f"loss{number}_rows names rows outside of the {length} of its gradient")


def _heads(heads: Heads, keys: KeyCache | None) -> None:
    _long("used_heads", heads.used_H, heads.query)
    if heads.gradient_HG is not None and heads.gradient_HG.shape != (heads.query, heads.key_value):
        raise Unreadable(
            f"head_gradient has shape {heads.gradient_HG.shape}; there are {heads.query} query and {heads.key_value} "
            "key/value heads"
        )
    if heads.tensor_parallel < 1 or (heads.rank_heads is not None and not heads.rank_heads):
        raise Unreadable("heads are spread over one rank at least")
    if keys is not None and heads.rotary is not None:
        dim = keys.before_TGD.shape[-1]
        if heads.rotary.dim > dim or heads.rotary.dim % 2:
            raise Unreadable(f"{heads.rotary.dim} rotary dimensions do not fit cached keys of {dim}")


def _long(name: str, array: np.ndarray | None, length: int) -> None:
    if array is not None and array.shape != (length,):
        raise Unreadable(f"{name} has shape {array.shape}, expected ({length},)")


def _inside(name: str, ranges: Iterable[Iterable[int]], length: int) -> None:
    for start, stop in ranges:
        if not 0 <= start <= stop <= length:
            raise Unreadable(f"{name} covers rows {start} to {stop} of {length}")
