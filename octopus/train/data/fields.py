"""The fields of a JSON object, each asked for by what it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from octopus.core.errors import ConfigError


class Fields:
    """A JSON object with a name for messages. Every method raises ConfigError, naming the field, if it is not so."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place

    def error(self, name: str, expected: str, came: object) -> ConfigError:
        """The error to raise about a field."""
        return ConfigError(f"{self._place}: {name}: expected {expected}, came {came!r:.80}")

    def value(self, name: str) -> Any:
        """Whatever the field is."""
        if name not in self._values:
            raise ConfigError(f"{self._place}: {name} is missing")
        return self._values[name]

    def text(self, name: str) -> str:
        """A text."""
        return self._kind(name, str, "a text")

    def text_or_none(self, name: str) -> str | None:
        """A text or null."""
        return None if self.value(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        return self._kind(name, bool, "true or false")

    def whole(self, name: str) -> int:
        """A whole number from 0 on."""
        value = self.value(name)
        if type(value) is not int or value < 0:
            raise self.error(name, "a whole number from 0 on", value)
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.value(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self.error(name, "a finite number", value)
        return float(value)

    def items(self, name: str) -> list[Any]:
        """A list."""
        return self.as_list(name, self.value(name))

    def wholes(self, name: str, *, count: int | None = None) -> list[int]:
        """A list of whole numbers from 0 on, of that length."""
        values = self.as_list(name, self.value(name), count=count)
        for value in values:
            if type(value) is not int or value < 0:
                raise self.error(name, "whole numbers from 0 on", values)
        return list(values)

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise self.error(name, "a list of texts", values)
        return values

    def item(self, name: str, number: int) -> Fields:
        """An object in a list."""
        return self._fields(f"{name}[{number}]", self.items(name)[number])

    def objects(self, name: str) -> list[list[Fields]]:
        """A list of lists of objects."""
        return [
            [self._fields(f"{name}[{i}][{j}]", value) for j, value in enumerate(self.as_list(f"{name}[{i}]", values))]
            for i, values in enumerate(self.items(name))
        ]

    def as_list(self, name: str, value: object, *, count: int | None = None) -> list[Any]:
        """A value that must be a list, of that length."""
        if not isinstance(value, list) or (count is not None and len(value) != count):
            raise self.error(name, "a list" if count is None else f"a list of {count}", value)
        return value

    def listed(self, name: str, value: object, *, count: int) -> list[int]:
        """A value that must be a list of so many whole numbers."""
        values = self.as_list(name, value, count=count)
        if not all(type(number) is int for number in values):
            raise self.error(name, f"{count} whole numbers", value)
        return values

    def _kind(self, name: str, kind: type, words: str) -> Any:
        value = self.value(name)
        if not isinstance(value, kind):
            raise self.error(name, words, value)
        return value

    def _fields(self, place: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise self.error(place, "an object", value)
        return Fields(value, f"{self._place}: {place}")
