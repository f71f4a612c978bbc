"""What segments and threads share while it is empty stays empty."""

from __future__ import annotations

import pytest

from octopus.core.errors import InvariantViolation
from octopus.core.graph import Graph
from octopus.core.nothing import NO_ITEMS, NOTHING
from octopus.core.pool import PagePool


@pytest.mark.parametrize(
    "write",
    [
        lambda: NOTHING.update({1: 2}),
        lambda: NOTHING.setdefault(1, 2),
        lambda: NOTHING.__setitem__(1, 2),
        lambda: NO_ITEMS.append(1),
        lambda: NO_ITEMS.extend([1]),
        lambda: NO_ITEMS.insert(0, 1),
        lambda: NO_ITEMS.__iadd__([1]),
    ],
)
def test_a_write_is_refused(write) -> None:
    """Catches: a container that lets one segment write into all others."""
    with pytest.raises(InvariantViolation, match="must stay empty"):
        write()
    assert not NOTHING and not NO_ITEMS


def test_two_lines_have_lists_of_their_own() -> None:
    """Catches: a first append, or a first page, that goes into what all share, or keeps the caller's list."""
    graph = Graph(pages=PagePool(4, page_size=2))
    one, other, given = graph.thread(), graph.thread(), [1, 2]
    graph.append(one, given)
    given.append(3)
    graph.append(one, (4,))
    with graph.begin_step([one]) as step:
        for wave in step.waves:
            for stretch in wave:
                step.publish(stretch)
    segment = one.cursor.segment
    assert (segment.tokens, len(segment.stamps), len(segment.pages)) == ([1, 2, 4], 2, 2)
    assert (other.cursor.segment.tokens, other.cursor.segment.stamps, other.cursor.segment.pages) == ([], [], [])
    graph.audit()
