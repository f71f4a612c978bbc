"""Names that look like those of a library and are none: real ones with their pieces exchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ONSETS = (*"bcdfghjklmnprstvwz", "ch", "sh", "st", "tr", "pl", "br", "cl")
_VOWELS = (*"aeiou", "ea", "io")
_CODAS = ("", "", "", *"nrstlx", "ck", "nd")
MADE_UP_SHARE = 0.5  # of the pieces are syllables, the others are pieces of other names


class NameMaker:
    """Draws names in the shapes of given ones: snake_case, CamelCase, dotted, with digits, run together."""

    def __init__(self, names: Iterable[str]) -> None:
        self._shapes = sorted(set(names))
        self._pieces = sorted({p.lower() for name in self._shapes for p in _PIECE.findall(name) if p.isalpha()})

    def draw(self, rng: Random) -> str:
        """Returns a name: the shape of a random given one, every piece of it exchanged."""
        return _PIECE.sub(lambda match: self._exchange(match[0], rng), rng.choice(self._shapes))

    def _exchange(self, piece: str, rng: Random) -> str:
        """Returns another piece of the same kind: digits, capitals, capitalised or lower case."""
        if piece.isdigit():
            return str(rng.randrange(10 ** len(piece)))
        if len(piece) == 1:
            word = rng.choice("abcdefghijklmnopqrstuvwxyz")
        elif rng.random() < MADE_UP_SHARE:
            word = "".join(
                rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.randint(1, 3))
            )
        else:
            word = rng.choice(self._pieces)
        return word.upper() if piece.isupper() else word.capitalize() if piece[0].isupper() else word
