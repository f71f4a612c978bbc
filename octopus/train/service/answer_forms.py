"""The forms of answers, for the description at `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Problem(BaseModel):
    """Why a request was refused, or what failed."""

    detail: str


class Life(BaseModel):
    """That it lives."""

    alive: bool


class Readiness(BaseModel):
    """Whether the run works, and what it is at."""

    ready: bool
    phase: str


class LiveThread(BaseModel):
    """A thread of an episode that is played just now, and what it needs to go on."""

    thread: int
    episode: str
    state: Literal["ready", "calling", "committing", "waiting"]


class Live(BaseModel):
    """What can be cancelled: how many episodes and threads there are, and some of the threads."""

    episodes: int
    threads: int
    some: list[LiveThread]


class Status(BaseModel):
    """The run in a few words."""

    folder: str
    phase: str
    paused: bool
    waiting: bool
    step: int
    of: int
    last_save_step: int | None
    last_step_unix_s: float | None
    figures: dict[str, Any]
    store: dict[str, Any]
    live: Live


class Paused(BaseModel):
    """Whether the run is to wait between two steps."""

    paused: bool


def _whole(number: Any) -> Any:
    """JSON knows one kind of numbers: 7.0 is 7."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


class CancelThread(BaseModel):
    """A thread that is to end, with its descendants."""

    model_config = ConfigDict(extra="forbid", strict=True)
    thread: Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_whole)]


class CancelEpisode(BaseModel):
    """An episode that is to end."""

    model_config = ConfigDict(extra="forbid", strict=True)
    episode: Annotated[str, Field(min_length=1, max_length=512)]


class Asked(BaseModel):
    """That the run was asked."""

    asked: bool


PROBLEM: dict[str, Any] = {"model": Problem, "description": "Not done; `detail` says why."}
MALFORMED: dict[str, Any] = {
    "description": "No HTTP, or another `Host` than expected.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
