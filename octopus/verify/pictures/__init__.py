"""One picture of a subject: its mask, its blocks, its positions, its mounts, and what was found."""

from __future__ import annotations

from octopus.verify.pictures.draw import draw

__all__ = ["draw"]
