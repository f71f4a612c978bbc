"""The pointwise kernels compute what plain torch computes; interpreted here, on the GPU in benchmarks/attention.py."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_equal_plain_torch() -> None:
    """Catches: a wrong stride, sign or partner of a rotation, a tail row left out or added, a NaN of an empty part."""
    script = Path(__file__).with_name("interpreted_kernels.py")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 72
    for line in lines:
        assert float(line.split()[-1]) == pytest.approx(0, abs=2e-6), line
