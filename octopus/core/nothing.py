"""Empty containers that many share until they have something to put into one of their own."""

from __future__ import annotations

from typing import Any, NoReturn

from octopus.core.errors import InvariantViolation


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InvariantViolation("what many share must stay empty; put a new container in its place first")


class _Nothing(dict[Any, Any]):
    __setitem__ = _refuse
    __ior__ = _refuse
    setdefault = _refuse
    update = _refuse


class _NoItems(list[Any]):
    __iadd__ = _refuse
    append = _refuse
    extend = _refuse
    insert = _refuse


NOTHING: dict[Any, Any] = _Nothing()
"""Stands for an empty dictionary; whoever writes puts a new one in its place."""

NO_ITEMS: list[Any] = _NoItems()
"""Stands for an empty list likewise."""
