"""Shapes with coordinates in pixels, y downwards: what panels make and what writers write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

INK, FAINT, GRID, PAPER = "#1c2733", "#6b7785", "#d5dbe1", "#ffffff"
SEEN, HIDDEN = "#3b6fb6", "#f3f5f7"
LEAK, MISSING, WASTE, HALF = "#d62828", "#f08c00", "#ffd479", "#86b8a0"
SEGMENTS = ("#3b6fb6", "#2a9d8f", "#8e5bb5", "#c2713a", "#5f7d2c", "#b5477f", "#4a8fa8", "#7a6a4f")
"""Colours of segments, used in turn."""
THIN = 0.5
"""Pixels: what is thinner is not drawn, so that a picture stays small however many segments there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """A rectangle. `title` is shown where a reader points at it."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    stroke: str | None = None
    title: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    stroke: str
    width: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """A circle, filled or only drawn around."""

    x: float
    y: float
    radius: float
    fill: str | None = None
    stroke: str | None = None
    title: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """One line of text; `y` is its baseline."""

    x: float
    y: float
    text: str
    size: int = 12
    fill: str = INK
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Raster:
    """Cells of equal size that fill a rectangle; `rgb` is uint8 `[rows, columns, 3]`."""

    x: float
    y: float
    width: float
    height: float
    rgb: np.ndarray


Shape = Box | Path | Dot | Text | Raster


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Shapes in drawing order, and the size of the whole."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


def moved(shape: Shape, x: float, y: float) -> Shape:
    """The shape further right and down."""
    if isinstance(shape, Path):
        return replace(shape, points=tuple((px + x, py + y) for px, py in shape.points))
    return replace(shape, x=shape.x + x, y=shape.y + y)


def fitted(text: str, width: float, size: int) -> str:
    """The text cut to about `width` pixels; empty where not even three characters fit."""
    room = int(width / (0.56 * size))
    if len(text) <= room:
        return text
    return text[: room - 2] + ".." if room >= 5 else ""


def rgb(colour: str) -> tuple[int, int, int]:
    """The three numbers of `#rrggbb`."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
