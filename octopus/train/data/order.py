"""The order in which data is gone through: every item once, shuffled, then again in another order."""

from __future__ import annotations

from random import Random

from octopus.train.tasks import seed_of


class Order:
    """A pure function of the seed and the number drawn, so a resumed run is given what it was given before."""

    def __init__(self, items: int, *, seed: int) -> None:
        """An order of `items` items, at least one."""
        self._items = items
        self._seed = seed
        self._round = -1
        self._shuffled: list[int] = []

    def __getitem__(self, number: int) -> int:
        """The item that is drawn as number `number`, from 0."""
        played, place = divmod(number, self._items)
        if played != self._round:
            self._round = played
            self._shuffled = list(range(self._items))
            Random(seed_of(self._seed, "order", played)).shuffle(self._shuffled)
        return self._shuffled[place]
