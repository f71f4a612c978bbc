"""The last hidden states of the places from which somebody may sample."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import Tensor

from octopus.core.ancestry import locate
from octopus.core.cursor import Cursor
from octopus.core.segment import Segment


class Frontier:
    """Hidden states by place, kept where somebody stands: forked children sample from their parent's last one.

    Letters: C hidden channels.
    """

    def __init__(self) -> None:
        self._rows: WeakKeyDictionary[Segment, dict[int, Tensor]] = WeakKeyDictionary()

    def put(self, segment: Segment, length: int, hidden_C: Tensor) -> None:
        """Keeps the hidden state of the token before `length`; forgets those of the segment that nobody stands at."""
        rows = self._rows.setdefault(segment, {})
        tip = len(segment.tokens) if segment.tip else None
        for other in [other for other in rows if other != tip and segment.references.count(other) == 0]:
            del rows[other]
        rows[length] = hidden_C.clone()  # Else the row would keep its batch alive.

    def get(self, cursor: Cursor) -> Tensor | None:
        """The hidden state of the last token on the path to `cursor`, None if it is not kept."""
        segment, length = locate(cursor, cursor.path_length)
        return self._rows.get(segment, {}).get(length)

    def clear(self) -> None:
        """Forgets everything: the weights have changed."""
        self._rows.clear()
