"""What a planted fault is: one seam at which one thing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn

from octopus.attention.plan import Plan
from octopus.verify.functional.differences import RowLoss
from octopus.verify.functional.kernel import LibraryAttention
from octopus.verify.subject import Subject

LLAMA, QWEN3, QWEN, GEMMA3, FOREIGN = "llama", "qwen3", "qwen3.5", "gemma-3", "hf-llama"
QWEN3_NEXT, GRANITE, NEMOTRON = "qwen3-next", "granite-4", "nemotron-h"
ALL = (LLAMA, QWEN, FOREIGN)
OURS = (LLAMA, QWEN)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault and the code that names it.

    Exactly one of the seams is set.

    Attributes:
        name: Unique; words with underscores.
        code: What the audits should call it; its first digit is what counts as caught.
        about: One sentence.
        stacks: Where it can be planted.
        row: Changes the row that the kernels are told.
        silent: The dump of the row does not show what `row` changed: only the kernels have it.
        loss: Changes who is trained to predict what.
        kernel: Wraps the attention function.
        inside: Patches the stack while the context lasts.
        dump: Changes a dump; no model is run, so it is the same in every dtype.
    """

    name: str
    code: str
    about: str
    stacks: tuple[str, ...] = ALL
    row: Callable[[Plan], Plan] | None = None
    silent: bool = False
    loss: Callable[[RowLoss, Plan], RowLoss] | None = None
    kernel: Callable[[LibraryAttention], LibraryAttention] | None = None
    inside: Callable[[nn.Module], AbstractContextManager[Any]] | None = None
    dump: Callable[[Subject], Subject] | None = None

    @property
    def family(self) -> str:
        """`OCT1` for a fault of masks, and so on."""
        return self.code[:4]
