"""The auditor on our own kernels: it finds nothing, and every fault that can be planted, as with other backends.

Catches: a NaN of a hidden value that comes through a weight of 0; a mask that rounds to whole blocks; gradients that
reach, or miss, a row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paged_faults import FAULTS as PAGED_FAULTS

from octopus.verify.selftest.fault import LLAMA
from octopus.verify.selftest.faults import FAULTS

HERE = Path(__file__).parent


def said(script: str) -> list[list[str]]:
    """The words of each line that a script prints."""
    environment = {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}
    run = subprocess.run(
        [sys.executable, str(HERE / script)], capture_output=True, text=True, check=True, env=environment
    )
    return [line.split() for line in run.stdout.splitlines()]


@pytest.mark.slow
def test_the_auditor_on_our_paged_kernels() -> None:
    """Interpreted, in float32: about a minute. Also catches: slots behind a segment's end, pages of somebody else."""
    lines = said("interpreted_paged_audit.py")
    assert lines[:3] == [["clean", "llama"], ["clean", "qwen3.5"], ["clean", "gemma-3"]]
    found = {name: set(codes) for name, *codes in lines[3:]}
    assert all(found[fault.__name__] >= codes for fault, codes in PAGED_FAULTS.items())
    assert int(found["attended"].pop()) > 100


@pytest.mark.slow
def test_the_auditor_on_our_kernels() -> None:
    """Interpreted, in float32: about ten minutes."""
    lines = said("interpreted_audit.py")
    assert [line for line in lines if line[0] == "clean"] == []
    # It is planted into the code of another backend.
    assert [name for name, _, found in lines if found == "invisible"] == ["shift_of_wrong_sign"]
    assert len(lines) == sum(LLAMA in fault.stacks and not fault.dump for fault in FAULTS)
    assert [line for line in lines if line[2] != "invisible" and line[2][:4] != line[1][:4]] == []
