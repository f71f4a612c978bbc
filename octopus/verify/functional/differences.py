"""One row computed two ways that must agree but for rounding (OCT403, 406, 407, 508).

These find what isolation cannot: a gradient that is missing in part, a position that is wrong for all, a key that is
counted twice. They are no proof that nothing leaks: one pair moves a bfloat16 result by little more than its noise.

Letters: T rows, N loss terms, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from octopus.verify.audits.audit import Inconclusive
from octopus.verify.findings import Finding, Witness
from octopus.verify.functional.trial import Trial
from octopus.verify.margins import HEADROOM
from octopus.verify.rules import finding
from octopus.verify.tolerance import Distance, Measured, Yardstick, distance, measure


@dataclass(frozen=True, kw_only=True, eq=False)
class RowLoss:
    """A weighted sum of negative log-probabilities, divided.

    Attributes:
        token_rows_N: Row of the predicted token.
        predictors_N: Row whose output predicts it.
        labels_N: Its token id.
        weights_N: Weight of each term.
        denominator: By what the sum is divided.
    """

    token_rows_N: np.ndarray
    predictors_N: np.ndarray
    labels_N: np.ndarray
    weights_N: np.ndarray
    denominator: float

    def __call__(self, logits_TV: Tensor) -> Tensor:
        """The loss, in the precision of the logits or float32, whichever is wider."""
        predictors_N, labels_N = torch.from_numpy(self.predictors_N), torch.from_numpy(self.labels_N)
        wide_NV = logits_TV[predictors_N].to(torch.promote_types(logits_TV.dtype, torch.float32))
        chosen_N = wide_NV.log_softmax(dim=-1)[torch.arange(len(labels_N)), labels_N]
        return -(chosen_N * torch.from_numpy(self.weights_N).to(chosen_N)).sum() / self.denominator

    def terms(self, which_N: np.ndarray) -> RowLoss:
        """Some of the terms, by number; the denominator stays."""
        return replace(
            self,
            token_rows_N=self.token_rows_N[which_N],
            predictors_N=self.predictors_N[which_N],
            labels_N=self.labels_N[which_N],
            weights_N=self.weights_N[which_N],
        )


def packed_against_alone(trial: Trial, loss: RowLoss, yardstick: Yardstick) -> list[Finding]:
    """OCT403: outputs and gradients of the packed row equal those of a trusted computation of the same tokens.

    Args:
        trial: The packed row.
        loss: Of its logits.
        yardstick: The same logits, row by row of the pack, and the same loss, computed another way.
    """
    logits_TV = trial.stack.run(trial.stack.tokens_T)
    found = measure(_model(trial), logits_TV, loss(logits_TV))
    expected, noise = yardstick.expected(logits_TV.dtype), yardstick.noise(logits_TV.dtype)
    return _unlike(
        trial, "OCT403", "the packed row and its tokens computed alone", distance(found, expected), noise
    )


def additivity(trial: Trial, loss: RowLoss, yardstick: Yardstick) -> list[Finding]:
    """OCT407: the gradient of two halves of a loss adds up to that of the whole, from one forward pass each."""
    terms_N, parts = np.arange(len(loss.labels_N)), []
    for part in (loss, loss.terms(terms_N[::2]), loss.terms(terms_N[1::2])):
        logits_TV = trial.stack.run(trial.stack.tokens_T)
        parts.append(measure(_model(trial), logits_TV, part(logits_TV)))
    whole, one, other = parts
    total = replace(
        whole, gradients={name: one.gradients[name] + other.gradients[name] for name in one.gradients}
    )
    noise = yardstick.noise(whole.outputs_NV.dtype)
    return _unlike(
        trial, "OCT407", "the gradients of two halves and of the whole", distance(total, whole), noise
    )


def layout_change(trial: Trial, other: Trial, rows_T: np.ndarray, yardstick: Yardstick) -> list[Finding]:
    """OCT508: the same tokens in another order of siblings give the same outputs.

    Args:
        trial: One layout.
        other: Another one of the same paths.
        rows_T: For each row of `trial`, its row in `other`.
        yardstick: As in `packed_against_alone`, for the noise.
    """
    with torch.no_grad():
        one_TV, other_TV = (x.stack.run(x.stack.tokens_T) for x in (trial, other))
    moved = distance(_outputs_only(other_TV[torch.from_numpy(rows_T)]), _outputs_only(one_TV))
    return _unlike(trial, "OCT508", "two layouts of the same paths", moved, yardstick.noise(one_TV.dtype))


def sibling_order(
    trial: Trial, other: Trial, rows_T: np.ndarray, loss: RowLoss, yardstick: Yardstick
) -> list[Finding]:
    """OCT406: the same loss has the same gradients, whichever way siblings are ordered.

    Args:
        trial: One layout.
        other: Another one of the same paths, run by the same model.
        rows_T: For each row of `trial`, its row in `other`.
        loss: Of the outputs of `trial`.
        yardstick: As in `packed_against_alone`, for the noise.
    """
    moved = replace(loss, token_rows_N=rows_T[loss.token_rows_N], predictors_N=rows_T[loss.predictors_N])
    one_TV, other_TV = (x.stack.run(x.stack.tokens_T) for x in (trial, other))
    expected = measure(_model(trial), one_TV, loss(one_TV))
    found = measure(_model(other), other_TV, moved(other_TV))
    found = replace(found, outputs_NV=found.outputs_NV[torch.from_numpy(rows_T)])
    noise = yardstick.noise(one_TV.dtype)
    return _unlike(
        trial,
        "OCT406",
        "a loss and the same one with its siblings exchanged",
        distance(found, expected),
        noise,
    )


def _model(trial: Trial) -> nn.Module:
    if trial.stack.model is None:
        raise Inconclusive("a black box has no parameters whose gradients could be compared")
    return trial.stack.model


def _outputs_only(logits_TV: Tensor) -> Measured:
    return Measured(outputs_NV=logits_TV, gradients={})


def _unlike(trial: Trial, code: str, what: str, moved: Distance, noise: Distance) -> list[Finding]:
    times = moved.over(noise)
    if times <= HEADROOM:
        return []
    limit = f"outputs {noise.outputs:.1e}, gradients {noise.gradients:.1e}, times {HEADROOM:g}"
    found = f"outputs {moved.outputs:.1e}, gradients {moved.gradients:.1e}"
    message = f"{what} differ by {times:.3g} times the noise of the dtype"
    return [finding(code, message, subject=trial.subject, witness=Witness(expected=limit, actual=found))]
