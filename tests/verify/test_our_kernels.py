"""The auditor on our own packed kernels: it finds nothing, and every fault that can be planted, as with other backends.

Catches: a NaN of a hidden value that comes through a weight of 0; a mask that rounds to whole blocks; gradients that
reach, or miss, a row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_auditor_on_our_kernels() -> None:
    """Interpreted, in float32: about ten minutes."""
    command = [sys.executable, str(HERE / "interpreted_audit.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(HERE.parents[1])})
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [line for line in lines if line[0] == "clean"] == []
    # Invisible are faults that are planted into the code of another backend.
    seen = [line for line in lines if line[2] != "invisible"]
    assert len(seen) > 40 and [line for line in seen if line[2][:4] != line[1][:4]] == []
