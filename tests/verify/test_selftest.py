"""The fault matrix: every planted fault is caught, in every stack and dtype, and nothing else is.

Catches an auditor that has gone blind, or that cries wolf.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from octopus.verify.margins import VISIBLE
from octopus.verify.selftest import command
from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.cell import cell
from octopus.verify.selftest.fault import ALL, FOREIGN, LLAMA
from octopus.verify.selftest.faults import FAULTS
from octopus.verify.selftest.matrix import DTYPES, Matrix, run_matrix
from octopus.verify.selftest.table import MARKS, compact, sums

# The faults that the exactness check of the model is tried on, see tests/exactness/faults.py.
TWELVE = {
    "sibling_visible", "row_as_position", "mount_not_shifted", "shift_of_wrong_sign", "shift_on_all_dimensions",
    "heads_tiled", "convolution_tail_lost", "state_of_previous_run", "state_gradient_detached",
    "label_scored_from_previous_row", "mount_seen_too_early", "key_counted_twice",
}  # fmt: skip


README = Path(__file__).parents[2].joinpath("README.md").read_text()
SHOWN = README.partition("<!-- octopus-verify selftest --format compact -->")[2].partition("<!-- end -->")[0]
BORDER = (VISIBLE / 2, VISIBLE * 2)
"""Whether such a fault is visible hangs on the machine's order of summation."""


def readme_marks() -> dict[str, tuple[set[str], dict[str, str]]]:
    """By fault, the codes and the marks of each stack."""
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in SHOWN.splitlines() if "|" in line]
    stacks = rows[0][2:]
    return {row[0]: (set(row[1].split(", ")), dict(zip(stacks, row[2:], strict=True))) for row in rows[2:]}


def assert_readme_agrees(matrix: Matrix, stack: str, number: int) -> None:
    """Every mark of one column is what the selftest says; a column the README does not have fails as well."""
    shown = readme_marks()
    for c in matrix.cells:
        if c.stack == "dump":
            assert f"{c.fault} {c.code}" in SHOWN
            continue
        codes, marks = shown[c.fault]
        mark = marks[stack][number]
        assert (mark in "Vf") == (c.code is not None) and (c.code is None or c.code in codes), c
        assert c.times_noise is not None
        if c.code is not None and not BORDER[0] < c.times_noise < BORDER[1]:
            assert mark == ("V" if c.visible else "f"), c
    unplanted = {fault.name for fault in FAULTS if not fault.dump} - {c.fault for c in matrix.cells}
    assert all(shown[name][1][stack][number] == "." for name in unplanted)


def test_the_readme_tells_how_many_are_found() -> None:
    """Catches: a sentence, or the sums below the table, that say something else than the marks."""
    shown, dumps = readme_marks(), [fault for fault in FAULTS if fault.dump]
    assert MARKS in SHOWN and set(shown) | {fault.name for fault in dumps} == {fault.name for fault in FAULTS}
    caught = [
        len(dumps) + sum("-" not in {marks[number] for marks in by_stack.values()} for _, by_stack in shown.values())
        for number in range(len(DTYPES))
    ]
    for dtype, count in zip(DTYPES, caught, strict=True):
        assert f"{str(dtype).removeprefix('torch.')}: {count} of {len(FAULTS)} faults caught" in SHOWN
    words = re.sub(r"\s+", " ", README)
    assert "of {} planted faults it finds {} in float64, {} in float32 and {} in bfloat16".format(
        len(FAULTS), *caught
    ) in words


def test_the_compact_form_has_one_mark_for_each_stack_and_dtype() -> None:
    """Catches: marks in another order than the heading, and a missed fault that is not shown as one."""
    faults = [fault for fault in FAULTS if fault.name in ("heads_tiled", "shift_on_all_dimensions", "page_lost")]
    matrix = run_matrix(faults, [Bench(name=name) for name in (LLAMA, "qwen3.5")], [torch.float64])
    blind = Matrix(
        faults=matrix.faults,
        cells=tuple(replace(c, code=None) if c.fault == "heads_tiled" else c for c in matrix.cells),
        false_alarms=(),
    )
    assert "| heads_tiled | OCT302 | `V` | `V` |" in [*compact(matrix)]
    assert "| shift_on_all_dimensions | OCT206 | `.` | `V` |" in [*compact(matrix)]
    assert "| heads_tiled |  | `-` | `-` |" in [*compact(blind)]
    assert any("page_lost OCT702" in line for line in compact(matrix))


def test_there_are_enough_faults_of_every_kind() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 40
    assert set(names) >= TWELVE
    families = Counter(fault.family for fault in FAULTS)
    assert set(families) == {f"OCT{digit}" for digit in range(1, 8)}
    assert min(families.values()) >= 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stack", ALL)
def test_every_fault_is_caught_and_nothing_else(stack: str, dtype: torch.dtype) -> None:
    matrix = run_matrix(FAULTS, [Bench(name=stack)], [dtype])
    assert matrix.failures() == []
    if dtype != torch.bfloat16:
        assert matrix.missed(str(dtype).removeprefix("torch.")) == []
        assert [c.fault for c in matrix.cells if not c.visible] == []
    assert_readme_agrees(matrix, stack, DTYPES.index(dtype))


def test_a_blind_auditor_fails_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octopus.verify.functional.isolation.difference", lambda *_: None)
    faults = [fault for fault in FAULTS if fault.name == "centred_over_the_row"]
    matrix = run_matrix(faults, [Bench(name=LLAMA)], [torch.float64])
    assert any("missed centred_over_the_row" in failure for failure in matrix.failures())
    assert any("inconclusive" in alarm for alarm in matrix.false_alarms)
    assert any("0 of 1 faults caught" in line for line in sums(matrix))


def test_the_yardsticks_are_out_of_reach_of_a_fault() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "heads_tiled")
    fresh, used = Bench(name=FOREIGN), Bench(name=FOREIGN)
    used.clean(torch.float32)
    assert cell(fresh, fault, torch.float32) == cell(used, fault, torch.float32)
    assert fresh.yardstick.noise(torch.float32) == used.yardstick.noise(torch.float32)


def test_nothing_is_left_behind_by_a_fault() -> None:
    bench, dtype = Bench(name=LLAMA), torch.float64
    before = bench.clean(dtype).outputs_NV
    for fault in FAULTS:
        if LLAMA in fault.stacks and not fault.dump:
            with bench.planted(fault, dtype) as planted:
                planted.stack.run(planted.stack.tokens_T)
    with bench.planted(None, dtype) as planted:
        assert torch.equal(planted.stack.run(planted.stack.tokens_T), before)


def test_the_command_prints_a_matrix_and_fails_for_an_unknown_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    words = [
        "--stack",
        "hf-llama",
        "--dtype",
        "bfloat16",
        "--fault",
        "heads_tiled",
        "--fault",
        "page_twice_free",
    ]
    assert command.run(parser.parse_args(words)) == 0
    assert "OCT302" in capsys.readouterr().out
    assert command.run(parser.parse_args([*words, "--format", "json"])) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {(c["fault"], c["code"]) for c in cells} == {
        ("heads_tiled", "OCT302"),
        ("page_twice_free", "OCT702"),
    }
    assert command.run(parser.parse_args(["--fault", "no_such_fault"])) == 2


def test_a_cell_tells_how_far_the_fault_moves_the_result() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "pair_leaked")
    found = cell(Bench(name=LLAMA), fault, torch.float64)
    assert found.visible and found.times_noise is not None and found.times_noise > 1e6
