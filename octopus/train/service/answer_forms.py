"""The forms of answers, for the description at `/openapi.json`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


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


class Status(BaseModel):
    """The run in a few words."""

    folder: str
    phase: str
    paused: bool
    step: int
    of: int
    last_save_step: int | None
    last_step_unix_s: float | None
    figures: dict[str, Any]
    store: dict[str, Any]


class Paused(BaseModel):
    """Whether the run is to wait between two steps."""

    paused: bool


class Asked(BaseModel):
    """That the run was asked."""

    asked: bool


PROBLEM: dict[str, Any] = {"model": Problem, "description": "Not done; `detail` says why."}
MALFORMED: dict[str, Any] = {
    "description": "No HTTP, or another `Host` than expected.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
