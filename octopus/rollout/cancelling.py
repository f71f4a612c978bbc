"""Cancelling what is played: anybody asks, from any Python thread; the loop carries it out between two steps.

So nobody but the loop touches the graph, and nobody waits for a step. A loop that waits for a tool is woken up.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from octopus.rollout.agents import State

Reason = Literal["operator", "stop"]
"""Somebody asked for it, or the run that plays stops."""

LONGEST_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Bounds of the times from asking to the memory's return, as they are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveThread:
    """A thread that can be cancelled: its number, its episode's name, and what it needs to go on."""

    thread: int
    episode: str
    state: State


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A thread, or an episode, that somebody wants to end; when that was asked, on the monotonic clock."""

    thread: int | None
    episode: str | None
    asked_s: float


class Cancelling:
    """Who can be cancelled, and who is to be.

    Attributes:
        ended: Cancellations that were carried out, by reason and by what the one who ended was at.
        released: Of those that were asked for, how many gave their memory back within each of `LONGEST_S`, and in all.
        release_s: Sum of these times.
        told: Done once there is a wish; a new one after they have been taken.
    """

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Nobody is played yet."""
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._look: Callable[[], Iterable[LiveThread]] = tuple
        self._wishes: list[Wish] = []
        self.told: Future[None] = Future()
        self.ended: Counter[tuple[Reason, State]] = Counter()
        self.released = [0] * (len(LONGEST_S) + 1)
        self.release_s = 0.0

    # ---- whoever asks ----

    def live(self) -> list[LiveThread]:
        """Who is played just now; some may have ended by the time that they are named."""
        return list(self._look())

    def ask(self, *, thread: int | None = None, episode: str | None = None) -> bool:
        """Wants a thread with its descendants, or an episode, to end. False if there is none that is live."""
        if not any(one.thread == thread if episode is None else one.episode == episode for one in self.live()):
            return False
        with self._lock:
            self._wishes.append(Wish(thread=thread, episode=episode, asked_s=self._clock_s()))
            if not self.told.done():
                self.told.set_result(None)
        return True

    # ---- the loop ----

    def plays(self, look: Callable[[], Iterable[LiveThread]]) -> None:
        """From now on these are live. `look` is called from other Python threads, and reads nothing of the graph."""
        self._look = look

    def rests(self) -> None:
        """Nobody is live any more; what was asked and not carried out is forgotten."""
        self._look = tuple
        self.taken()

    def taken(self) -> list[Wish]:
        """The wishes that are to be carried out now."""
        with self._lock:
            if self._wishes:
                self.told = Future()
            wishes, self._wishes = self._wishes, []
            return wishes

    def carried_out(self, wish: Wish, state: State) -> None:
        """The one whom it is about has ended, and its memory is given back."""
        took_s = self._clock_s() - wish.asked_s
        self.ended["operator", state] += 1
        self.release_s += took_s
        for place, longest in enumerate((*LONGEST_S, float("inf"))):
            self.released[place] += took_s <= longest
