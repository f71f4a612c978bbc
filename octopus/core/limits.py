"""What a graph refuses to exceed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a graph refuses to exceed.

    Attributes:
        fan_out: Most children of one `fork` call.
        depth: Most forks above a thread.
    """

    fan_out: int = 1024
    depth: int = 1024
