"""Faults in who is trained to predict what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from octopus.attention.plan import Plan
from octopus.verify.functional.differences import RowLoss
from octopus.verify.selftest.fault import Fault


def label_scored_from_previous_row(loss: RowLoss, plan: Plan) -> RowLoss:
    """Labels are the tokens shifted by one row, as in a plain sequence."""
    return replace(loss, predictors_N=loss.token_rows_N - 1)


def first_token_scored_from_itself(loss: RowLoss, plan: Plan) -> RowLoss:
    """The first token of a branch is predicted by its own row."""
    first_N = plan.predecessors_T[loss.token_rows_N] != loss.token_rows_N - 1
    return replace(loss, predictors_N=np.where(first_N, loss.token_rows_N, loss.predictors_N))


def shared_token_counted_twice(loss: RowLoss, plan: Plan) -> RowLoss:
    """A token of the shared prefix counts once for each of two branches."""
    return loss.terms(np.append(np.arange(len(loss.labels_N)), 0))


def term_lost(loss: RowLoss, plan: Plan) -> RowLoss:
    """The first token after a fork has no loss term."""
    kept_N = plan.predecessors_T[loss.token_rows_N] == loss.token_rows_N - 1
    return loss.terms(np.flatnonzero(kept_N))


def divided_by_rows(loss: RowLoss, plan: Plan) -> RowLoss:
    """The sum is divided by the row's length instead of the number of terms."""
    return replace(loss, denominator=float(plan.length + 3))


LOSSES = (
    Fault(
        name="label_scored_from_previous_row",
        code="OCT404",
        about=str(label_scored_from_previous_row.__doc__),
        loss=label_scored_from_previous_row,
    ),
    Fault(
        name="first_token_scored_from_itself",
        code="OCT404",
        about=str(first_token_scored_from_itself.__doc__),
        loss=first_token_scored_from_itself,
    ),
    Fault(
        name="shared_token_counted_twice",
        code="OCT404",
        about=str(shared_token_counted_twice.__doc__),
        loss=shared_token_counted_twice,
    ),
    Fault(name="term_lost", code="OCT404", about=str(term_lost.__doc__), loss=term_lost),
    Fault(name="divided_by_rows", code="OCT405", about=str(divided_by_rows.__doc__), loss=divided_by_rows),
)
