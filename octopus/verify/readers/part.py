"""What a format says about the rows of a batch, before all formats' words are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from octopus.verify.inputs import Hints
from octopus.verify.readers.bag import Bag


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Fields of a subject for one batch row.

    Attributes:
        fields: By the subject's field names.
        length: Number of tokens that these fields cover; None if they do not say.
        name: Of the subject, if the format has one.
        notes: What was assumed.
    """

    fields: Mapping[str, Any]
    length: int | None = None
    name: str | None = None
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A kind of description.

    Attributes:
        name: For `--format-in`.
        names: Arrays and tables that it looks at.
        read: The parts, one a batch row; none if the bag does not hold this format. Raises `Unreadable`.
    """

    name: str
    names: tuple[str, ...]
    read: Callable[[Bag, Hints], Sequence[Part]]
