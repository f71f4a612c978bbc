"""Our own kernels compute what the float64 reference computes; interpreted here, on the GPU in the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import EVERY_FAMILY

from octopus.attention.dag.boxes import boxes, loadable
from octopus.attention.dag.groups import Group, Reader, Sight, groups
from octopus.attention.dag.tiles import Costs, TilePlan, tile

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
    lines = interpreted("interpreted_paged.py", "8")
    assert len(lines) == 24
    for line in lines:
        assert line[5] < 2e-6, line


def test_steps_by_our_kernels_are_those_of_plain_torch() -> None:
    """Catches: keys of one source taken for another's, a window's edge off by one, a run's own rows seen too early.

    Also a layer that takes the step of another window or rotary embedding, and a backend that is not asked.
    """
    lines = printed("interpreted_steps.py")
    assert len(lines) == 9 + len(EVERY_FAMILY)
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
    assert len(errors) == 25
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


COSTS = Costs(most_readers=2, few_readers=1, block=4, fewest_keys=4)


def seen_by_tiles(plan: TilePlan, rows: int, slots: int) -> np.ndarray:
    """How often each row sees each slot."""
    seen = np.zeros((rows, slots), dtype=np.int64)
    for first_block, stop_block, first_key, stop_key, first_query, first_part, count in plan.items_I7.tolist():
        whole = plan.blocks_B[first_block:stop_block, None] + np.arange(COSTS.block)
        assert count <= COSTS.most_readers
        for reader in range(count):
            row, part = plan.query_row_Q[first_query + reader], first_part + reader
            end = min(stop_key, plan.part_stop_P[part])
            np.add.at(seen[row], np.concatenate((whole.ravel(), plan.slots_K[first_key:end])), 1)
            assert part in plan.parts_P[plan.part_starts_T[row] : plan.part_starts_T[row + 1]]
    return seen


@pytest.mark.parametrize("programs", [1, 3, 1000])
def test_tiles_cover_each_reader_and_key_once(programs: int) -> None:
    """Catches: keys between two tiles lost or counted twice, a part of another row, a block across a page's end."""
    readers = tuple(Reader(row, row % 2, 30 - row) for row in range(5))
    pages = np.concatenate((np.arange(40, 56), np.arange(14)))  # Two, of which the second lies before the first.
    made = [Group(slots_K=pages, readers=readers), Group(slots_K=np.arange(60, 63), readers=(Reader(2, 0, 3),))]
    plan = tile(made, 6, programs=programs, costs=COSTS)
    expected = np.zeros((6, 63), dtype=np.int64)
    for row in range(5):
        expected[row, pages[: 30 - row]] = 1
    expected[2, 60:63] = 1
    assert (seen_by_tiles(plan, 6, 63) == expected).all()
    assert plan.part_starts_T[6] == plan.part_starts_T[5], "row 5 sees nothing and has no part"
    assert plan.item_starts_W[0] == 0 and plan.item_starts_W[-1] == len(plan.items_I7)
    assert len(plan.blocks_B) > 0 and set(plan.blocks_B.tolist()) <= {*range(40, 53), *range(11)}


def test_no_block_reaches_into_what_others_see() -> None:
    """Catches: groups that lie side by side in the pool taken for one run of slots, which a block may cross."""
    made = [Group(slots_K=np.arange(6 * n, 6 * n + 6), readers=(Reader(n, 0, 6),)) for n in range(3)]
    plan = tile(made, 3, programs=1, costs=COSTS)
    assert (seen_by_tiles(plan, 3, 18) == np.kron(np.eye(3, dtype=np.int64), np.ones(6, dtype=np.int64))).all()
    assert plan.blocks_B.tolist() == [0, 6, 12] and plan.slots_K.tolist() == [4, 5, 10, 11, 16, 17]


def test_programs_have_equal_shares() -> None:
    """Catches: a long prefix left to one program, cuts at other places than where a share ends."""
    costs = Costs(most_readers=32, few_readers=4, block=64)
    everyone = tuple(Reader(row, 0, 32_768) for row in range(32))
    made = [Group(slots_K=np.arange(32_768), readers=everyone)]
    made += [Group(slots_K=np.arange(512) + 600 * row, readers=(Reader(row, 0, 512),)) for row in range(64, 96)]
    plan = tile(made, 96, programs=33, costs=costs)
    blocks_I = plan.items_I7[:, 1] - plan.items_I7[:, 0]
    cost_I = costs.tile + blocks_I * np.where(plan.items_I7[:, 6] <= costs.few_readers, costs.few, 1.0)
    shares = np.add.reduceat(cost_I, plan.item_starts_W[:-1])
    assert len(shares) == 33 and blocks_I.sum() == 512 + 32 * 8
    assert shares.max() < 1.2 * shares.mean()


def test_little_work_is_not_spread_thin() -> None:
    """Catches: parts that cost more than their keys."""
    readers = tuple(Reader(row, 0, 300) for row in range(4))
    costs = Costs(most_readers=32, few_readers=4, block=64)
    plan = tile([Group(slots_K=np.arange(300), readers=readers)], 4, programs=132, costs=costs)
    assert len(plan.items_I7) == 1


def test_nobody_sees_anything() -> None:
    """Catches: a division by the cost of nothing."""
    plan = tile([], 3, programs=132, costs=COSTS)
    assert len(plan.items_I7) == 0 and plan.part_starts_T.tolist() == [0, 0, 0, 0]


def test_what_descriptors_cannot_load_is_refused() -> None:
    """Catches: a gradient that is one number stretched, or lies at an odd place, given to the copy engine."""
    fine = torch.zeros(2, 8, 16)
    stretched, shifted = torch.zeros(()).expand(2, 8, 16), torch.zeros(2 * 8 * 16 + 1)[1:].view(2, 8, 16)
    assert loadable(fine) and loadable(fine.transpose(0, 1)) and loadable(fine[:1])
    for odd in (stretched, shifted, fine[..., ::2], fine[:1].expand(2, 8, 16), torch.zeros(2, 8, 5)):
        assert not loadable(odd)
        with pytest.raises(ValueError, match="multiples of 16 bytes"):
            boxes(odd, 16)
        whole = torch.nn.functional.pad(odd, (0, -odd.shape[2] % 16))
        assert loadable(whole.clone(memory_format=torch.contiguous_format))
