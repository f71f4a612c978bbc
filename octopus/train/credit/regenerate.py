"""Decoding: what the orchestrator answers without some branches, given the same noise.

The orchestrator's last turn is decoded again from the graph as it would be without them, and the environment says what
it earns. All worlds are decoded as one batch (as several, where memory is short) on an engine of their own, in whose
graph what they share is recorded once. Noise is keyed as it was in the rollout, so with nothing hidden the first sample
says the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from octopus.core.cursor import Cursor
from octopus.core.errors import CapacityExceeded
from octopus.core.grafting import Grafts
from octopus.core.thread import Thread
from octopus.rollout.actions import Action, Fault, Mistake
from octopus.rollout.control import Control
from octopus.rollout.dialect import Dialect, Turn
from octopus.rollout.engine import Engine
from octopus.rollout.environment import Environment
from octopus.rollout.sampling import Draw
from octopus.train.credit.counterfactual import Scope, answer_lines
from octopus.train.credit.world import NO_ANSWER, Valued, World

PRIOR_SAMPLES = 1
"""How many samples without effect are taken to have been seen before the first: a difference of `n` samples is shrunk
by n / (n + PRIOR_SAMPLES)."""


class Regenerate:
    """The evaluation by decoding again. Values are mean rewards of the samples.

    A turn that does not answer earns 0. What does not fit into the engine's memory has no value.
    """

    def __init__(
        self,
        engine: Engine,
        dialect: Dialect,
        *,
        scope: Scope,
        samples: int,
        temperature: float,
        turn_tokens: int,
    ) -> None:
        """Decodes on `engine`, which must keep no trace, with the weights that it has at the call.

        Args:
            engine: Of the policy. It is told here that its weights may have changed since the last call, and has memory
                for keys and states only during a call.
            dialect: The policy's.
            scope: What becomes of what others wrote under a hidden branch's influence.
            samples: Answers of each world; the first with the rollout's own noise.
            temperature: Of the rollouts.
            turn_tokens: Most tokens of a turn.
        """
        engine.release_memory()
        self._engine = engine
        self._dialect = dialect
        self._scope = scope
        self._samples = samples
        self._temperature = temperature
        self._turn_tokens = turn_tokens

    @property
    def trust(self) -> float:
        """See `Evaluation`: the shrinkage, to which each difference of noisy means is due."""
        return self._samples / (self._samples + PRIOR_SAMPLES)

    def values(self, worlds: Sequence[World]) -> list[Valued]:
        """See `Evaluation`."""
        self._engine.advance_weights()
        self._engine.take_back_memory()
        lines = answer_lines(worlds)
        graphs = [lines[w.played].without(w.hidden, self._scope) if w.played in lines else None for w in worlds]
        asked = {
            number: _Asked(
                world.played.environment,
                graph.place,
                Draw(world.played.record.seed, (0,), lines[world.played].place.draws),
            )
            for number, (world, graph) in enumerate(zip(worlds, graphs, strict=True))
            if graph is not None and graph.place is not None
        }
        rewards = dict(zip(asked, self._rewards([*asked.values()]), strict=True))
        self._engine.release_memory()
        return [
            NO_ANSWER
            if graph is None
            else Valued(value=rewards.get(number), hidden_tokens=graph.hidden_tokens, empty=graph.empty)
            for number, graph in enumerate(graphs)
        ]

    def _rewards(self, asked: Sequence[_Asked]) -> list[float | None]:
        """The mean reward of the samples of each; None for one that does not fit into memory even alone."""
        grafts = Grafts(self._engine.graph)
        try:
            return self._decode(asked, grafts)
        except CapacityExceeded:
            if len(asked) == 1:
                return [None]
        finally:
            grafts.drop()
            self._engine.trim()
        half = len(asked) // 2
        return [*self._rewards(asked[:half]), *self._rewards(asked[half:])]

    def _decode(self, asked: Sequence[_Asked], grafts: Grafts) -> list[float | None]:
        worlds = [[self._turn(grafts, one, draw) for draw in one.draws(self._samples)] for one in asked]
        while going := [turn for turns in worlds for turn in turns if turn.outcome is None]:
            threads, draws = [turn.thread for turn in going], [turn.draw for turn in going]
            chosen = self._engine.sample(threads, draws, temperature=self._temperature)
            for turn, (token, _) in zip(going, chosen, strict=True):
                self._engine.graph.append(turn.thread, [token])
                turn.take(token)
        return [
            fmean(self._reward(turn, one.environment) for turn in turns)
            for one, turns in zip(asked, worlds, strict=True)
        ]

    def _turn(self, grafts: Grafts, asked: _Asked, draw: Draw) -> _Turn:
        tokens = self._dialect.turn(frozenset({Control.ANSWER}), self._turn_tokens)
        return _Turn(grafts.thread_at(asked.place), draw, tokens)

    def _reward(self, turn: _Turn, environment: Environment) -> float:
        """What a turn earns, read as the protocol reads it."""
        if not isinstance(turn.outcome, Action):
            return 0.0
        return environment.score(turn.outcome.words)


class _Asked(NamedTuple):
    """One world's place to answer from, and the random draw that the rollout made there."""

    environment: Environment
    place: Cursor
    draw: Draw

    def draws(self, samples: int) -> list[Draw]:
        """The first draw of each sample: the rollout's own, then those of places that no agent has."""
        return [self.draw, *(self.draw._replace(path=(0, -number)) for number in range(1, samples))]


class _Turn:
    """A turn that is decoded.

    Attributes:
        thread: Which samples it.
        draw: Its next random draw.
        outcome: Its action or its fault, None while it goes on.
    """

    def __init__(self, thread: Thread, draw: Draw, tokens: Turn) -> None:
        self.thread = thread
        self.draw = draw
        self.outcome: Action | Mistake | Fault | None = None
        self._tokens = tokens

    def take(self, token: int) -> None:
        """The thread has sampled a token."""
        self.draw = self.draw._replace(made=self.draw.made + 1)
        self.outcome = self._tokens.take(token)
