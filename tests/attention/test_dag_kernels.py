"""Our own kernels compute what the float64 reference computes; interpreted here, on the GPU in the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from octopus.attention.dag.groups import Group, Reader, Sight, groups
from octopus.attention.dag.tiles import tile

HERE = Path(__file__).parent


def interpreted(script: str, *arguments: str) -> list[list[float]]:
    """Runs a script that prints a case a line, and gives the numbers of each line."""
    return [[float(word) for word in words] for words in printed(script, *arguments)]


def printed(script: str, *arguments: str) -> list[list[str]]:
    """The words of each line that a script prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    path = ":".join(str(folder) for folder in (HERE.parent.parent, HERE.parent, HERE, HERE.parent / "models"))
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env={"PYTHONPATH": path})
    assert run.returncode == 0, run.stderr
    return [line.split() for line in run.stdout.splitlines()]


def test_packed_kernels_equal_the_reference() -> None:
    """Catches: a shift lost, of the wrong sign or not turned back, a pair on the diagonal missed, a view's sum lost.

    Also slots added up for the wrong rows, the gradient of a row that sees nothing, heads tiled instead of shared,
    the edge of a window taken for a diagonal, a NaN in a key or value that nobody sees.
    """
    lines = interpreted("interpreted_packed.py", "2")
    assert len(lines) == 12
    for line in lines:
        assert max(line[5:]) < 1e-5, line


def test_paged_kernels_equal_one_softmax_a_row() -> None:
    """Catches: a slot of the NaN pool read, a group's reader lost, a part joined to another row, a shift not turned."""
    lines = interpreted("interpreted_paged.py", "12")
    assert len(lines) == 36
    for line in lines:
        assert line[5] < 2e-6, line


def test_steps_by_our_kernels_are_those_of_plain_torch() -> None:
    """Catches: keys of one source taken for another's, a window's edge off by one, a run's own rows seen too early.

    Also a layer that takes the step of another window or rotary embedding, and a backend that is not asked.
    """
    lines = printed("interpreted_steps.py")
    assert len(lines) == 9 + 4
    for line in lines:
        assert float(line[-1]) < 2e-5, line
        assert int(line[3]) > 0, line
    assert {int(line[2]) > 0: int(line[4]) > 0 for line in lines} == {False: False, True: True}, "windowed prefills"


@pytest.mark.parametrize("graphs", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_the_probed_mask_is_the_plans(graphs: int) -> None:
    """Catches: a kernel that shows or hides another pair than its plan says, in whichever tile."""
    lines = interpreted("interpreted_probe.py", str(graphs))
    assert len(lines) == graphs
    for _, packed, paged, pairs in lines:
        assert packed == paged == 0 < pairs


def test_public_bugs_of_attention_kernels() -> None:
    """The tiny input of each kind that can concern us, in memory that is NaN until it is written.

    Catches: NaN where rows or tiles see nothing, or out of memory that nobody wrote; log-sum-exps of another base, or
    of another row; parts of tiles without keys; query heads shared out in turn; gradients that take another mask than
    the forward pass, or depend on how a mask is cut up; sums in another order each time; a page's place that matters.
    """
    errors = {name: float(error) for name, error in printed("interpreted_bugs.py")}
    assert len(errors) == 23
    assert {name: error for name, error in errors.items() if not error < 1e-5} == {}


def slots_of(segment: object, start: int, stop: int) -> np.ndarray:
    return np.arange(1000 * segment + start, 1000 * segment + stop)


def test_what_the_same_rows_see_is_one_group() -> None:
    """Catches: pieces that are alike kept apart, or put together although their shifts differ."""
    sights = [
        Sight(1, 0, 100, 0, row=0, rows=1),
        Sight(1, 0, 100, 0, row=1, rows=1),
        Sight(1, 0, 60, 0, row=2, rows=1),
        Sight(2, 5, 9, 0, row=0, rows=1),
        Sight(2, 5, 9, 0, row=1, rows=1),
        Sight(3, 0, 4, 7, row=0, rows=1),
        Sight(3, 0, 4, 8, row=1, rows=1),
    ]
    found = {tuple((reader.row, reader.shift) for reader in group.readers): group for group in groups(sights, slots_of)}
    assert {readers: len(group.slots_K) for readers, group in found.items()} == {
        ((0, 0), (1, 0), (2, 0)): 60,
        ((0, 0), (1, 0)): 44,
        ((0, 7), (1, 8)): 4,
    }


def test_a_causal_sight_ends_where_each_row_does() -> None:
    """Catches: a row of a prefill that sees a later one, or not itself."""
    made = groups([Sight(1, 0, 10, 0, row=4, rows=3, causal=True)], slots_of)
    whole, rest = sorted(made, key=lambda group: group.slots_K[0])
    assert whole == Group(slots_K=whole.slots_K, readers=tuple(Reader(row, 0, 8) for row in (4, 5, 6)))
    assert (len(whole.slots_K), rest.slots_K.tolist()) == (8, [1008, 1009])
    assert rest.readers == (Reader(5, 0, 1), Reader(6, 0, 2))


@pytest.mark.parametrize("most_keys", [1, 7, 1000])
def test_tiles_cover_each_reader_and_key_once(most_keys: int) -> None:
    """Catches: keys between two tiles lost or counted twice, a part of another row."""
    readers = tuple(Reader(row, row % 2, 30 - row) for row in range(5))
    made = [Group(slots_K=np.arange(30), readers=readers), Group(slots_K=np.arange(50, 53), readers=(Reader(2, 0, 3),))]
    plan = tile(made, 6, most_readers=2, most_keys=most_keys)
    seen = np.zeros((6, 53), dtype=np.int64)
    for first, stop, full_stop, first_reader, count in plan.items_I5:
        assert count <= 2
        for reader in range(first_reader, first_reader + count):
            row = plan.view_row_V[plan.reader_view_R[reader]]
            end = min(stop, plan.reader_stop_R[reader])
            assert end >= min(stop, full_stop)
            np.add.at(seen[row], plan.slots_K[first:end], 1)
            assert reader in plan.parts_P[plan.part_starts_T[row] : plan.part_starts_T[row + 1]]
    expected = np.zeros_like(seen)
    for row in range(5):
        expected[row, : 30 - row] = 1
    expected[2, 50:53] = 1
    assert (seen == expected).all()
    assert plan.part_starts_T[6] == plan.part_starts_T[5], "row 5 sees nothing and has no part"
