"""The oracle against examples worked by hand: it is the yardstick, so it has none but these.

Catches a wrong reading of what the primitives mean.
"""

import pytest

from octopus.verify.oracle import Oracle, OracleThread, Refused


def family() -> tuple[Oracle, OracleThread, OracleThread, OracleThread]:
    """A root with tokens 0 and 1; its children a (tokens 2, 3, 4) and b (token 5)."""
    oracle = Oracle()
    root = oracle.thread()
    oracle.append(root, [10, 11])
    a, b = oracle.fork(root, 2)
    oracle.append(a, [12, 13, 14])
    oracle.append(b, [15])
    return oracle, root, a, b


def test_a_read_closes_the_holes_of_the_source() -> None:
    oracle, root, a, b = family()
    assert oracle.read(b, a) == [2, 3, 4]
    assert oracle.append(b, [16]) == [6]
    assert oracle.tokens[6].visible == ((0, 0), (1, 1), (5, 2), (2, 3), (3, 4), (4, 5), (6, 6))
    assert (oracle.tokens[6].position, oracle.tokens[6].predecessor) == (6, 5)
    assert oracle.read(root, b) == [5, 6]
    assert root.place.seen == {0: 0, 1: 1, 5: 2, 6: 3}


def test_original_placement_moves_nothing_and_resumes_behind() -> None:
    oracle, _, a, b = family()
    oracle.read(b, a, placement="original")
    assert b.place.seen == {0: 0, 1: 1, 5: 2, 2: 2, 3: 3, 4: 4}
    assert b.place.next_position == 5


def test_last_counts_before_what_is_seen_is_left_out() -> None:
    oracle, _, a, b = family()
    assert oracle.read(b, a, last=1) == [4]
    assert oracle.read(b, a, last=2) == [3]
    assert oracle.read(b, a, last=0) == []
    assert oracle.read(b, a) == [2]


def test_own_ancestors_and_descendants_can_be_read() -> None:
    oracle, root, a, _ = family()
    oracle.append(root, [17])
    assert oracle.read(a, a) == []
    assert oracle.read(a, root) == [6]
    assert oracle.read(root, a) == [2, 3, 4]


def test_a_committed_thread_shows_its_last_snapshot_and_span() -> None:
    oracle, _, a, b = family()
    oracle.commit(a, span=(0, 1), keep_running=True)
    oracle.append(a, [18])
    assert oracle.read(oracle.fork(b)[0], a) == [2, 3, 4, 6]
    oracle.commit(a, span=(1, 3))
    assert oracle.read(oracle.fork(b)[0], a) == [3, 4]
    assert oracle.read(b, a, last=1) == [6]


def test_rewind_to_a_count_goes_before_mounts_made_there() -> None:
    oracle, _, a, b = family()
    oracle.read(b, a)
    after_mount = oracle.mark(b)
    oracle.append(b, [16, 17])
    oracle.rewind(b, after_mount)
    assert (b.own_count, b.place.next_position) == (1, 6)
    oracle.rewind(b, 1)
    assert (b.own_count, b.place.next_position) == (1, 3)
    oracle.rewind(b, 0)
    assert b.place is b.fork_place


def test_refusals_change_nothing() -> None:
    oracle, root, a, b = family()
    before = b.place
    with pytest.raises(Refused):
        oracle.rewind(b, 2)
    with pytest.raises(Refused):
        oracle.rewind(b, a.place)
    oracle.cancel(root)
    oracle.cancel(root)
    assert [thread.status for thread in oracle.threads] == ["cancelled"] * 3
    for refused in (oracle.fork, oracle.commit, oracle.fail):
        with pytest.raises(Refused):
            refused(b)
    reader = oracle.thread()
    with pytest.raises(Refused):
        oracle.read(reader, a)
    assert (b.place, reader.place.seen) == (before, {})
