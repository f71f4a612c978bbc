"""An empty dictionary that many share until they have something to put into one of their own."""

from __future__ import annotations

from typing import Any, NoReturn

from octopus.core.errors import InvariantViolation


class _Nothing(dict[Any, Any]):
    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvariantViolation("what many share must stay empty; put a new dictionary in its place first")

    __setitem__ = _refuse
    __ior__ = _refuse
    setdefault = _refuse
    update = _refuse


NOTHING: dict[Any, Any] = _Nothing()
"""Stands for an empty dictionary; whoever writes puts a new one in its place."""
