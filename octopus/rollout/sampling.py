"""Choosing tokens, with noise that does not depend on who shares the batch.

Each draw takes one uniform number from a counter-based generator. Its key is the episode seed and the thread's path,
its counter the number of draws the thread has made; the counter never goes back, so a rewound thread does not repeat
itself.

Letters: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draw(NamedTuple):
    """One random draw: the episode's seed, the thread's path of child indices, and its draws before this one."""

    seed: int
    path: tuple[int, ...]
    made: int

    def uniform(self) -> float:
        """A number in [0, 1), a pure function of the three."""
        digest = blake2b(repr((self.seed, self.path)).encode(), digest_size=16).digest()
        key = np.frombuffer(digest, dtype=np.uint64)
        return float(np.random.Generator(np.random.Philox(key=key, counter=self.made)).random())


def choose(logits_NV: Tensor, draws: Sequence[Draw], temperature: float) -> tuple[list[int], list[float]]:
    """A token for each row, and its log-probability.

    Args:
        logits_NV: Unscaled logits.
        draws: The draw of each row; not used at temperature 0.
        temperature: 0 takes the likeliest token (the lowest id among equals); else the logits are divided by it.

    Returns:
        Token ids, and their natural log-probabilities at temperature 1, in `promote(dtype, float32)`.
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    if temperature == 0:
        tokens_N = logits_NV.argmax(dim=-1)
    else:
        # Inverse transform: the first token at which the cumulated probability passes the uniform number.
        cumulated_NV = torch.softmax(logits_NV.double() / temperature, dim=-1).cumsum(dim=-1)
        uniform_N = torch.tensor([draw.uniform() for draw in draws], dtype=torch.float64, device=logits_NV.device)
        target_N1 = uniform_N[:, None] * cumulated_NV[:, -1:]
        tokens_N = torch.searchsorted(cumulated_NV, target_N1, right=True)[:, 0]
    log_probabilities_N = logits_NV.log_softmax(dim=-1).gather(1, tokens_N[:, None])[:, 0]
    return tokens_N.tolist(), log_probabilities_N.tolist()
