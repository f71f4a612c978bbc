"""Which hidden state predicts which token.

Letters: T rows of the pack, N targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octopus.attention.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """Predictions of a pack, in the order of the predicted tokens' rows.

    Example: a root `a b` in rows 0 and 1, its two children `c` and `d` in rows 2 and 3:

        token_rows_N      1  2  3
        predictor_rows_N  0  1  1     both children are scored from the root's last hidden state
        labels_N          b  c  d

    Attributes:
        predictor_rows_N: Row of the hidden state that predicts. One row may predict several tokens.
        labels_N: The predicted token id.
        token_rows_N: Row of the predicted token.
    """

    predictor_rows_N: np.ndarray
    labels_N: np.ndarray
    token_rows_N: np.ndarray


def targets(plan: Plan, token_rows_N: np.ndarray | None = None) -> Targets:
    """Finds the predictor of every token: its predecessor on the path, wherever that stands in the row.

    Args:
        plan: The pack.
        token_rows_N: Rows of the tokens to predict; all if None. Those without a predecessor are left out: nothing
            predicts the first token of a path.

    Returns:
        The targets, in the order of `token_rows_N`.
    """
    rows_N = np.arange(plan.length) if token_rows_N is None else token_rows_N
    rows_N = rows_N[plan.predecessors_T[rows_N] >= 0]
    return Targets(
        predictor_rows_N=plan.predecessors_T[rows_N],
        labels_N=plan.tokens_T[rows_N],
        token_rows_N=rows_N,
    )
