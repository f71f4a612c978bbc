"""Mutants that no test can kill, because they do the same: each with the reason, in `equivalents.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fuzz.mutation import Mutation

LISTING = Path(__file__).parent / "equivalents.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Equivalent:
    """A claim: the `nth` change `what` of a line of `file` that reads `text` alters nothing that can be seen."""

    file: str
    text: str
    what: str
    nth: int = 1
    why: str

    def __post_init__(self) -> None:
        """Raises ValueError for a claim without a reason."""
        if not self.why.strip():
            raise ValueError(f"{self.file}, {self.text!r}: no reason is given")

    def names(self, path: Path, mutation: Mutation) -> bool:
        """Whether it is about this mutation of this file."""
        place = (path.name, mutation.text, mutation.what, mutation.nth)
        return place == (self.file, self.text, self.what, self.nth)


def read_equivalents(text: str) -> list[Equivalent]:
    """The claims of a TOML text. Raises ValueError for a field that is missing or unknown, or a claim made twice."""
    try:
        claims = [Equivalent(**entry) for entry in tomllib.loads(text).get("equivalent", [])]
    except TypeError as error:
        raise ValueError(f"a claim has file, text, what, why and perhaps nth: {error}") from error
    places = [(claim.file, claim.text, claim.what, claim.nth) for claim in claims]
    twice = [place for place in places if places.count(place) > 1]
    if twice:
        raise ValueError(f"claimed twice: {twice[0]}")
    return claims


def claim_about(claims: list[Equivalent], path: Path, mutation: Mutation) -> Equivalent | None:
    """The claim that this mutation is equivalent; None if nobody makes it."""
    return next((claim for claim in claims if claim.names(path, mutation)), None)


def stale(claims: list[Equivalent], everything: Iterable[tuple[Path, Mutation]]) -> list[Equivalent]:
    """Claims about none of these mutations of these files: their lines were changed since."""
    places = {(path.name, mutation.text, mutation.what, mutation.nth) for path, mutation in everything}
    return [claim for claim in claims if (claim.file, claim.text, claim.what, claim.nth) not in places]
