"""Engines and players as a configuration asks for them."""

from __future__ import annotations

from transformers import PreTrainedModel

from octopus.core.trace import Trace
from octopus.rollout.agents import AgentLimits
from octopus.rollout.cancelling import Cancelling
from octopus.rollout.dialect import Dialect
from octopus.rollout.engine import Engine
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.spans import NO_SPANS, Spans
from octopus.train.job_config import PAGE_SIZE, RolloutConfig


def new_engine(
    model: PreTrainedModel, codec: Dialect, config: RolloutConfig, *, trace: Trace | None = None
) -> Engine:
    """An engine for the model; it takes the model over."""
    return Engine(
        model,
        codec.transformers(),
        pages=config.pages,
        page_size=PAGE_SIZE,
        state_slots=config.state_slots,
        batch_tokens=config.batch_tokens,
        backend=config.backend,
        trace=trace,
    )


def new_rollouts(
    engine: Engine,
    codec: Dialect,
    config: RolloutConfig,
    *,
    temperature: float,
    spans: Spans = NO_SPANS,
    cancelling: Cancelling | None = None,
) -> Rollouts:
    """A player on the engine. In lockstep: who shares a batch does not depend on how fast tools are."""
    return Rollouts(
        engine,
        codec,
        MODES[config.mode],
        temperature=temperature,
        limits=AgentLimits(
            turn_tokens=config.turn_tokens, thread_tokens=config.thread_tokens, turns=config.turns
        ),
        most_episodes=config.episodes,
        lockstep=True,
        spans=spans,
        cancelling=cancelling,
    )
