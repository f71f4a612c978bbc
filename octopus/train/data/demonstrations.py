"""Episodes of one's own to imitate: a file with the lines that a job writes to `episodes.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from octopus.core.errors import ConfigError
from octopus.rollout.records import RolloutRecord
from octopus.train.data.episodes import read_episode
from octopus.train.data.jsonl import read_jsonl
from octopus.train.data.order import Order


class Demonstrations:
    """Episodes, each imitated once before one comes round again.

    Attributes:
        records: In the order of the file.
    """

    def __init__(self, records: Sequence[RolloutRecord], *, seed: int) -> None:
        """Takes at least one record; `seed` decides their order."""
        self.records = tuple(records)
        self._order = Order(len(self.records), seed=seed)

    @classmethod
    def read(cls, path: Path, *, vocabulary: int, seed: int) -> Demonstrations:
        """Reads a file.

        Args:
            path: One episode a line.
            vocabulary: Number of tokens that the policy knows.
            seed: Of their order.

        Raises:
            ConfigError: A line is no episode, has nothing to imitate, or there is none; the message names the line.
        """
        records = []
        for place, line in read_jsonl(path):
            record = read_episode(line, place=place, vocabulary=vocabulary)
            if not any(token.live for token in record.episode.sampled):
                raise ConfigError(f"{place}: expected at least one sampled token that is live, came none to imitate")
            records.append(record)
        if not records:
            raise ConfigError(f"{path}: expected at least one episode, came none")
        return cls(records, seed=seed)

    def draw(self, step: int, count: int) -> tuple[RolloutRecord, ...]:
        """The `count` episodes of a step, from 1; none twice, so fewer where the file has fewer."""
        numbers = range((step - 1) * count, step * count)
        return tuple(self.records[number] for number in dict.fromkeys(self._order[n] for n in numbers))
