"""How many times the noise something must be to be wrong, and noise where none was measured.

Two right results each carry the noise of their precision once, so they lie at most twice the noise apart; HEADROOM
doubles that again. A fault that moves a result by VISIBLE times the noise is then always told from rounding: it leaves
at least `VISIBLE - 2` times the noise between the faulty result and the right one, which is more than HEADROOM.
"""

from __future__ import annotations

from typing import NamedTuple

HEADROOM = 4.0
VISIBLE = 10.0


class RatioNoise(NamedTuple):
    """How far from 1 the ratio of a token is, at most, if the same weights give it twice by two right ways.

    How far that is hangs on the model, and cannot be derived from log-probabilities: these are the least and the most
    among the stacks of the selftest (packed, against token by token or each path alone). A test measures them again.
    """

    least: float
    most: float


RATIO_NOISE = {"float32": RatioNoise(1.8e-6, 4.7e-5), "bfloat16": RatioNoise(1.7e-2, 4.6)}
