"""What a reader is told besides the files, and how it says that it cannot read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octopus.core.errors import OctopusError

MAX_BYTES = 64 * 1024**2
"""Largest array that is read unless more is allowed: a bool mask of 8,192 x 8,192."""


class Unreadable(OctopusError):
    """A file is broken, hostile, too large or of an unknown kind. The message names it and says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """What the user says about the files.

    Attributes:
        convention: What True (or 0) means in a mask; None to find out and to state it.
        allow_pt: Whether `.pt` files may be read (torch, weights_only).
        max_bytes: Largest array or file.
        format: Name of the reader to use; None to find out.
        window: Declared sliding window.
        sinks: Declared attention sinks.
        varies_by_head: Whether heads may have masks of their own.
    """

    convention: Literal["keep", "drop", "additive"] | None = None
    allow_pt: bool = False
    max_bytes: int = MAX_BYTES
    format: str | None = None
    window: int | None = None
    sinks: int = 0
    varies_by_head: bool = False
