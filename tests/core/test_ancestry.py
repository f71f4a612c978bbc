"""Paths by jump pointers agree with plain walks to the root."""

from __future__ import annotations

import random

from octopus.core.ancestry import common_prefix, lift, locate, path_pieces
from octopus.core.cursor import Cursor
from octopus.core.segment import Segment


def random_tree(seed: int, count: int) -> list[Segment]:
    rng = random.Random(seed)
    segments: list[Segment] = []
    for index in range(count):
        parent = None
        if segments and rng.random() > 0.03:
            above = segments[-1] if rng.random() < 0.7 else rng.choice(segments)
            parent = Cursor(above, rng.randint(0, len(above.tokens)))
        segment = Segment(index=index, parent=parent, start_position=0, writer=0, opened_at=0, weights_version=0)
        segment.tokens = [index] * rng.choice((0, 0, 1, 3))
        segments.append(segment)
    return segments


def walk(cursor: Cursor) -> list[tuple[Segment, int]]:
    """Every token of the path, oldest first."""
    tokens: list[tuple[Segment, int]] = []
    place: Cursor | None = cursor
    while place is not None:
        tokens += [(place.segment, offset) for offset in reversed(range(place.length))]
        place = place.segment.parent
    return tokens[::-1]


def test_places_prefixes_and_pieces_agree_with_walks() -> None:
    """Catches: a jump that keeps the wrong fork length, and an off-by-one at an empty segment."""
    rng = random.Random(1)
    for seed in range(30):
        segments = random_tree(seed, 60)
        for _ in range(40):
            one, two = (Cursor(s, rng.randint(0, len(s.tokens))) for s in rng.choices(segments, k=2))
            path, other = walk(one), walk(two)
            assert one.path_length == len(path)
            shared = sum(1 for a, b in zip(path, other, strict=False) if a == b)
            prefix = common_prefix(one, two)
            assert (0 if prefix is None else prefix.path_length) == shared
            n = rng.randint(0, len(path))
            place = locate(one, n)
            assert walk(place) == path[:n]
            assert n == 0 or place.length > 0
            start = rng.randint(0, len(path))
            assert [(s, o) for s, a, b in path_pieces(one, start) for o in range(a, b)] == path[start:]
            depth = rng.randint(0, one.segment.depth)
            lifted = lift(one, depth)
            assert lifted.segment.depth == depth
            assert walk(lifted) == path[: lifted.path_length]


def test_a_deep_path_is_a_few_jumps_long() -> None:
    """Catches: jumps that lead to the parent only, so that a place is found in a walk."""
    segment = Segment(0, None, 0, 0, 0, 0)
    for index in range(1, 4096):
        segment = Segment(index, Cursor(segment, 0), 0, 0, 0, 0)
    jumps = 0
    while segment.parent is not None:
        segment, jumps = segment.jump.segment, jumps + 1
    assert jumps <= 12, "log2 of the depth"
