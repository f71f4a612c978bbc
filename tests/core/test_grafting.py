"""Lines recorded anew in another graph see what they saw, and leave nothing behind.

Catches: a mount of other tokens or at other positions; a shared segment recorded twice; a thread in the middle of a
segment that sees too much; a count of holders that is off; an empty segment whose mounts are lost.
"""

import pytest
from random_graphs import ALL, random_episode

from octopus.core.cursor import Cursor
from octopus.core.grafting import Grafts
from octopus.core.graph import Graph
from octopus.core.lineage import lineage
from octopus.core.pool import PagePool
from octopus.core.visibility import view


def seen(cursor: Cursor) -> list[tuple[int, int]]:
    """Token ids and the positions at which they are seen, in order of the view."""
    return [
        (part.segment.tokens[offset], part.segment.start_position + offset + part.shift)
        for part in view(cursor)
        for offset in range(part.start, part.stop)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_graft_sees_what_its_cursor_sees(seed: int) -> None:
    episode = random_episode(seed, size=40, features=ALL)
    graph = Graph(pages=PagePool(64, page_size=4))
    grafts = Grafts(graph)
    places = [thread.cursor for thread in episode.graph.threads]
    places += [Cursor(segment, len(segment.tokens) // 2) for segment in episode.graph.segments]
    for place in places:
        thread = grafts.thread_at(place)
        assert sorted(seen(thread.cursor)) == sorted(seen(place))
        assert thread.cursor.next_position == place.next_position
        assert thread.cursor.path_length == place.path_length
    assert len(graph.segments) == len(lineage([place.segment for place in places]))
    graph.retention.check_pools()
    grafts.drop()
    graph.trim()
    graph.check()
    assert not graph.segments and not graph.threads


def test_what_is_rested_on_comes_first() -> None:
    """Also where an empty segment mounts what is younger than it."""
    for seed in range(20):
        order = lineage(random_episode(seed, size=30).graph.segments)
        place = {segment: number for number, segment in enumerate(order)}
        for segment in order:
            below = [part.segment for mount in segment.mounts for part in mount.parts]
            below += [] if segment.parent is None else [segment.parent.segment]
            assert all(place[other] < place[segment] for other in below)
