"""A run as the service knows it: told by the thread that trains, read by those that serve."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from octopus.core.graph import Graph
from octopus.rollout.cancelling import Cancelling
from octopus.train.watching import Phase

PAUSE_POLL_S = 0.2
SLOWEST_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Bounds of the histogram of parts of steps."""
PARTS = {"rollout": "rollout_seconds", "credit": "credit_seconds", "update": "step_seconds"}
"""The figure of each part of a step."""
MOST_LIVE = 100
"""Threads that are shown by name."""


@dataclass(kw_only=True)
class Totals:
    """Sums over the steps that this process has taken; each only rises.

    Attributes:
        steps: By stage.
        nonfinite_steps: Steps whose loss or gradient was not finite.
        sampled_tokens, packed_tokens, path_tokens: Tokens that were drawn, rows of packs, tokens without sharing.
        primitives, outcomes: By name.
        silent_groups: Groups whose rewards are all equal.
        terms_undefined, terms_clipped: Branch terms.
        terms: Branch terms that are defined, by the cell of the histogram that they fall into.
        tool_calls: Calls of tools, by whether they failed, with the time that they took in `tool_s`.
        oom_retries: Passes of the trainer that ran out of memory and were tried again.
        seconds: By part of a step, and in `cells` how many were at most each of `SLOWEST_S` long, then how many in all.
        saves: Saves written.
        save_s: Time that they took.
    """

    steps: Counter[str] = field(default_factory=Counter)
    nonfinite_steps: int = 0
    sampled_tokens: int = 0
    packed_tokens: int = 0
    path_tokens: int = 0
    primitives: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    silent_groups: int = 0
    terms_undefined: int = 0
    terms_clipped: int = 0
    terms: Counter[int] = field(default_factory=Counter)
    tool_calls: Counter[str] = field(default_factory=Counter)
    tool_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    oom_retries: int = 0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    cells: dict[str, list[int]] = field(default_factory=lambda: {part: [0] * (len(SLOWEST_S) + 1) for part in PARTS})
    saves: int = 0
    save_s: float = 0.0

    def add(self, figures: Mapping[str, Any]) -> None:
        """Counts a step."""
        self.steps[figures["stage"]] += 1
        self.nonfinite_steps += not figures["updated"]
        self.sampled_tokens += figures.get("sampled_tokens", 0)
        self.packed_tokens += figures["packed_tokens"]
        self.path_tokens += figures.get("path_tokens", 0)
        self.primitives.update(figures.get("primitives", {}))
        self.outcomes.update(figures.get("outcomes", {}))
        self.silent_groups += figures.get("silent_groups", 0)
        self.terms_undefined += figures.get("branch_terms_undefined", 0)
        self.terms_clipped += figures.get("branch_terms_clipped", 0)
        self.terms.update(dict(enumerate(figures.get("branch_term_histogram", ()))))
        self.tool_calls.update(figures.get("tool_calls", {}))
        for outcome, seconds in figures.get("tool_seconds", {}).items():
            self.tool_s[outcome] += seconds
        self.oom_retries += figures["oom_retries"]
        for part, name in PARTS.items():
            if name in figures:
                self._took(part, figures[name])

    def _took(self, part: str, seconds: float) -> None:
        self.seconds[part] += seconds
        for cell, bound in enumerate((*SLOWEST_S, math.inf)):
            self.cells[part][cell] += seconds <= bound


class Observed:
    """A run that is watched. See `Watch`; every method may be called from any thread."""

    def __init__(self, folder: str, *, clock_s: Callable[[], float] = time.time) -> None:
        """A run that has not begun; `folder` is where it writes."""
        self._condition = threading.Condition()
        self._clock_s = clock_s
        self.folder = folder
        self.totals = Totals()
        self.store: Graph | None = None
        self.cancelling = Cancelling()
        self.at: Phase = "starting"
        self._since_s = time.monotonic()
        self.taken, self.of = 0, 0
        self.last_save: int | None = None
        self.last_step_s: float | None = None  # Unix time.
        self.last: Mapping[str, Any] = {}
        self.paused, self.waiting = False, False  # Whether it is to wait, and whether it does.
        self._save_asked = False

    # ---- told by the run ----

    def rollouts(self, graph: Graph, cancelling: Cancelling) -> None:
        """See `Watch.rollouts`."""
        self.store, self.cancelling = graph, cancelling

    def phase(self, phase: Phase) -> None:
        """See `Watch.phase`."""
        self.at, self._since_s = phase, time.monotonic()

    def step(self, step: int, of: int, figures: Mapping[str, Any]) -> None:
        """See `Watch.step`."""
        with self._condition:
            self.taken, self.of, self.last, self.last_step_s = step, of, dict(figures), self._clock_s()
            self.totals.add(figures)

    def saved(self, step: int) -> None:
        """See `Watch.saved`."""
        with self._condition:
            self.totals.saves += 1
            self.totals.save_s += time.monotonic() - self._since_s
            self.last_save = step

    def between_steps(self, stopping: Callable[[], bool]) -> bool:
        """See `Watch.between_steps`."""
        with self._condition:
            while self.paused and not self._save_asked and not stopping():
                self.waiting = True
                self._condition.wait(PAUSE_POLL_S)
            self.waiting = False
            asked, self._save_asked = self._save_asked, False
            return asked

    # ---- asked by the operator ----

    def pause(self) -> None:
        """The run waits once the step that it is at has been taken. Idempotent."""
        with self._condition:
            self.paused = True

    def resume(self) -> None:
        """It goes on. Idempotent."""
        with self._condition:
            self.paused = False
            self._condition.notify_all()

    def ask_save(self) -> None:
        """It saves once the step that it is at has been taken; at once if it pauses."""
        with self._condition:
            self._save_asked = True
            self._condition.notify_all()

    def cancel(self, *, thread: int | None = None, episode: str | None = None) -> dict[str, Any]:
        """Whether it is live and will end before the next step of the rollouts; and who is live."""
        found = self.cancelling.ask(thread=thread, episode=episode)
        return {"found": found, "live": self._live()}

    @property
    def ready(self) -> bool:
        """Whether it works: it has started and does not stop."""
        return self.at in ("training", "saving", "evaluating")

    def status(self) -> dict[str, Any]:
        """The run in a few words, for people and scripts."""
        with self._condition:
            return {
                "folder": self.folder,
                "phase": self.at,
                "paused": self.paused,
                "waiting": self.waiting,
                "step": self.taken,
                "of": self.of,
                "last_save_step": self.last_save,
                "last_step_unix_s": self.last_step_s,
                "figures": _plain(self.last),
                "store": {} if self.store is None else self.store.stats().flat(),
                "live": self._live(),
            }

    def _live(self) -> dict[str, Any]:
        live = self.cancelling.live()
        shown = [{"thread": one.thread, "episode": one.episode, "state": one.state.value} for one in live[:MOST_LIVE]]
        return {"episodes": len({one.episode for one in live}), "threads": len(live), "some": shown}


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Single figures; JSON knows no NaN, so it is null."""
    single = {name: value for name, value in figures.items() if isinstance(value, int | float | str)}
    odd = {name: None for name, value in single.items() if isinstance(value, float) and not math.isfinite(value)}
    return single | odd
