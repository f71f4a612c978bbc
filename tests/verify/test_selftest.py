"""The fault matrix: every planted fault is caught, in every stack and dtype, and nothing else is.

Catches an auditor that has gone blind, or that cries wolf.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter

import pytest
import torch

from octopus.verify.selftest import command
from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.cell import cell
from octopus.verify.selftest.fault import ALL, FOREIGN, LLAMA
from octopus.verify.selftest.faults import FAULTS
from octopus.verify.selftest.matrix import DTYPES, run_matrix
from octopus.verify.selftest.table import sums

# The faults that the exactness check of the model is tried on, see tests/exactness/faults.py.
TWELVE = {
    "sibling_visible", "row_as_position", "mount_not_shifted", "shift_of_wrong_sign", "shift_on_all_dimensions",
    "heads_tiled", "convolution_tail_lost", "state_of_previous_run", "state_gradient_detached",
    "label_scored_from_previous_row", "mount_seen_too_early", "key_counted_twice",
}  # fmt: skip


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
