"""The host tier: where pages and states lie that nobody who runs can see, and the copies there and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from octopus.core.pool import PagePool, StatePool, unit_of
from octopus.core.segment import Segment

Kind = Literal["offload", "restore"]


class Transfer:
    """One copy of pages and states of a segment between the device and the host tier.

    Until it completes, the units on both sides are nobody else's, whatever becomes of the segment.

    Attributes:
        kind: `offload` copies to the host tier, `restore` back.
        segment: Whose memory it is.
        pages: For each page index the handles on the device and in the host tier.
        states: For each length the handles of the state slots, likewise.
        ok: Whether it succeeded; None while it is under way.
        recalled: Whether somebody needs the device's side after all: an offload then changes nothing.
        adopted_pages: Indices of pages that the segment has given up meanwhile; the copy still needs their units.
        adopted_states: Lengths of such states.
    """

    __slots__ = ("_complete", "adopted_pages", "adopted_states", "kind", "ok", "pages", "recalled", "segment", "states")

    def __init__(
        self,
        kind: Kind,
        segment: Segment,
        pages: dict[int, tuple[int, int]],
        states: dict[int, tuple[int, int]],
        complete: Callable[[Transfer, bool], bool],
    ) -> None:
        self.kind: Kind = kind
        self.segment = segment
        self.pages = pages
        self.states = states
        self.ok: bool | None = None
        self.recalled = False
        self.adopted_pages: set[int] = set()
        self.adopted_states: set[int] = set()
        self._complete = complete

    @property
    def done(self) -> bool:
        """Whether it has completed, well or not."""
        return self.ok is not None

    @property
    def page_units(self) -> list[tuple[int, int]]:
        """Pairs `(device page, host page)` of physical units."""
        return [(unit_of(device), unit_of(host)) for device, host in self.pages.values()]

    @property
    def state_units(self) -> list[tuple[int, int]]:
        """Pairs `(device slot, host slot)` of physical units."""
        return [(unit_of(device), unit_of(host)) for device, host in self.states.values()]

    def complete(self, *, ok: bool = True) -> bool:
        """The copy has ended. From any Python thread; the first call decides and returns True, later ones count."""
        return self._complete(self, ok)

    def __repr__(self) -> str:
        state = "under way" if self.ok is None else "done" if self.ok else "failed"
        what = f"{len(self.pages)} pages and {len(self.states)} states of {self.segment}"
        return f"Transfer({self.kind} of {what}, {state})"


class Copier(Protocol):
    """Whoever moves the bytes."""

    def start(self, transfer: Transfer) -> None:
        """Begins the copy of `transfer.page_units` and `transfer.state_units`, fingerprints included.

        It may complete the transfer at once, or later from any Python thread. What was launched on the device before is
        part of what is copied. An OctopusError or RuntimeError that it raises counts as a failure.
        """
        ...


class HostTier:
    """A second place for pages and states.

    Attributes:
        pages: The pool of host pages; None without any.
        states: The pool of host states; None without any.
        copier: Moves the bytes.
        timeout_s: How long, in seconds, whoever needs a copy's outcome waits for it; 0 for not at all.
    """

    def __init__(self, *, pages: int, states: int = 0, copier: Copier, timeout_s: float = 30.0) -> None:
        """Room for `pages` pages and `states` recurrent states, 0 or more of each."""
        if pages < 0 or states < 0 or timeout_s < 0:
            raise ValueError(f"pages, states and timeout_s are 0 or more, got {pages}, {states} and {timeout_s}")
        self.pages = PagePool(pages) if pages else None
        self.states = StatePool(states) if states else None
        self.copier = copier
        self.timeout_s = timeout_s
        for pool, noun in ((self.pages, "host pages"), (self.states, "host states")):
            if pool is not None:
                pool.noun = noun

    @property
    def free_pages(self) -> int:
        """Number of host pages that can be filled."""
        return self.pages.free if self.pages else 0

    @property
    def free_states(self) -> int:
        """Number of host states that can be filled."""
        return self.states.free if self.states else 0
