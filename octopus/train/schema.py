"""From parsed TOML to frozen dataclasses, with errors that name the place.

Understands what a configuration needs and no more: nested dataclasses, tuples, literals, optional values, plain
scalars, and bounds on numbers through `Annotated`.
"""

from __future__ import annotations

import difflib
import json
import operator
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from octopus.core.errors import ConfigError

T = TypeVar("T")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Bound:
    """A limit on a number, written into its type: `Annotated[int, at_least(1)]`."""

    words: str
    holds: Callable[[float, float], bool]
    limit: float

    def __str__(self) -> str:
        return f"{self.words} {self.limit}"


def at_least(limit: float) -> Bound:
    """The number must not be smaller."""
    return Bound("at least", operator.ge, limit)


def above(limit: float) -> Bound:
    """The number must be larger."""
    return Bound("above", operator.gt, limit)


def at_most(limit: float) -> Bound:
    """The number must not be larger."""
    return Bound("at most", operator.le, limit)


def below(limit: float) -> Bound:
    """The number must be smaller."""
    return Bound("below", operator.lt, limit)


def parse(cls: type[T], table: object, *, source: str, place: str = "") -> T:
    """Builds the dataclass `cls` from a parsed TOML table.

    Args:
        cls: A dataclass; its fields are the keys that the table may hold.
        table: What the TOML reader returned.
        source: Name of the file, for messages.
        place: Dotted path of the table in the file, for messages.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong type or out of range.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{source}: {place}: expected a section, came {_came(table)}")
    known = {entry.name: entry for entry in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"{source}: {_join(place, key)}: unknown key{_suggestion(key, list(known))}")
    hints = get_type_hints(cls, include_extras=True)
    values = {}
    for name, entry in known.items():
        if name in table:
            values[name] = _convert(hints[name], table[name], source=source, place=_join(place, name))
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise ConfigError(f"{source}: {_join(place, name)}: missing, expected {_expected(hints[name])}")
    return cls(**values)


def lines(config: object, *, place: str = "") -> Iterator[str]:
    """Yields `dotted.key = value` for every leaf of a configuration tree."""
    if is_dataclass(config):
        for entry in fields(config):
            yield from lines(getattr(config, entry.name), place=_join(place, entry.name))
    elif isinstance(config, tuple):
        for number, item in enumerate(config):
            yield from lines(item, place=f"{place}[{number}]")
    else:
        yield f"{place} = {config!r}"


def toml(config: object, *, place: str = "") -> str:
    """The configuration as TOML, one dotted key a line, which `parse` reads back. Values that are None are left out.

    Lists of sections are not understood.
    """
    if is_dataclass(config):
        return "".join(toml(getattr(config, entry.name), place=_join(place, entry.name)) for entry in fields(config))
    if config is None:
        return ""
    # JSON's strings, numbers, booleans and lists of these are TOML's.
    return f"{place} = {json.dumps(config, ensure_ascii=False)}\n"


def _convert(hint: Any, value: object, *, source: str, place: str) -> Any:
    """Returns `value` as the type that `hint` describes."""
    kind, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return parse(hint, value, source=source, place=place)  # type: ignore[arg-type]
    if kind is Annotated:
        number = _convert(arguments[0], value, source=source, place=place)
        for bound in arguments[1:]:
            if not bound.holds(number, bound.limit):
                raise ConfigError(f"{source}: {place}: expected {_expected(hint)}, came {_came(value)}")
        return number
    if kind is tuple and isinstance(value, list):
        return tuple(
            _convert(arguments[0], item, source=source, place=f"{place}[{number}]")
            for number, item in enumerate(value)
        )
    if kind is UnionType:
        return _convert(arguments[0], value, source=source, place=place)
    if kind is Literal:
        fits = value in arguments
    elif hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        fits = type(value) is hint
    if not fits:
        raise ConfigError(f"{source}: {place}: expected {_expected(hint)}, came {_came(value)}")
    return float(value) if hint is float else value  # type: ignore[arg-type]


def _expected(hint: Any) -> str:
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return " ".join([_KINDS[arguments[0]], " and ".join(map(str, arguments[1:]))])
    if kind is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if kind is tuple:
        return "a list"
    if kind is UnionType:
        return _expected(arguments[0])
    return "a section" if is_dataclass(hint) else _KINDS[hint]


def _came(value: object) -> str:
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _suggestion(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
