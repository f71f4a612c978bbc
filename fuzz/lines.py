"""Lines: what a place of the graph means, as a plain tuple. No segment, page, count or cursor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Token(NamedTuple):
    """A token on the path. `uid` names it among all tokens and reads ever made."""

    uid: int
    value: int
    position: int


class Read(NamedTuple):
    """Foreign tokens that became visible here: `seen` holds (token uid, effective position) pairs."""

    uid: int
    seen: tuple[tuple[int, int], ...]
    next_position: int


Line = tuple[Token | Read, ...]
"""The whole history of a place, oldest first. Two places mean the same exactly if their lines are equal."""

START = -1
"""Stands for the uid of the last entry of an empty line."""


def last_uid(line: Line) -> int:
    """The uid of the last entry. It tells lines apart, since every uid is made once and at one place."""
    return line[-1].uid if line else START


def next_position(line: Line) -> int:
    """The position that a token written here takes."""
    if not line:
        return 0
    entry = line[-1]
    return entry.position + 1 if isinstance(entry, Token) else entry.next_position


def path(line: Line) -> list[Token]:
    """The tokens on the path, without what was read."""
    return [entry for entry in line if isinstance(entry, Token)]


def view(line: Line) -> dict[int, int]:
    """The effective position of every visible token, by uid."""
    seen: dict[int, int] = {}
    for entry in line:
        seen.update([(entry.uid, entry.position)] if isinstance(entry, Token) else entry.seen)
    return seen


def after_tokens(line: Line, inherited: int, count: int) -> Line | None:
    """The line right after its `count`-th token beyond the first `inherited` entries; None if it has fewer."""
    if count == 0:
        return line[:inherited]
    found = 0
    for index in range(inherited, len(line)):
        found += isinstance(line[index], Token)
        if found == count:
            return line[: index + 1]
    return None


def common_tokens(one: Iterable[Token], other: Iterable[Token]) -> int:
    """How many tokens both paths share from the root on."""
    shared = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.uid != theirs.uid:
            break
        shared += 1
    return shared
