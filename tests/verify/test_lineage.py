"""Descent in all its forms, and what follows from it, against walks over a graph."""

import random
from itertools import pairwise

import numpy as np
import pytest
from verify_subjects import MOUNT, PARENTS, POSITIONS, matrix

from octopus.verify.chains import Chains
from octopus.verify.descent import Malformed, predecessors_of
from octopus.verify.lineage import lineage_of
from octopus.verify.oracle import reached_by, seen_by
from octopus.verify.pairs import of_dense
from octopus.verify.runs import UNKNOWN
from octopus.verify.subject import Descent, Mount, SegmentRow


def random_forest(seed: int) -> tuple[list[int], list[Mount]]:
    """Parents in any order of rows, and mounts anywhere."""
    rng = random.Random(seed)
    length = rng.randrange(1, 25)
    place = list(range(length))
    if rng.random() < 0.5:
        rng.shuffle(place)
    parents = [-1] * length
    for n in range(length):
        above = n - 1 if rng.random() < 0.7 else rng.randrange(-1, n)
        parents[place[n]] = place[above] if above >= 0 else -1
    mounts = []
    for _ in range(rng.randrange(4)):
        k0 = rng.randrange(length)
        mounts.append(Mount(at=rng.randrange(length), k0=k0, k1=rng.randrange(k0, length) + 1, placement="append"))
    return parents, mounts


@pytest.mark.parametrize("seed", range(150))
def test_visibility_paths_and_influence_are_those_of_the_graph(seed: int) -> None:
    """Catches: a mount that is not inherited below a fork, or is inherited from behind the fork."""
    parents, mounts = random_forest(seed)
    seen = seen_by(parents, [(m.at, m.k0, m.k1) for m in mounts])
    lineage = lineage_of(Descent(parents_T=np.array(parents), mounts=tuple(mounts)), len(parents))
    allowed = lineage.allowed()
    assert (allowed.edges == of_dense(matrix(seen)).edges).all()
    rows = np.arange(len(parents))
    paths = matrix(seen_by(parents))
    assert (lineage.on_path(rows[None, :], rows[:, None]) == paths).all()
    assert (lineage.depths_T == paths.sum(axis=1) - 1).all()
    chains = Chains(allowed)
    reach = chains.influence()
    for row, keys in enumerate(reached_by(seen)):
        reached = {k for k0, k1 in chains.influence_of(row, reach).tolist() for k in range(k0, k1)}
        assert reached == keys
        for key in range(len(parents)):
            hops = chains.hops(row, key)
            assert bool(hops) == (key in keys)
            assert all(after in seen[before] for before, after in pairwise(hops))


def test_positions_go_on_behind_what_was_mounted() -> None:
    """Catches: a mount that takes no positions, and one of unknown placement that is guessed."""
    parents = np.array(PARENTS)
    known = lineage_of(Descent(parents_T=parents, mounts=(MOUNT,)), 7)
    assert known.positions_T.tolist() == POSITIONS
    original = lineage_of(Descent(parents_T=parents, mounts=(Mount(at=5, k0=3, k1=4, shift=0),)), 7)
    assert original.positions_T.tolist() == [0, 1, 2, 2, 3, 3, 4]
    unknown = lineage_of(Descent(parents_T=parents, mounts=(Mount(at=5, k0=3, k1=5),)), 7)
    assert unknown.positions_T.tolist() == [*POSITIONS[:5], UNKNOWN, UNKNOWN]


def test_a_window_is_measured_in_positions() -> None:
    """Catches: a window that counts rows, or forgets the sinks."""
    lineage = lineage_of(Descent(parents_T=np.array(PARENTS), mounts=(MOUNT,)), 7)
    near = lineage.allowed(window=3, sinks=1)
    # Row 6 is at position 5 and sees positions 3 .. 5: the second token of b, and the join.
    assert near.row(6).tolist() == [[0, 1], [4, 7]]
    assert near.row(2).tolist() == [[0, 3]]


def test_all_forms_say_the_same() -> None:
    """Catches: inclusive tree intervals taken for exclusive ones, and segments that continue a part of their parent."""
    wanted = [-1, 0, 1, 1, 3, 1, 5]
    exclusive = np.array([[0, 7], [1, 7], [2, 3], [3, 5], [4, 5], [5, 7], [6, 7]])
    segments = (
        SegmentRow("join", "root", 5, 2),
        SegmentRow("root", None, 0, 2),
        SegmentRow("a", "root", 2, 1, 2),
        SegmentRow("empty", "a", 3, 0, 0),
        SegmentRow("b", "empty", 3, 2),
    )
    for descent in (
        Descent(parents_T=np.array(wanted)),
        Descent(intervals_T2=exclusive),
        Descent(intervals_T2=exclusive - [0, 1]),
        Descent(segments=segments),
    ):
        assert predecessors_of(descent, 7).tolist() == wanted
    assert predecessors_of(Descent(documents_T=np.array([4, 4, 9, 9, 9])), 5).tolist() == [-1, 0, -1, 2, 3]


@pytest.mark.parametrize(
    ("descent", "words"),
    [
        (Descent(parents_T=np.array([-1, 2, 1])), "circle"),
        (Descent(parents_T=np.array([-1, 1, 1])), "own parent"),
        (Descent(parents_T=np.array([-1, 7, 1])), "no row"),
        (Descent(parents_T=np.array([-1, 0])), "3 whole numbers"),
        (Descent(parents_T=np.array([-1.0, 0, 1])), "whole numbers"),
        (Descent(intervals_T2=np.array([[0, 3], [1, 4], [2, 5]])), "not nested"),
        (Descent(intervals_T2=np.array([[0, 3], [2, 1], [2, 3]])), "before tin"),
        (Descent(segments=(SegmentRow("a", "b", 0, 3),)), "unknown parent"),
        (Descent(segments=(SegmentRow("a", None, 0, 2), SegmentRow("b", "a", 1, 2))), "overlap"),
        (Descent(segments=(SegmentRow("a", None, 0, 1), SegmentRow("b", "a", 2, 1))), "gap"),
        (Descent(segments=(SegmentRow("a", None, 0, 2),)), "cover 2 rows"),
        (Descent(segments=(SegmentRow("a", None, 0, 1), SegmentRow("a", None, 1, 2))), "same id"),
        (Descent(segments=(SegmentRow("a", None, 0, 1), SegmentRow("b", "a", 1, 2, 5))), "forks after 5"),
        (Descent(segments=(SegmentRow("a", "b", 0, 2, 0), SegmentRow("b", "a", 2, 1, 0))), "descends from itself"),
        (Descent(documents_T=np.array([1, 2, 1])), "second time"),
        (Descent(documents_T=np.array([1, 2])), "3 numbers"),
        (Descent(parents_T=np.array([-1, 0, 1]), mounts=(Mount(at=1, k0=2, k1=4),)), "leads outside"),
    ],
)
def test_what_is_no_forest_is_said_to_be_none(descent: Descent, words: str) -> None:
    """Catches: a check of the declared descent that is gone."""
    with pytest.raises(Malformed, match=words):
        lineage_of(descent, 3)
