"""The model on hand-made cases, told again by hand: a model that is wrong would hide what it is wrong about."""

from __future__ import annotations

import pytest

from fuzz.lines import path, view
from fuzz.model import Model, Refused


def model() -> Model:
    return Model(lambda: 0.0)


def test_a_read_shows_what_is_new_and_where() -> None:
    """Catches: tokens shown twice, holes of the source's path kept open, a common prefix that is offered again."""
    m = model()
    root = m.thread()
    m.append(root, [1, 2])
    a, b = m.fork(root, 2)
    own = m.append(a, [3, 4, 5])
    assert m.read(b, a, None, "append") == 3
    assert [view(b.line)[uid] for uid in own] == [2, 3, 4]
    (last,) = m.append(b, [6])
    assert view(b.line)[last] == 5
    assert m.read(b, a, None, "append") == 0
    m.append(a, [7])
    assert m.read(b, a, 1, "original") == 1
    assert view(b.line)[path(a.line)[-1].uid] == 5
    (later,) = m.append(b, [8])
    assert view(b.line)[later] == 6


def test_a_span_is_what_readers_get() -> None:
    """Catches: a span counted from the root, or ignored, or obeyed although `last` was asked for."""
    m = model()
    root = m.thread()
    m.append(root, [1])
    a, b, c = m.fork(root, 3)
    uids = m.append(a, [2, 3, 4, 5])
    m.commit(a, (1, 3), keep_running=False)
    assert m.read(b, a, None, "append") == 2 and set(uids[1:3]) <= set(view(b.line))
    assert m.read(c, a, 1, "append") == 1 and uids[3] in view(c.line)


def test_a_rewind_by_count_leaves_the_reads_made_there() -> None:
    """Catches: a rewind that stops after a read instead of right after the token."""
    m = model()
    root = m.thread()
    a, b = m.fork(root, 2)
    m.append(a, [1])
    m.append(b, [2])
    place = m.mark(b)
    m.read(b, a, None, "append")
    later = m.mark(b)
    m.rewind(b, 1)
    assert len(view(b.line)) == 1 and b.line == place
    with pytest.raises(Refused, match="RewindRefused"):
        m.rewind(b, later)


def test_a_snapshot_never_changes_and_goes_with_its_thread() -> None:
    """Catches: a snapshot that grows with its thread, or outlives a cancellation."""
    m = model()
    root = m.thread()
    m.append(root, [1])
    snapshot = m.commit(root, None, keep_running=True)
    m.append(root, [2])
    (child,) = m.fork(snapshot, 1)
    assert len(child.line) == 1
    m.cancel(root)
    assert child.status == "cancelled"
    with pytest.raises(Refused, match="StaleHandle"):
        m.fork(snapshot, 1)


def test_who_waits_goes_on_when_it_happens_and_never_in_a_ring() -> None:
    """Catches: a lost wake-up, a wait for a version from before, a ring over three threads."""
    m = model()
    root = m.thread()
    a, b = m.fork(root, 2)
    m.append(a, [1])
    m.read(b, a, None, "append")
    m.wait(root, [a], "any", "snapshot", None)
    assert root.status == "waiting", "the version from before does not count"
    m.wait(a, [b], "all", "terminal", None)
    with pytest.raises(Refused, match="WaitCycle"):
        m.wait(b, [root], "all", "terminal", None)
    m.commit(b, None, keep_running=False)
    assert (a.status, root.status) == ("running", "waiting")
    m.append(a, [2])
    m.commit(a, None, keep_running=True)
    assert root.status == "running"
    with pytest.raises(Refused, match="NotRunning"):
        m.append(b, [1])
